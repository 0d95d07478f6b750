package dedup_test

import (
	"errors"
	"fmt"

	"feishu-relay/dedup"
)

// A message whose delivery fails is not lost when it comes again, and one that
// was delivered is not delivered twice.
func Example() {
	w := dedup.Memory(0)
	attempts := []error{errors.New("the bot is away"), nil, nil}
	for _, result := range attempts {
		switch w.Claim("om_1") {
		case dedup.Done:
			fmt.Println("was delivered before")
		case dedup.Pending:
			fmt.Println("being handled")
		case dedup.New:
			fmt.Println("deliver:", result)
			if err := w.Settle("om_1", result == nil); err != nil {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// deliver: the bot is away
	// deliver: <nil>
	// was delivered before
}
