// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
)

func TestValidateInitializerName(t *testing.T) {
	for name, want := range map[string]string{
		"quota.policy.example.com":            "",
		"a.b.c":                               "",
		"0.1.2":                               "",
		"a-b.c.d":                             "",
		strings.Repeat("a.", 126) + "a":       "",
		strings.Repeat("a", 63) + ".b.c":      "",
		"":                                    "name of an initializer is required",
		"quota":                               "not fully qualified",
		"example.com":                         "not fully qualified",
		"a.b.c,d.e.f":                         "contains a comma",
		",":                                   "contains a comma",
		"a..b":                                "is not a DNS name",
		".a.b.c":                              "is not a DNS name",
		"a.b.c.":                              "is not a DNS name",
		"A.b.c":                               "is not a DNS name",
		"-a.b.c":                              "is not a DNS name",
		"a-.b.c":                              "is not a DNS name",
		"a_b.c.d":                             "is not a DNS name",
		"a b.c.d":                             "is not a DNS name",
		"a.b.c\n":                             "is not a DNS name",
		"a.b.c/Initialized":                   "is not a DNS name",
		"é.b.c":                               "is not a DNS name",
		strings.Repeat("a", 64) + ".b.c":      "is not a DNS name",
		strings.Repeat("a.", 126) + "ab":      "254 characters",
		strings.Repeat("a.", 500) + "example": "no more than 253",
	} {
		switch err := ValidateInitializerName(name); {
		case want == "" && err != nil:
			t.Errorf("ValidateInitializerName(%q) = %v, want nil", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("ValidateInitializerName(%q) = %v, want an error with %q", name, err, want)
		}
	}
}
