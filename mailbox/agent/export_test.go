package agent

// LimitDrains replaces the size at which an answer stops.
func (a *Agent) LimitDrains(bytes int) { a.drainBytes = bytes }
