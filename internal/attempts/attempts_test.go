package attempts_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/attempts"
)

func TestFailuresAreCountedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := attempts.New()
		for i := range attempts.PerMinute {
			if wait := f.Count(fmt.Sprintf("192.0.2.1:%d", 1000+i)); wait != 0 {
				t.Fatalf("failure %d: wait for %d s, want none", i, wait)
			}
		}
		if wait := f.Count("192.0.2.1:1"); wait < 1 || wait > 60 {
			t.Errorf("one more: wait for %d s", wait)
		}
		for name, addr := range map[string]string{"another address": "192.0.2.2:1", "IPv6": "[2001:db8::1]:1", "no address": "pipe"} {
			if wait := f.Count(addr); wait != 0 {
				t.Errorf("%s: wait for %d s, want none", name, wait)
			}
		}
		for i := range attempts.PerMinute {
			f.Count(fmt.Sprintf("[2001:db8:0:1::%x]:1", i))
		}
		if f.Count("[2001:db8:0:1:ffff::1]:1") == 0 {
			t.Error("an IPv6 network has as many tries as it has addresses")
		}
		time.Sleep(time.Minute)
		if wait := f.Count("192.0.2.1:1"); wait != 0 {
			t.Errorf("a minute later: wait for %d s, want none", wait)
		}
	})
}

func TestNoMinuteHasMoreFailuresThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := attempts.New()
		var answered []time.Time
		for range 300 {
			if wait := f.Count("192.0.2.1:1"); wait == 0 {
				answered = append(answered, time.Now())
			} else if wait < 1 || wait > 60 {
				t.Fatalf("wait for %d s", wait)
			}
			time.Sleep(time.Second)
		}
		for i := attempts.PerMinute; i < len(answered); i++ {
			if d := answered[i].Sub(answered[i-attempts.PerMinute]); d < time.Minute {
				t.Errorf("%d failures are answered within %s", attempts.PerMinute+1, d)
			}
		}
		if len(answered) != 5*attempts.PerMinute {
			t.Errorf("in 5 minutes %d were answered", len(answered))
		}
	})
}
