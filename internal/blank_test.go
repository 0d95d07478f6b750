package internal

import (
	_ "github.com/chromedp/chromedp"
	_ "sigs.k8s.io/yaml"
)
