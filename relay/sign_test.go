package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"feishu-relay/relay"
)

const secret = "s3cret"

// vector and vectorSig were made with other programs (HMAC over the sorted,
// compact JSON), so that both sides being wrong alike does not pass.
const (
	vector = `{"relay_msg_id":"om_1","channel":"feishu","chat_id":"oc_x","content":"hello <at id=ou_b></at> & \"you\"",` +
		`"sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","metadata":{"chat_type":"group","n":1.5,"list":[true,null,3]},` +
		`"ts":1795211093522,"seq":17}`
	vectorSig = "2e1d8a50a082091ce6a1fff920c894a63496198cd705eff9cfeda5e627b03bed"
)

func sign(t *testing.T, line string) string {
	t.Helper()
	signed, err := relay.Sign([]byte(line), secret)
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

func TestSignMatchesOtherPrograms(t *testing.T) {
	want := strings.TrimSuffix(vector, "}") + `,"sig":"` + vectorSig + `"}`
	if got := sign(t, vector); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestVerify(t *testing.T) {
	signed := sign(t, vector)
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(signed))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	reordered, err := json.MarshalIndent(fields, "", "  ") // sorted, spaced, with <> escaped
	if err != nil {
		t.Fatal(err)
	}
	withUnknown := sign(t, strings.TrimSuffix(vector, "}")+`,"later":{"b":1,"a":[2]}}`)

	for name, line := range map[string]string{
		"as it was signed":                           signed,
		"with its newline":                           signed + "\n",
		"key order, space and escapes do not matter": string(reordered),
		"with fields that we do not know":            withUnknown,
		"with a field of that name inside":           sign(t, strings.Replace(vector, `"n":1.5`, `"sig":"x"`, 1)),
		"zeros at the end of a number":               strings.Replace(signed, `"n":1.5`, `"n":1.500`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := relay.Verify([]byte(line), secret); err != nil {
				t.Error(err)
			}
		})
	}
	for name, line := range map[string]string{
		"not signed":                         vector,
		"an empty signature":                 strings.Replace(signed, vectorSig, "", 1),
		"a signature of another type":        strings.Replace(signed, `"`+vectorSig+`"`, "7", 1),
		"a signature that is no hex":         strings.Replace(signed, vectorSig, "zz"+vectorSig[2:], 1),
		"a cut signature":                    strings.Replace(signed, vectorSig, vectorSig[:32], 1),
		"another text":                       strings.Replace(signed, "hello", "hullo", 1),
		"another sender":                     strings.Replace(signed, "agent_a", "agent_b", 1),
		"changed metadata":                   strings.Replace(signed, "null", "0", 1),
		"a field added":                      strings.Replace(signed, `"seq"`, `"role":"user","seq"`, 1),
		"a field that we do not know, added": strings.Replace(signed, `"seq"`, `"later":1,"seq"`, 1),
		"a field that we do not know, taken": strings.Replace(withUnknown, `,"later":{"b":1,"a":[2]}`, "", 1),
		"a field said twice":                 strings.Replace(signed, `"channel"`, `"metadata":{"evil":1},"channel"`, 1),
		"the same, in other letters":         strings.Replace(signed, `"channel"`, `"Metadata":{"evil":1},"channel"`, 1),
		"an inner field said twice":          strings.Replace(signed, `"n":1.5`, `"n":2,"n":1.5`, 1),
		"a signature said twice":             strings.Replace(signed, `"channel"`, `"sig":"x","channel"`, 1),
		"not UTF-8":                          strings.Replace(signed, "hello", "hell\xff", 1),
		"half a surrogate":                   strings.Replace(signed, "hello", `\ud800`, 1),
		"a torn line":                        signed[:len(signed)-1],
		"more after it":                      signed + "{}",
		"a number with another exponent":     strings.Replace(signed, `"n":1.5`, `"n":15e-1`, 1),
		"an array":                           "[" + signed + "]",
		"null":                               "null",
		"nothing":                            "",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			err := relay.Verify([]byte(line), secret)
			if !errors.Is(err, relay.ErrBadSignature) {
				t.Fatalf("got %v, want ErrBadSignature", err)
			}
			if strings.Contains(err.Error(), vectorSig) || strings.Contains(err.Error(), "hello") {
				t.Errorf("the error tells too much: %v", err)
			}
		})
	}
	t.Run("refuses another secret", func(t *testing.T) {
		if err := relay.Verify([]byte(signed), secret+"!"); !errors.Is(err, relay.ErrBadSignature) {
			t.Errorf("got %v, want ErrBadSignature", err)
		}
	})
}

