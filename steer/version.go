package steer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// version is a hash of the settings of a record, and of what it says of stops; memberships
// come and go with sidecars, and are no setting.
func version(r Record) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(r)) {
		if v := r[key]; !strings.HasPrefix(key, keyIn) {
			fmt.Fprintf(h, "%s %d %s %s\n", key, v.At, v.ID, v.V)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
