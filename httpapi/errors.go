package httpapi

import (
	"cmp"
	"errors"
	"net/http"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// Codes of what the API refuses by itself.
const (
	codeUnauthorized       relay.Code = "unauthorized"
	codeTooManyFailures    relay.Code = "too_many_failures"
	codeForbiddenHost      relay.Code = "forbidden_host"
	codeCrossOrigin        relay.Code = "cross_origin"
	codeNotFound           relay.Code = "not_found"
	codeMethodNotAllowed   relay.Code = "method_not_allowed"
	codeUpgradeRequired    relay.Code = "upgrade_required"
	codeGone               relay.Code = "gone"
	codeNotReady           relay.Code = "not_ready"
	codeStopping           relay.Code = "stopping"
	codeTooManyWatchers    relay.Code = "too_many_watchers"
	codeTooManyLines       relay.Code = "too_many_lines"
	codeOtherDoor          relay.Code = "other_door"
	codeNoConnector        relay.Code = "no_connector"
	codeNoCA               relay.Code = "no_ca"
	codeMailboxOff         relay.Code = "mailbox_off"
	codeMailboxUnavailable relay.Code = "mailbox_unavailable"
	codeInboxFull          relay.Code = "inbox_full"
	codeInternal           relay.Code = "internal"
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

	codeUnauthorized:       http.StatusUnauthorized,
	codeTooManyFailures:    http.StatusTooManyRequests,
	codeForbiddenHost:      http.StatusForbidden,
	codeCrossOrigin:        http.StatusForbidden,
	codeNotFound:           http.StatusNotFound,
	codeMethodNotAllowed:   http.StatusMethodNotAllowed,
	codeUpgradeRequired:    http.StatusUpgradeRequired,
	codeGone:               http.StatusGone,
	codeNotReady:           http.StatusServiceUnavailable,
	codeStopping:           http.StatusServiceUnavailable,
	codeTooManyWatchers:    http.StatusServiceUnavailable,
	codeTooManyLines:       http.StatusServiceUnavailable,
	codeOtherDoor:          http.StatusConflict,
	codeNoConnector:        http.StatusConflict,
	codeNoCA:               http.StatusNotFound,
	codeMailboxOff:         http.StatusNotFound,
	codeMailboxUnavailable: http.StatusServiceUnavailable,
	codeInboxFull:          http.StatusInsufficientStorage,
	codeInternal:           http.StatusInternalServerError,

	relay.Code(mailbox.AgentBusy):      http.StatusTooManyRequests,
	relay.Code(mailbox.AgentOffline):   http.StatusServiceUnavailable,
	relay.Code(mailbox.InvalidMessage): http.StatusBadRequest,
	relay.Code(mailbox.TaskNotFound):   http.StatusNotFound,
	relay.Code(mailbox.Unauthorized):   http.StatusForbidden,
	relay.Code(mailbox.RateLimited):    http.StatusTooManyRequests,
}

// statusOf is the HTTP status of code: 500 for one that is not in the table.
func statusOf(code relay.Code) int {
	return cmp.Or(statuses[code], http.StatusInternalServerError)
}

// invalid is the answer to a request that is not as it should be.
func invalid(format string, args ...any) error {
	return relay.Errorf(relay.CodeInvalidRequest, format, args...)
}

// errorBody is the form of every answer that is no success.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code    relay.Code `json:"code"`
	Message string     `json:"message"`
	Field   string     `json:"field,omitempty"` // of the request; mailbox routes only
}

// writeError answers a [*relay.Error] as it is; of any other error the caller
// learns only that there was one.
func writeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*relay.Error](err)
	if !ok {
		e = &relay.Error{Code: codeInternal, Message: "see the sidecar's log"}
	}
	writeJSON(w, statusOf(e.Code), errorBody{errorDetail{Code: e.Code, Message: e.Message}})
}

// fail answers err, and logs what the caller is not told.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if _, ok := errors.AsType[*relay.Error](err); !ok && r.Context().Err() == nil {
		a.Logger.Error("request failed", "route", r.Pattern, "err", err)
	}
	writeError(w, err)
}
