package feishusim

// maxForwarded is how many messages one merged forward holds.
const maxForwarded = 100

func forwardMessage(c *call, m *message, in *outgoing) (any, error) {
	return c.forward(in, draft{forwarded: m}, m.Type)
}

func forwardThread(c *call, in *outgoing) (any, error) {
	t := c.s.threads[c.r.PathValue("id")]
	if t == nil {
		return nil, errMessageID
	}
	if !c.s.chats[t.chat].has(c.app.ID) {
		return nil, errNotInChat
	}
	var parts []string
	for _, m := range c.s.sent {
		if m.ThreadID == t.id && len(parts) < maxForwarded {
			parts = append(parts, m.ID)
		}
	}
	return c.forward(in, draft{children: parts}, "merge_forward")
}

// merged is the content of a merged forward.
const merged = `{"content":"Merged and Forwarded Message"}`

func (c *call) forward(in *outgoing, d draft, msgType string) (_ any, err error) {
	if d.chat, d.thread, err = c.receiver(in.ReceiveID); err != nil {
		return nil, err
	}
	in.MsgType, in.UUID = msgType, c.query("uuid")
	in.Content = merged
	if d.forwarded != nil {
		in.Content = d.forwarded.Content
		if d.forwarded.card != nil {
			in.Content = compact(d.forwarded.card.tree)
		}
	}
	return c.send(in, d)
}

// several is the body of a call that forwards several messages.
type several struct {
	outgoing
	IDs []string `json:"message_id_list"`
}

func mergeForward(c *call, in *several) (any, error) {
	if len(in.IDs) == 0 || len(in.IDs) > maxForwarded {
		return nil, errMessageID
	}
	d := draft{}
	invalid := []string{}
	for _, id := range in.IDs {
		m := c.s.messages[id]
		if m == nil || m.Deleted || !c.s.chats[m.ChatID].has(c.app.ID) {
			invalid = append(invalid, id)
			continue
		}
		d.children = append(d.children, id)
	}
	if d.children == nil {
		return nil, errMessageID
	}
	answer, err := c.forward(&in.outgoing, d, "merge_forward")
	if err != nil {
		return nil, err
	}
	return map[string]any{"message": answer, "invalid_message_id_list": invalid}, nil
}
