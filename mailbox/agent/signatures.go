package agent

import (
	"slices"
	"sync"

	"feishu-relay/mailbox"
)

const (
	// sigChars is how much of a signature is remembered: 128 bits.
	sigChars = 32
	// maxSignatures is the most signatures that are remembered of one item in the
	// inbox, which its sender replaces when it sends it again.
	maxSignatures = 16
)

// signerKey is what Signed knows an agent by that has signed mail.
func signerKey(from mailbox.AgentID) string { return ":signer/" + string(from) }

// checkSigner refuses unsigned mail of an agent that has signed before: it has the
// secret, and only programs that do not may leave the signature out. sig is e's.
func (a *Agent) checkSigner(e mailbox.Envelope, sig string) error {
	switch {
	case a.opts.Signing.Secret == "":
	case sig != "":
		if e.Metadata.Extra[metaNotice] == nil { // a notice in the name of its sender is this agent's own
			a.remember(signerKey(e.From))
		}
	case a.opts.Signed.Seen(signerKey(e.From)):
		return &mailbox.Error{Code: mailbox.BadSignature, Field: "sig",
			Message: "the message is not signed, and its sender signs"}
	}
	return nil
}

// copied reports whether mail with that signature was dealt with before. If not, the
// signature is kept for the item that it came as.
func (a *Agent) copied(key, sig string) bool {
	if sig == "" {
		return false
	}
	sig = sig[:sigChars]
	if a.opts.Signed.Seen(sig) {
		return true
	}
	a.signatures.add(key, sig)
	return false
}

// dealtWith remembers the signatures of an item.
func (a *Agent) dealtWith(key string) {
	for _, sig := range a.signatures.of(key) {
		a.remember(sig)
	}
}

func (a *Agent) remember(key string) {
	if err := a.opts.Signed.Add(key); err != nil {
		a.log.Error("a signature is not remembered; after a restart a copy of the message is taken", "err", err)
	}
}

// signatures are those of the items in the inbox, by the store's key.
type signatures struct {
	mu    sync.Mutex
	items map[string][]string // guarded by mu
}

func (s *signatures) add(key, sig string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = map[string][]string{}
	}
	if list := s.items[key]; !slices.Contains(list, sig) {
		s.items[key] = append(list[max(0, len(list)+1-maxSignatures):], sig)
	}
}

func (s *signatures) of(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.items[key])
}

func (s *signatures) forget(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.items, key)
	}
}
