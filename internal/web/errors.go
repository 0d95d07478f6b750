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
const (
	CodeUnauthorized       relay.Code = "unauthorized"
	CodeTooManyFailures    relay.Code = "too_many_failures"
	CodeAdminToken         relay.Code = "admin_token_required"
	CodeForbiddenHost      relay.Code = "forbidden_host"
	CodeCrossOrigin        relay.Code = "cross_origin"
	CodeNotFound           relay.Code = "not_found"
	CodeMethodNotAllowed   relay.Code = "method_not_allowed"
	CodeUpgradeRequired    relay.Code = "upgrade_required"
	CodeGone               relay.Code = "gone"
	CodeNotReady           relay.Code = "not_ready"
	CodeStopping           relay.Code = "stopping"
	CodeTooManyWatchers    relay.Code = "too_many_watchers"
	CodeTooManyLines       relay.Code = "too_many_lines"
	CodeOtherDoor          relay.Code = "other_door"
	CodeNoConnector        relay.Code = "no_connector"
	CodeNoCA               relay.Code = "no_ca"
	CodeMailboxOff         relay.Code = "mailbox_off"
	CodeMailboxUnavailable relay.Code = "mailbox_unavailable"
	CodeInboxFull          relay.Code = "inbox_full"
	CodeInternal           relay.Code = "internal"
)

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

	CodeUnauthorized:       http.StatusUnauthorized,
	CodeTooManyFailures:    http.StatusTooManyRequests,
	CodeAdminToken:         http.StatusForbidden,
	CodeForbiddenHost:      http.StatusForbidden,
	CodeCrossOrigin:        http.StatusForbidden,
	CodeNotFound:           http.StatusNotFound,
	CodeMethodNotAllowed:   http.StatusMethodNotAllowed,
	CodeUpgradeRequired:    http.StatusUpgradeRequired,
	CodeGone:               http.StatusGone,
	CodeNotReady:           http.StatusServiceUnavailable,
	CodeStopping:           http.StatusServiceUnavailable,
	CodeTooManyWatchers:    http.StatusServiceUnavailable,
	CodeTooManyLines:       http.StatusServiceUnavailable,
	CodeOtherDoor:          http.StatusConflict,
	CodeNoConnector:        http.StatusConflict,
	CodeNoCA:               http.StatusNotFound,
	CodeMailboxOff:         http.StatusNotFound,
	CodeMailboxUnavailable: http.StatusServiceUnavailable,
	CodeInboxFull:          http.StatusInsufficientStorage,
	CodeInternal:           http.StatusInternalServerError,

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
