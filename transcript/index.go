package transcript

// Index is what a caller keeps of a chat's lines instead of reading them again and again.
// It is made by [Options.Index] and used by one goroutine at a time.
type Index interface {
	// Add takes in the next line in the order of the file, edits included. The entry is
	// valid during the call only. again says that its message_id was in a line before.
	Add(e *Entry, again bool)
	// Bytes is about how much memory the index takes.
	Bytes() int
}

// Index calls f with the index of a chat, which has all lines up to now. False: there is
// none, since nothing was appended to the chat lately or its file is not as it was.
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

// reindex makes the index from all lines in memory, where these are more than it has.
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
