package mailapi

// Open is how many connections there are.
func (l *Lines) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}
