package relay

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzPlain checks that encoding/json reads and writes what is read and written without it.
func FuzzPlain(f *testing.F) {
	for _, line := range []string{
		`{"relay_msg_id":"om_1","channel":"feishu","chat_id":"oc_1","content":"hi","sender_bot_open_id":"ou_1","sender_agent_name":"a",` +
			`"metadata":{"chat_type":"group","final_ts":1795211093000,"a\u0041":null,"n":true},"message_id":"om_1","ts":1795211093000,` +
			`"sender_app_id":"cli_1","sender_name":"A","mentions":[{"agent_name":"b","name":"B \"b\"","open_id":"ou_2","key":"@_user_1"},{}],` +
			`"msg_type":"text","parent_id":"om_0","root_id":"om_0","thread_id":"t","seq":17,"user_ts":1795211092000,"role":"user",` +
			`"sender_id":"ou_3","sig":"00"}`,
		`{"relay_msg_id":"x","metadata":{},"metadata":{"a":1},"seq":5,"seq":0,"mentions":[]}`,
		`{"content":"\ud83d\ude00\ud83d\u2028\/\b\u0000\n","chat_id":"interactive","Content":"y"}`,
		`{"metadata":null,"ts":1795211093}`, `{"metadata":{"a":[1, 2]}}`, `{}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var want Message
		err := json.Unmarshal(line, &want)
		if got, ok := decodePlain(line); ok && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("got %+v, want %+v, %v", got, want, err)
		}
		if err != nil {
			return
		}
		got, err := want.marshal()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Marshal(&want); err != nil || !bytes.Equal(got, again) {
			t.Fatalf("got  %s\nwant %s, %v", got, again, err)
		}
	})
}
