package sidecar_test

import (
	"feishu-relay/internal/browsertest"
	"testing"
)

func viewLivelyGroup(t *testing.T, browser *browsertest.Browser) { t.Skip() }
