package transcript

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
)

const extension = ".jsonl"

// maxChannel is the most bytes that the channel may take in a file name; a
// longer one is replaced by its hash.
const maxChannel = 100

// fileName is the name of a chat's file. The first underscore ends the channel;
// underscores of the channel are escaped.
func fileName(channel, chatID string) string {
	part := strings.ReplaceAll(safefile.Name(channel), "_", "%5F")
	if len(part) > maxChannel {
		sum := sha256.Sum256([]byte(channel))
		part = "%~" + hex.EncodeToString(sum[:16])
	}
	return part + "_" + safefile.Name(chatID) + extension
}

// parseName is the inverse of fileName. It refuses names that fileName does not
// make, and hashes, which cannot be inverted.
func parseName(name string) (channel, chatID string, ok bool) {
	stem, ok := strings.CutSuffix(name, extension)
	if !ok {
		return "", "", false
	}
	first, rest, ok := strings.Cut(stem, "_")
	if !ok {
		return "", "", false
	}
	channel, okChannel := unescape(first)
	chatID, okChat := unescape(rest)
	return channel, chatID, okChannel && okChat && fileName(channel, chatID) == name
}

func unescape(part string) (string, bool) {
	if part == "%" {
		return "", true
	}
	id, err := url.PathUnescape(part)
	return id, err == nil
}

// segmentName is the name of a rotated file; a higher number is newer.
func segmentName(name string, number int) string {
	return name + "." + strconv.Itoa(number)
}

// splitSegment returns the chat's file name in the name of a rotated file, and
// the number; 0 for the file that is written to.
func splitSegment(file string) (name string, number int, ok bool) {
	if strings.HasSuffix(file, extension) {
		return file, 0, true
	}
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 || !strings.HasSuffix(file[:dot], extension) {
		return "", 0, false
	}
	number, err := strconv.Atoi(file[dot+1:])
	if err != nil || number <= 0 || segmentName(file[:dot], number) != file {
		return "", 0, false
	}
	return file[:dot], number, true
}

// files lists the names in the folder, none if it is missing.
func (s *Store) files() ([]string, error) {
	root, err := s.dir.Open(false)
	var names []string
	if err == nil {
		names, err = safefile.Names(root)
	}
	if errors.Is(err, fs.ErrNotExist) { // it may just have been removed
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list transcripts: %w", err)
	}
	return names, nil
}

// segmentsNow lists the numbers of a chat's rotated files, newest first.
func (s *Store) segmentsNow(name string) ([]int, error) {
	all, err := s.allSegments()
	return all[name], err
}

// allSegments lists the numbers of the rotated files of each chat that has any,
// newest first.
func (s *Store) allSegments() (map[string][]int, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	all := map[string][]int{}
	for _, file := range files {
		if name, number, ok := splitSegment(file); ok && number > 0 {
			all[name] = append(all[name], number)
		}
	}
	for _, numbers := range all {
		slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return all, nil
}

// listing is the rotated files as of the folder's last change. It saves listing
// the folder for each read, which takes longer the more chats there are.
type listing struct {
	mu       sync.Mutex
	folder   os.FileInfo // its state before the listing; nil: not listed
	at       time.Time   // of the listing
	segments map[string][]int
}

// racy is how long after a change another one may leave the folder's modification
// time unchanged.
const racy = 100 * time.Millisecond

// segments is segmentsNow for readers, from memory if the folder has not changed.
func (s *Store) segments(name string) ([]int, error) {
	now, err := s.dir.Stat(".")
	if err != nil {
		return s.segmentsNow(name) // the folder is missing, or this returns a better error
	}
	l := &s.listed
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.folder == nil || !os.SameFile(l.folder, now) || !l.folder.ModTime().Equal(now.ModTime()) ||
		l.at.Sub(now.ModTime()) < racy {
		at := time.Now()
		all, err := s.allSegments()
		if err != nil {
			return nil, err
		}
		l.folder, l.at, l.segments = now, at, all
	}
	return slices.Clone(l.segments[name]), nil
}

// olderThan lists the rotated files that are older than the open file that info
// describes, newest first: all of them if it has not been rotated.
func (s *Store) olderThan(name string, info os.FileInfo) (older []int, rotated bool, err error) {
	numbers, err := s.segments(name)
	if err != nil || info == nil {
		return numbers, false, err
	}
	for i, number := range numbers {
		if s.is(segmentName(name, number), info) {
			return numbers[i+1:], true, nil
		}
	}
	return numbers, false, nil
}
