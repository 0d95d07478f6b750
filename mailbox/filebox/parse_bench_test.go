package filebox_test

import (
	"fmt"
	"strings"
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

func BenchmarkParse(b *testing.B) {
	var many strings.Builder
	for i := range 1000 {
		raw, _ := mailbox.EncodeCard(mailboxtest.Card("x", i), nil)
		fmt.Fprintf(&many, `,"a%d":%s`, i, raw)
	}
	data := []byte("{" + many.String()[1:] + "}")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		filebox.Reformat(data)
	}
}
