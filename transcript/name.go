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

	"feishu-relay/internal/safefile"
)

const extension = ".jsonl"

// maxChannel is the most bytes the channel may take of a file name; a longer
// one is replaced by its hash.
const maxChannel = 100

// fileName is the name of a chat's file. The first underscore ends the channel,
// whose own are escaped.
func fileName(channel, chatID string) string {
	part := strings.ReplaceAll(safefile.Name(channel), "_", "%5F")
	if len(part) > maxChannel {
		sum := sha256.Sum256([]byte(channel))
		part = "%~" + hex.EncodeToString(sum[:16])
	}
	return part + "_" + safefile.Name(chatID) + extension
}

// parseName is the inverse of fileName. It refuses names that fileName does not
// make, and hashes, which have none.
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

// splitSegment tells which chat's file a name belongs to, and its number, 0 for
// the file that is written to.
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

// files lists the names in the folder, none where it is missing.
func (s *Store) files() ([]string, error) {
	root, err := s.dir.Open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	if err == nil {
		names, err = safefile.Names(root)
	}
	if err != nil {
		return nil, fmt.Errorf("list transcripts: %w", err)
	}
	return names, nil
}

// segments lists the numbers of a chat's rotated files, newest first.
func (s *Store) segments(name string) ([]int, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, file := range files {
		if !strings.HasPrefix(file, name) {
			continue
		}
		if of, number, ok := splitSegment(file); ok && of == name && number > 0 {
			numbers = append(numbers, number)
		}
	}
	slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(b, a) })
	return numbers, nil
}

// olderThan lists the rotated files that are older than the open file that
// info describes, newest first: all of them where it has not been rotated.
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
