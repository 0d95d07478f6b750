package filebox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// The folders of an agent.
const (
	inbox     = "inbox"
	processed = "processed"
	malformed = "malformed"
)

// agent opens an agent's folder, a missing one is an error ([fs.ErrNotExist]).
func (s *Store) agent(id mailbox.AgentID) (*os.Root, error) {
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	return root.OpenRoot(string(id))
}

// inbox opens an agent's inbox, making it where it is missing.
func (s *Store) inbox(id mailbox.AgentID) (*os.Root, error) {
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	box, err := root.OpenRoot(filepath.Join(string(id), inbox))
	if !errors.Is(err, fs.ErrNotExist) {
		return box, err
	}
	return s.makeSub(id, inbox)
}

// makeSub makes a folder of an agent and opens it.
func (s *Store) makeSub(id mailbox.AgentID, name string) (*os.Root, error) {
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	agent, err := safefile.OpenSub(root, string(id))
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	return safefile.OpenSub(agent, name)
}

// vanished reports whether err comes from a folder that was removed or replaced
// in the middle of a call: then the call is worth a second try.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrClosed)
}
