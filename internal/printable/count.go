// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "fmt"

// Count returns a number with a noun, for example "1 object" or "2 objects".
func Count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
