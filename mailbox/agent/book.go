package agent

import (
	"fmt"
	"slices"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// The keys that Seen knows things by. That of a message is its messageKey; the others
// begin with a colon, as no agent's name does.

// messageKey names a message: different content under one id is a different message.
func messageKey(e mailbox.Envelope) string {
	return string(e.From) + "/" + e.ID + "#" + e.Fingerprint()
}

// givenKey is for an id under which the bot was given a message.
func givenKey(id string) string { return ":given/" + id }

// closedKey is for a message that is not handed over again, since the bot did not answer.
// One that its sender sends again later is.
func closedKey(key string, sent time.Time) string {
	return fmt.Sprintf(":closed/%d/%s", sent.UnixMilli(), key)
}

// sentKey is for an id that a message of this agent has; with the fingerprint of the
// message that the bot gave the id behind it, for that message.
func sentKey(id string) string { return ":sent/" + id }

// askedKey is for a question or task that the bot was given, and answeredKey for one whose
// result was sent.
func askedKey(from mailbox.AgentID, id string) string { return fmt.Sprintf(":asked/%s/%s", from, id) }

func answeredKey(to mailbox.AgentID, id string) string { return fmt.Sprintf(":answered/%s/%s", to, id) }

// stepKey is for a step that ends a task: the bot is given it once, however many envelopes
// say it. "": e is something else.
func stepKey(e mailbox.Envelope) string {
	if !isStep(e.Type) || e.Task == nil || !tasks.Terminal(e.Task.State) {
		return ""
	}
	return endKey(e.From, e.Task.ID, e.Task.State)
}

func endKey(peer mailbox.AgentID, id string, state mailbox.TaskState) string {
	return fmt.Sprintf(":step/%s/%s/%s", peer, id, state)
}

// rejectedKey is for a task that is being rejected, and rejectedItem for the mail that
// gives one that the ledger does not keep. It is noted before the giver gets the
// answer, so that a crash cannot turn that round.
func rejectedKey(r tasks.Record) string {
	return fmt.Sprintf(":rejected/%s/%s/%s", r.Peer, r.ID, r.MessageID)
}

func rejectedItem(item mailbox.Item) string { return ":rejected-mail/" + item.Key }

// signerKey is what Signed knows an agent by that has signed mail.
func signerKey(from mailbox.AgentID) string { return ":signer/" + string(from) }

// remember adds keys about a message to a book; "" is no key. Where that fails, what they
// are about may be done again after a restart.
func (a *Agent) remember(book Seen, message string, keys ...string) {
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := book.Add(key); err != nil {
			a.log.Error("what was done is not remembered; after a restart it may be done again", "message_id", message, "err", err)
		}
	}
}

const (
	// sigChars is how much of a signature is remembered: 128 bits.
	sigChars = 32
	// maxSignatures is the most signatures that are remembered of one item in the
	// inbox, which its sender replaces when it sends it again.
	maxSignatures = 16
)

// checkSigner refuses unsigned mail of an agent that has signed before: it has the
// secret, and only programs that do not may leave the signature out. sig is e's.
func (a *Agent) checkSigner(e mailbox.Envelope, sig string) error {
	switch {
	case a.opts.Signing.Secret == "":
	case sig != "":
		if e.Metadata.Extra[metaNotice] == nil { // a notice in the name of its sender is this agent's own
			a.remember(a.opts.Signed, e.ID, signerKey(e.From))
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
	a.mu.Lock()
	defer a.mu.Unlock()
	if list := a.signatures[key]; !slices.Contains(list, sig) {
		a.signatures[key] = append(list[max(0, len(list)+1-maxSignatures):], sig)
	}
	return false
}

// dealtWith remembers the signatures of an item: a copy of it is a duplicate from then on.
func (a *Agent) dealtWith(key string) {
	a.mu.Lock()
	list := slices.Clone(a.signatures[key])
	a.mu.Unlock()
	a.remember(a.opts.Signed, "", list...)
}

// forgetItems forgets what is known of items that are no longer in the inbox.
func (a *Agent) forgetItems(keys ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		delete(a.signatures, key)
	}
}
