package transcript

import (
	"feishu-relay/internal/plainjson"
)

// view is a line of our own form, cut into its fields and not copied.
type view struct {
	role, content, sender, messageID plainjson.Text
	senderName, threadID, parentID   plainjson.Text
	rootID, msgType, partOf, editOf  plainjson.Text
	ts, userTS                       int64
}

// scan cuts a flat object without spaces, of known keys, strings and whole
// numbers, and refuses all else.
func scan(line []byte) (v view, ok bool) {
	s := plainjson.Scan(line)
	if !s.Byte('{') {
		return v, false
	}
	for {
		key, ok := s.Key()
		if !ok {
			return v, false
		}
		switch string(key) {
		case "role":
			v.role, ok = s.Text()
		case "content":
			v.content, ok = s.Text()
		case "sender":
			v.sender, ok = s.Text()
		case "message_id":
			v.messageID, ok = s.Text()
		case "ts":
			v.ts, ok = s.Millis()
		case "sender_name":
			v.senderName, ok = s.Text()
		case "thread_id":
			v.threadID, ok = s.Text()
		case "parent_id":
			v.parentID, ok = s.Text()
		case "root_id":
			v.rootID, ok = s.Text()
		case "user_ts":
			v.userTS, ok = s.Millis()
		case "msg_type":
			v.msgType, ok = s.Text()
		case "part_of":
			v.partOf, ok = s.Text()
		case "edit_of":
			v.editOf, ok = s.Text()
		default:
			ok = false
		}
		if !ok {
			return v, false
		}
		if s.Byte(',') {
			continue
		}
		return v, s.Byte('}') && s.Done()
	}
}

// entry copies the line, once: the fields are parts of that copy.
func (v *view) entry(line []byte) (e Entry, ok bool) {
	e.TS, e.UserTS = v.ts, v.userTS
	whole := string(line)
	for _, f := range [...]struct {
		from *plainjson.Text
		to   *string
	}{
		{&v.role, &e.Role}, {&v.content, &e.Content}, {&v.sender, &e.Sender}, {&v.messageID, &e.MessageID},
		{&v.senderName, &e.SenderName}, {&v.threadID, &e.ThreadID}, {&v.parentID, &e.ParentID},
		{&v.rootID, &e.RootID}, {&v.msgType, &e.MsgType}, {&v.partOf, &e.PartOf}, {&v.editOf, &e.EditOf},
	} {
		switch {
		case len(f.from.Raw) == 0:
		case f.from.Plain:
			*f.to = whole[f.from.At : f.from.At+len(f.from.Raw)]
		default:
			if *f.to, ok = f.from.String(); !ok {
				return Entry{}, false
			}
		}
	}
	return e, true
}

// id returns the message_id of a whole and valid entry; false where that takes
// a closer look.
func (v *view) id() ([]byte, bool) {
	role := string(v.role.Raw)
	return v.messageID.Raw, v.messageID.Plain && (role == RoleUser || role == RoleAssistant)
}
