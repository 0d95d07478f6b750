package transcript

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/safefile"
)

const (
	extension = ".jsonl"
	// maxNumber is the highest number of a rotated file.
	maxNumber = 1 << 30
)

// fileName is the name of a chat's file. The first underscore ends the channel;
// underscores of the channel are escaped.
func fileName(channel, chatID string) string {
	return strings.ReplaceAll(safefile.Name(channel), "_", "%5F") + "_" + safefile.Name(chatID) + extension
}

// parseName is the inverse of fileName. It refuses names that fileName does not
// make, and hashes, which cannot be inverted.
func parseName(name string) (channel, chatID string, ok bool) {
	first, rest, ok := strings.Cut(strings.TrimSuffix(name, extension), "_")
	channel, okChannel := unescape(first)
	chatID, okChat := unescape(rest)
	return channel, chatID, ok && okChannel && okChat && fileName(channel, chatID) == name
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
	return file[:dot], number, err == nil && number > 0 && number <= maxNumber && segmentName(file[:dot], number) == file
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

// numbers returns the number of a file of a chat, and the numbers of the rotated files that are older,
// newest first. info describes the file; nil means the current one, which has the number that it will
// have when it is rotated. files is the content of the folder; nil means that it is listed.
func (s *Store) numbers(name string, info fs.FileInfo, files []string) (number int, older []int, err error) {
	if files == nil {
		files, err = s.files()
	}
	for _, file := range files {
		if of, number, ok := splitSegment(file); ok && number > 0 && of == name {
			older = append(older, number)
		}
	}
	slices.SortFunc(older, func(a, b int) int { return cmp.Compare(b, a) })
	for i, number := range older {
		if info == nil {
			break
		}
		if named, err := s.dir.Stat(segmentName(name, number)); err == nil && os.SameFile(named, info) {
			return number, older[i+1:], nil
		}
	}
	return 1 + slices.Max(append(older, 0)), older, err
}
