package feishusim

import (
	"fmt"
	"net/http"
	"strings"
)

// apiError is an answer with a code. Feishu gives most of them HTTP 400
// (docs/feishu.md 5 and 6).
type apiError struct {
	status int
	code   int
	msg    string
	scopes []string // of a missing permission
}

func (e *apiError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.msg) }

func failure(code int, msg string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: code, msg: msg}
}

// Codes and texts of docs/feishu.md 6.2.
var (
	errNoToken = failure(99991661,
		"Missing access token for authorization. Please make a request with token attached.")
	errBadToken = failure(99991663,
		"Invalid access token for authorization. Please make a request with token attached.")
	errUserToken = failure(99991668,
		"Invalid access token for authorization. Please make a request with token attached.")
	errTokenShape = failure(99991671, "Invalid access token for authorization. Token must start with t- or u-.")
	errField      = failure(99992402, "field validation failed")
	errNoMessages = failure(99992354, "message id not found")
	errNotFound   = &apiError{status: http.StatusNotFound, code: 99991201, msg: "resource not find"}
	errContent    = failure(230001,
		"Your request contains an invalid request parameter, ext=content is not a string in json format or does not fit msg_type.")
	errMessageID   = failure(230001, "Your request contains an invalid request parameter, ext=invalid message_id")
	errReceiveType = failure(230001, "Your request contains an invalid request parameter, ext=invalid receive_id_type")
	errReceiver    = failure(230001, "Your request contains an invalid request parameter, ext=invalid receive_id")
	errUUID        = failure(230001, "Your request contains an invalid request parameter, ext=uuid is longer than 50")
	errNotInChat   = failure(230002, "Bot/User can NOT be out of the chat.")
	errRecalled    = failure(230011, "The message was withdrawn.")
	errNotOwner    = failure(230017, "Bot is NOT the owner of the resource.")
	errFrequency   = failure(230020, "This operation triggers the frequency limit.")
	errTooLong     = failure(230025, "The length of the message content reaches its limit.")
	errNoRecall    = failure(230026, "No permission to recall this message.")
	errHistory     = failure(230027, "Lack of necessary permissions, ext=need scope: im:message.group_msg")
	errUnsupported = failure(230054, "This operation is not supported for this message type.")
	errEdits       = failure(230072, "The message has reached the number of times it can be edited.")
	errReplyGone   = failure(231003, "The message to reply is not found.")
	errReaction    = failure(231001, "reaction type is invalid.")
	errNoReaction  = failure(231007, "No permission to delete this reaction.")
	errNoChat      = failure(232006, "Your request specifies a chat_id which is invalid.")
	errOutside     = failure(232011, "Operator can NOT be out of the chat.")
	errGone        = failure(232009, "Your request specifies a chat which has already been dissolved.")
	errFile        = failure(234003, "File not in msg.")
	errFileSize    = failure(234006, "The file size exceed the max value.")
	errFileBig     = failure(234037, "Downloaded file size exceeds limit.")
	errFileType    = failure(234043, "Unsupported message type.")
	errNoFile      = failure(234001, "Invalid request param.")
	errUserID      = failure(41012, "user id invalid error")
	errCardContent = failure(11310, "card content is not valid")
	errDuplicate   = failure(300301, "element_id is duplicated")
	errCardTwice   = cardError(11310, "cardid has been sent")
	errNoCard      = failure(200740, "card entity does not exist")
	errCardBig     = failure(200860, "card is too big")
	errElement     = failure(300120, "element does not exist")
	errNoUpdate    = cardError(300302, "config.update_multi is false")
	errSchema      = failure(300303, "only schema 2.0 is supported")
	errStreamOver  = failure(200850, "card streaming timeout")
	errStreamOff   = failure(300309, "streaming mode is closed")
	errCardApp     = failure(300311, "the card belongs to another app")
	errSequence    = failure(300317, "sequence number compare failed")
)

// cardError returns an error of a card as the message API reports it.
func cardError(code int, msg string) *apiError {
	return failure(230099, fmt.Sprintf("Failed to create card content, ext=ErrCode: %d; ErrMsg: %s; ", code, msg))
}

func scopeError(app string, scopes []string) *apiError {
	list := strings.Join(scopes, ", ")
	return &apiError{
		status: http.StatusBadRequest, code: 99991672, scopes: scopes,
		msg: fmt.Sprintf("Access denied. One of the following scopes is required: [%s]. %s", list, authURL(app, scopes)),
	}
}

func authURL(app string, scopes []string) string {
	return "https://open.feishu.cn/app/" + app + "/auth?q=" + strings.Join(scopes, ",") +
		"&op_from=openapi&token_type=tenant"
}

// body is the JSON of the answer.
func (e *apiError) body(app, logID string) map[string]any {
	detail := map[string]any{"log_id": logID}
	if e.scopes != nil {
		var violations []map[string]string
		for _, scope := range e.scopes {
			violations = append(violations, map[string]string{"type": "action_privilege_required", "subject": scope,
				"description": ""})
		}
		detail["permission_violations"] = violations
		detail["helps"] = []map[string]string{{"url": authURL(app, e.scopes), "description": "apply for the scopes"}}
	}
	return map[string]any{"code": e.code, "msg": e.msg, "data": map[string]any{}, "error": detail}
}
