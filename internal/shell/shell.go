// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell writes names into commands that people are told to copy.
package shell

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// harmless is what a shell takes as it is.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Quote makes one word of a name in a command that is to be copied. Roles and users
// may have anything in their names.
func Quote(name string) string {
	switch {
	case harmless.MatchString(name) && !strings.HasPrefix(name, "-"):
		return name
	case strings.ContainsFunc(name, func(char rune) bool { return !unicode.IsPrint(char) }):
		return "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(name), `"`), "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
