package mailbox_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// The signatures were made with another program: HMAC over the sorted, compact JSON.
const (
	signedMail = `{"id":"m1","from":"writer","to":"coder","timestamp":"2026-04-26T10:00:00.000Z","type":"message",` +
		`"priority":3,"ttl":3,"trace":["writer"],` +
		`"content":{"parts":[{"type":"text","text":"你好 <b> & \"you\""}]},"reply_to":null,` +
		`"metadata":{"correlationId":null,"requiresAck":false,"retryCount":0,"tags":[]},"sig":"` + mailSig + `"}`
	mailSig    = "33f4e07148edcaa16285d6aaf4877c04887b69563576b7ca945783fd44900b18"
	signedPeer = `{"from_agent_id":"nano","from_goal_id":"550e8400-e29b-41d4-a716-446655440000",` +
		`"to_agent_id":"coder","body":"ready","sent_at":"2026-04-30T14:00:00Z",` +
		`"sig":"d664abd43a200680b8bcd4bf99c27b13c4a7397c079865fb1dcc7aeecb864b9a"}`
)

var signing = mailbox.Signing{Secret: "s3cret"}

func TestSignatureMatchesOtherPrograms(t *testing.T) {
	e := hello()
	e.Content.Parts[0].Text = `你好 <b> & "you"`
	got, err := signing.Encode(e)
	if err != nil || string(got) != signedMail {
		t.Errorf("encoded as\n%s %v\nwant\n%s", got, err, signedMail)
	}
	if err := mailbox.Check(mailbox.EnvelopeSchema, got); err != nil {
		t.Errorf("a signed envelope is not as its schema says: %v", err)
	}
}

// The envelope of each make can carry the field, and a program that formats it
// otherwise, or knows more fields, keeps the signature right.
func TestEachMakeCarriesASignature(t *testing.T) {
	for name, raw := range map[string]string{"ours": ours, "file": fileMail, "protocol": protocolMail} {
		var fields map[string]any
		if err := json.Unmarshal([]byte(raw), &fields); err != nil {
			t.Fatal(err)
		}
		want, err := mailbox.Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(fields) // in order of names, with < as \u003c
		if err != nil {
			t.Fatal(err)
		}
		if line, err = relay.Sign(line, signing.Secret); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		pretty, err := json.MarshalIndent(fields, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range [][]byte{line, pretty} {
			e, err := signing.Decode(raw)
			if err != nil || e.ID != want.ID || e.Text() != want.Text() {
				t.Errorf("%s: read as %+v, %v", name, e, err)
			}
			if e, err := mailbox.Decode(raw); err != nil || e.ID != want.ID {
				t.Errorf("%s: without a secret it is read as %+v, %v", name, e, err)
			}
		}
	}
}

func TestBadSignatures(t *testing.T) {
	unsigned := strings.Replace(signedMail, `,"sig":"`+mailSig+`"`, "", 1)
	for name, tt := range map[string]struct {
		raw   string
		taken bool
	}{
		"capitals":       {strings.Replace(signedMail, mailSig, strings.ToUpper(mailSig), 1), true},
		"signed":         {signedMail, true},
		"unsigned":       {unsigned, false},
		"null":           {strings.Replace(signedMail, `"`+mailSig+`"`, "null", 1), false},
		"empty":          {strings.Replace(signedMail, mailSig, "", 1), false},
		"wrong":          {strings.Replace(signedMail, mailSig, strings.Repeat("0", 64), 1), false},
		"short":          {strings.Replace(signedMail, mailSig, mailSig[:62], 1), false},
		"a number":       {strings.Replace(signedMail, `"`+mailSig+`"`, "7", 1), false},
		"another text":   {strings.Replace(signedMail, "你好", "你们", 1), false},
		"another field":  {strings.Replace(signedMail, `"ttl":3`, `"ttl":2`, 1), false},
		"one field more": {strings.Replace(signedMail, `{"id"`, `{"x":1,"id"`, 1), false},
		"a field twice":  {strings.Replace(signedMail, `{"id"`, `{"to":"other","id"`, 1), false},
		"a field inside": {strings.Replace(signedMail, `"tags":[]`, `"tags":[],"ttl":0`, 1), false},
		"two signatures": {strings.Replace(signedMail, `{"id"`, `{"sig":"x","id"`, 1), false},
	} {
		for s, taken := range map[mailbox.Signing]bool{signing: tt.taken, {}: true} {
			e, err := s.Decode([]byte(tt.raw))
			if (err == nil) != taken || e.ID != "m1" {
				t.Errorf("%s, with the secret %q: read as %q, %v", name, s.Secret, e.ID, err)
			}
			if no, ok := errors.AsType[*mailbox.Error](err); err != nil && (!ok || no.Code != mailbox.BadSignature) {
				t.Errorf("%s is refused with %v", name, err)
			}
		}
	}
	for name, raw := range map[string]string{
		"no JSON": "{", "a list": "[]", "too deep": strings.Repeat("[", 100), "nothing": "",
	} {
		_, err := signing.Decode([]byte(raw))
		if no, ok := errors.AsType[*mailbox.Error](err); !ok || no.Code != mailbox.InvalidMessage {
			t.Errorf("%s is refused with %v, want as no envelope", name, err)
		}
	}
}

// What has no canonical form, or is too large with its signature, is refused where it
// is sent.
func TestCannotBeSigned(t *testing.T) {
	for _, text := range []string{`1e999`, `12345678901234567891`, `{"a":1,"a":2}`, `"\ud800"`} {
		e := hello()
		e.Content.Parts = append(e.Content.Parts, data(text))
		if _, err := mailbox.Encode(e); err != nil {
			t.Fatal(err)
		}
		_, err := signing.Encode(e)
		refused(t, err, "", "cannot be signed")
	}
	e := hello()
	e.Content.Parts = append(e.Content.Parts, data(`""`))
	line, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	e.Content.Parts[1] = data(`"` + strings.Repeat("x", mailbox.MaxEnvelope-len(line)) + `"`)
	if _, err := mailbox.Encode(e); err != nil {
		t.Fatal(err)
	}
	_, err = signing.Encode(e)
	refused(t, err, "", "at most 1048576")
}

// What comes on a peer channel keeps its signature's verdict on the way to the inbox.
func TestSignedPeerMessages(t *testing.T) {
	sig := signedPeer[strings.LastIndex(signedPeer, `,"sig"`):]
	for name, tt := range map[string]struct {
		payload string
		taken   bool
	}{
		"signed":   {signedPeer, true},
		"unsigned": {strings.Replace(signedPeer, sig, "}", 1), false},
		"wrong":    {strings.Replace(signedPeer, `"ready"`, `"steady"`, 1), false},
		"empty":    {strings.Replace(signedPeer, sig, `,"sig":""}`, 1), false},
	} {
		for s, taken := range map[mailbox.Signing]bool{signing: tt.taken, {}: true} {
			e, _, err := s.FromPeer([]byte(tt.payload), "g")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Decode(e.Raw); (err == nil) != taken {
				t.Errorf("%s, with the secret %q: %v", name, s.Secret, err)
			}
			again, _, err := s.FromPeer([]byte(tt.payload), "another goal")
			if err != nil || (e.ID == again.ID) != (tt.taken && s.Secret != "") {
				t.Errorf("%s: a copy has the id %s, the first one %s", name, again.ID, e.ID)
			}
		}
	}
}
