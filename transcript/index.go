package transcript

// Index is a caller's own summary of a chat's lines, which spares it reading them again.
// [Options.Index] makes it; one goroutine at a time uses it.
type Index interface {
	// Add adds the next line in the order of the file, edits included. The entry is
	// valid during the call only. again reports that an earlier line has its
	// message_id.
	Add(e *Entry, again bool)
	// Bytes is about how much memory the index takes.
	Bytes() int
}

// Index calls f with the index of a chat, which covers all lines up to now. It returns
// false without a call if the chat has no index, since nothing was appended to it lately
// or its file was cut or replaced.
func (s *Store) Index(channel, chatID string, f func(Index)) bool {
	l, ok := s.chats.Get(chatKey{channel, chatID})
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	if !l.current() || l.index == nil {
		return false
	}
	f(l.index)
	return true
}

// reindex makes the index from all lines in memory, if these are more than it has.
func (l *chatLog) reindex() {
	if l.store.opts.Index == nil || l.index != nil && len(l.recent.lines) <= l.indexed {
		return
	}
	l.index, l.indexed = l.store.opts.Index(l.recent.whole), len(l.recent.lines)
	seen := make(map[string]struct{}, len(l.recent.lines))
	for i := range l.recent.lines {
		line := &l.recent.lines[i]
		e := line.decoded()
		_, again := seen[e.MessageID]
		seen[e.MessageID] = struct{}{}
		l.index.Add(e, again || line.again)
	}
}