// A number has one value for all readers, also for those that keep all of its digits: one
// that the canonical form rounds is neither signed nor taken.
func TestNumbersThatTheCanonicalFormRounds(t *testing.T) {
	for number, rounded := range map[string]string{
		"9007199254740993":     "9007199254740992",
		"-9007199254740993":    "-9007199254740992",
		"0.10000000000000001":  "0.1",
		"1e-400":               "0",
		"1e-99999999999999999": "-0",
		"1.23e-322":            "1.24e-322",
	} {
		line := func(n string) string { return `{"list":[{"e\"1":"0.10000000000000001","n":` + n + `}],"x":1}` }
		if signed, err := relay.Sign([]byte(line(number)), secret); err == nil {
			t.Errorf("signed %s", signed)
		}
		signed := sign(t, line(rounded))
		if err := relay.Verify([]byte(signed), secret); err != nil {
			t.Errorf("%s is refused: %v", rounded, err)
		}
		changed := strings.Replace(signed, `"n":`+rounded, `"n":`+number, 1)
		if err := relay.Verify([]byte(changed), secret); changed == signed || !errors.Is(err, relay.ErrBadSignature) {
			t.Errorf("%s for %s: got %v, want ErrBadSignature", number, rounded, err)
		}
	}
	for _, number := range []string{"12345678901234567891", "9007199254740994", "1e21"} {
		if signed, err := relay.Sign([]byte(`{"n":`+number+`}`), secret); err == nil {
			t.Errorf("signed %s", signed)
		}
	}
	for _, number := range []string{"0", "-0", "9007199254740991", "0.1", "1.50", "100", "5e-324", "1795211093522",
		"0.000001", "0.30000000000000004"} {
		signed := sign(t, `{"n":`+number+`}`)
		if err := relay.Verify([]byte(signed), secret); err != nil {
			t.Errorf("%s is refused: %v", number, err)
		}
	}
}

func TestSignRefusesWhatHasNoCanonicalForm(t *testing.T) {
	for _, line := range []string{"", "{", `{"n":1e999}`} {
		if signed, err := relay.Sign([]byte(line), secret); err == nil {
			t.Errorf("%q: got %q, want an error", line, signed)
		}
	}
}

// Nobody without the secret can change what is verified: whatever passes
// decodes to what was signed.
func FuzzVerify(f *testing.F) {
	signed, err := relay.Sign([]byte(vector), secret)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add([]byte(strings.Replace(string(signed), `"seq":17`, `"Seq":18,"seq":17`, 1)))
	f.Add([]byte(`{"sig":"` + vectorSig + `"}`))
	f.Add([]byte("{\"sig\":\"\xff\"}"))
	want, err := relay.Decode(signed)
	if err != nil {
		f.Fatal(err)
	}
	wantLine, _ := want.Encode()
	f.Fuzz(func(t *testing.T, line []byte) {
		err := relay.Verify(line, secret)
		if err != nil {
			if !errors.Is(err, relay.ErrBadSignature) {
				t.Errorf("%v does not wrap ErrBadSignature", err)
			}
			return
		}
		got, err := relay.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		// Metadata may be written differently, and mean the same.
		got.Metadata, want.Metadata = nil, nil
		gotLine, _ := got.Encode()
		wantLine, _ = want.Encode()
		if !bytes.Equal(gotLine, wantLine) {
			t.Errorf("verified and changed: %s", gotLine)
		}
	})
}
