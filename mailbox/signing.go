package mailbox

import (
	"encoding/json"
	"fmt"
	"strings"

	"feishu-relay/relay"
)

// Signing signs envelopes with a secret that all sidecars share, as relay messages are
// signed: the field "sig" is the HMAC-SHA256 of the rest in the canonical form of
// RFC 8785. A program that passes an envelope on may format it otherwise. All three mailboxes
// (docs/protocol.md 6.4, 6.7, 6.8) can carry the field: A and C at the top of the envelope, B in
// the payload.
//
// The zero value signs nothing, and ignores signatures.
type Signing struct {
	Secret   string // RELAY_SECRET
	Unsigned bool   // take envelopes without a signature, of programs that do not have the secret
}

// sigField is the field of an envelope and of a peer payload that holds the signature.
const sigField = "sig"

// peerSig is the metadata field that keeps the signature of the peer payload that an
// envelope was made of.
const peerSig = "peer_sig"

// Sealed is an envelope and its one encoding: what inboxes get and what waits on disk.
type Sealed struct {
	Envelope
	Raw []byte // by [Signing.Encode]
}

// Seal encodes e, and reports why it would be refused by who gets it, with the [*Error] that
// [Decode] there has. The mailbox's own acknowledgements are not held against that.
func (s Signing) Seal(e Envelope) (Sealed, error) {
	raw, err := s.Encode(e)
	if err == nil && e.Type != TypeAck && e.Type != TypeNack {
		_, err = Decode(raw)
	}
	return Sealed{e, raw}, err
}

// CheckSize refuses more than [MaxEnvelope] bytes.
func (m Sealed) CheckSize() error {
	if len(m.Raw) > MaxEnvelope {
		return tooLarge(len(m.Raw))
	}
	return nil
}

// Encode is [Encode], with a signature.
func (s Signing) Encode(e Envelope) ([]byte, error) {
	line, err := Encode(e)
	if err != nil || s.Secret == "" {
		return line, err
	}
	if line, err = relay.Sign(line, s.Secret); err != nil {
		return nil, Invalid("", "cannot be signed: its data must have a form in RFC 8785, "+
			"without a field twice and without numbers that no double holds: write those as texts")
	}
	if len(line) > MaxEnvelope {
		return nil, tooLarge(len(line))
	}
	return line, nil
}

// Decode is [Decode], and verifies the signature. sig is what copies of a signed envelope
// have in common, in lower case: its signature, or that of the peer payload that it was
// made of. It is "" for one that is not signed. The code of a signature that is missing or
// wrong is [BadSignature].
func (s Signing) Decode(raw []byte) (e Envelope, sig string, err error) {
	if s.Secret == "" {
		e, err = Decode(raw)
		return e, "", err
	}
	var in object
	if e, err = decode(raw, false, func(all object) { in = all }); in == nil {
		return e, "", err
	}
	if !s.Unsigned || !isNull(in[sigField]) {
		if err := relay.Verify(raw, s.Secret); err != nil {
			return e.head(), "", &Error{BadSignature, sigField, err.Error()}
		}
		sig = strings.ToLower(asText(in[sigField]))
	}
	if first := asText(e.Metadata.Extra[peerSig]); sig != "" && len(first) == len(sig) {
		sig = first
	}
	return e, sig, err
}

// EncodePeer is [EncodePeer], with a signature.
func (s Signing) EncodePeer(p Peer) ([]byte, error) {
	line, err := EncodePeer(p)
	if err != nil || s.Secret == "" {
		return line, err
	}
	return relay.Sign(line, s.Secret)
}

// FromPeer returns a payload that came for a goal, and that [DecodePeer] read as p, as an
// encoded envelope: with a signature where the payload has a right one, with a wrong one
// where it has a wrong one, and without one where it has none. The id of a signed payload
// is made of its signature, and the envelope keeps it: a copy has the same, also one for
// another goal, which the payload does not name.
func (s Signing) FromPeer(payload []byte, p Peer, goal string) (Envelope, []byte, error) {
	in, _ := asObject(payload)
	e := p.Envelope(goal)
	unsigned := s.Secret == "" || isNull(in[sigField])
	if !unsigned && relay.Verify(payload, s.Secret) == nil {
		sig := strings.ToLower(asText(in[sigField]))
		if p.ID == "" {
			e.ID = fmt.Sprintf("msg_%d_%s_%s", p.SentAt.UnixMilli(), p.FromAgentID, sig[:16])
		}
		if e.Metadata.Extra == nil {
			e.Metadata.Extra = object{}
		}
		e.Metadata.Extra[peerSig] = text(sig)
		raw, err := s.Encode(e)
		return e, raw, err
	}
	raw, err := Encode(e)
	if err != nil || unsigned {
		return e, raw, err
	}
	raw, err = appendFields(raw, object{sigField: json.RawMessage(`""`)}, func(string) bool { return false })
	return e, raw, err
}
