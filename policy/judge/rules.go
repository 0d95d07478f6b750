package judge

import (
	"context"
	"feishu-relay/policy"
)

type Rules struct{}

func (Rules) Judge(ctx context.Context, q policy.Question) (bool, error) { return true, nil }
