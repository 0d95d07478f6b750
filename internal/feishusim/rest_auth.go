package feishusim

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"time"
)

var authRoutes = []route{
	{pattern: "POST /open-apis/auth/v3/tenant_access_token/internal", open: true, run: tokenFor("tenant_access_token")},
	{pattern: "POST /open-apis/auth/v3/app_access_token/internal", open: true, run: tokenFor("app_access_token")},
	{pattern: "POST " + bootstrapPath, open: true, run: bootstrap},
}

// token is a tenant token of an app.
type token struct {
	app     string
	value   string
	expires time.Time
}

// tokenFor returns the app's token: the same one until less than a quarter of its
// lifetime is left (30 min of 2 h), then a new one; both are valid (docs/feishu.md 6.1).
func tokenFor(field string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		var in struct {
			ID     string `json:"app_id"`
			Secret string `json:"app_secret"`
		}
		if json.Unmarshal(c.body, &in) != nil || in.ID == "" {
			return nil, &apiError{status: http.StatusOK, code: 10003, msg: "invalid param"}
		}
		a := c.s.apps[in.ID]
		if a == nil {
			return nil, &apiError{status: http.StatusOK, code: 10014, msg: "app id not exists"}
		}
		if !a.is(in.Secret) {
			return nil, &apiError{status: http.StatusOK, code: 10014, msg: "app secret invalid"}
		}
		t := c.s.token(a)
		left := int(time.Until(t.expires).Round(time.Second).Seconds())
		return top{field: t.value, "tenant_access_token": t.value, "expire": left}, nil
	}
}

func (a *app) is(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(a.Secret), []byte(secret)) == 1
}

// token returns the app's token. The caller holds s.mu.
func (s *Server) token(a *app) *token {
	now := time.Now()
	var best *token
	for value, t := range s.tokens {
		switch {
		case now.After(t.expires):
			delete(s.tokens, value)
		case t.app == a.ID && (best == nil || t.expires.After(best.expires)):
			best = t
		}
	}
	if best == nil || best.expires.Sub(now) < tokenTTL/4 {
		best = &token{a.ID, newID("t-g104", 16), now.Add(tokenTTL)}
		s.tokens[best.value] = best
	}
	return best
}

// RevokeTokens makes all tokens of an app invalid, as a new secret would.
func (s *Server) RevokeTokens(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for value, t := range s.tokens {
		if t.app == app {
			delete(s.tokens, value)
		}
	}
}
