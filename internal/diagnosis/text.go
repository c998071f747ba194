// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// FormatTime formats a time for evidence.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Ago formats how long ago a time was, like kubectl.
func (f *Facts) Ago(t time.Time) string { return duration.HumanDuration(f.Now.Sub(t)) }

// OneLine returns text from the API server on one line. If it is too long, it ends after a whole word.
func OneLine(text string) string {
	const maxLength = 400
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= maxLength {
		return text
	}
	shortened := string(runes[:maxLength])
	if end := strings.LastIndexByte(shortened, ' '); end > 0 {
		shortened = shortened[:end]
	}
	return shortened + " ..."
}

// JoinNames joins up to four names, and adds the number of the others.
func JoinNames(names []string) string {
	const maxNames = 4
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// Sorted iterates over a map in the order of its keys.
func Sorted[K cmp.Ordered, V any](of map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !yield(key, of[key]) {
				return
			}
		}
	}
}
