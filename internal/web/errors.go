package web

import (
	"cmp"
	"math"
	"net/http"
	"strconv"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// Codes of refusals by the APIs themselves.
var (
	CodeUnauthorized       = code("unauthorized", http.StatusUnauthorized)
	CodeTooManyFailures    = code("too_many_failures", http.StatusTooManyRequests)
	CodeAdminToken         = code("admin_token_required", http.StatusForbidden)
	CodeForbiddenHost      = code("forbidden_host", http.StatusForbidden)
	CodeCrossOrigin        = code("cross_origin", http.StatusForbidden)
	CodeNotFound           = code("not_found", http.StatusNotFound)
	CodeMethodNotAllowed   = code("method_not_allowed", http.StatusMethodNotAllowed)
	CodeUpgradeRequired    = code("upgrade_required", http.StatusUpgradeRequired)
	CodeGone               = code("gone", http.StatusGone)
	CodeNotReady           = code("not_ready", http.StatusServiceUnavailable)
	CodeStopping           = code("stopping", http.StatusServiceUnavailable)
	CodeTooManyWatchers    = code("too_many_watchers", http.StatusServiceUnavailable)
	CodeOtherDoor          = code("other_door", http.StatusConflict)
	CodeNoConnector        = code("no_connector", http.StatusConflict)
	CodeNoCA               = code("no_ca", http.StatusNotFound)
	CodeMailboxOff         = code("mailbox_off", http.StatusNotFound)
	CodeMailboxUnavailable = code("mailbox_unavailable", http.StatusServiceUnavailable)
	CodeInboxFull          = code("inbox_full", http.StatusInsufficientStorage)
	CodeInternal           = code("internal", http.StatusInternalServerError)
)

func code(c relay.Code, status int) relay.Code {
	statuses[c] = status
	return c
}

// statuses is the HTTP status of each code.
var statuses = map[relay.Code]int{
	relay.CodeInvalidRequest:        http.StatusBadRequest,
	relay.CodeTooLarge:              http.StatusRequestEntityTooLarge,
	relay.CodeTranscriptUnavailable: http.StatusServiceUnavailable,
	relay.CodeOutboxFull:            http.StatusInsufficientStorage,
	relay.CodeOutboxUnavailable:     http.StatusServiceUnavailable,
	relay.CodeFeishuUnavailable:     http.StatusBadGateway,
	relay.CodeFeishuRefused:         http.StatusBadGateway,
	relay.CodeUnknownMessage:        http.StatusNotFound,
	relay.CodeSettled:               http.StatusConflict,
	relay.CodeUnknownFile:           http.StatusNotFound,
	relay.CodeRecalled:              http.StatusGone,
	relay.CodeNoCredentials:         http.StatusServiceUnavailable,
	relay.CodeUnknownGroup:          http.StatusNotFound,
	relay.CodeLocked:                http.StatusForbidden,
	relay.CodeConflict:              http.StatusConflict,

	relay.Code(mailbox.AgentBusy):      http.StatusTooManyRequests,
	relay.Code(mailbox.AgentOffline):   http.StatusServiceUnavailable,
	relay.Code(mailbox.InvalidMessage): http.StatusBadRequest,
	relay.Code(mailbox.TaskNotFound):   http.StatusNotFound,
	relay.Code(mailbox.Unauthorized):   http.StatusForbidden,
	relay.Code(mailbox.RateLimited):    http.StatusTooManyRequests,
}

// WriteError answers with e.
func WriteError(w http.ResponseWriter, e *relay.Error) {
	type detail struct {
		Code    relay.Code `json:"code"`
		Message string     `json:"message"`
		Field   string     `json:"field,omitempty"`
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	status := cmp.Or(e.Status, statuses[e.Code], http.StatusInternalServerError)
	WriteJSON(w, status, map[string]detail{"error": {e.Code, e.Message, e.Field}})
}
