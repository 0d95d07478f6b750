package safefile

import "github.com/fsnotify/fsnotify"

// Watcher reports changes in folders, as far as the system does. Whoever uses
// one looks by the clock as well.
type Watcher struct {
	Events <-chan fsnotify.Event // closed by Close
	Lost   <-chan struct{}       // has a value when events were lost

	watcher *fsnotify.Watcher
}

// NewWatcher returns a watcher of no folder. The caller closes it.
func NewWatcher() (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	lost := make(chan struct{}, 1)
	// The errors are read at all times: fsnotify reports some of them while it
	// holds the lock that Add and Close need.
	go func() {
		for range w.Errors {
			select {
			case lost <- struct{}{}:
			default:
			}
		}
	}()
	return &Watcher{Events: w.Events, Lost: lost, watcher: w}, nil
}

// Add watches the folder at path, too. To add it twice does nothing.
func (w *Watcher) Add(path string) error { return w.watcher.Add(path) }

// Close ends the watcher.
func (w *Watcher) Close() error { return w.watcher.Close() }
