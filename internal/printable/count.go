// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "fmt"

// Count returns a number with its noun: 1 object, 2 objects.
func Count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
