// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import "testing"

func TestQuote(t *testing.T) {
	for name, expected := range map[string]string{
		"orders":                    "orders",
		"system:serviceaccount:a:b": "system:serviceaccount:a:b",
		"a b":                       "'a b'",
		"x; touch PWNED #":          "'x; touch PWNED #'",
		"$(id)":                     "'$(id)'",
		"it's":                      `'it'\''s'`,
		"--all":                     "'--all'",
		"":                          "''",
		"\x1b[2K'a":                 `$'\x1b[2K\'a'`,
		"new\nline":                 `$'new\nline'`,
	} {
		if got := Quote(name); got != expected {
			t.Errorf("%q: got %s, expected %s", name, got, expected)
		}
	}
}
