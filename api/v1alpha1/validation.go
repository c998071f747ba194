// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
)

// maxInitializerName is the longest name of an initializer, in bytes.
const maxInitializerName = 253

// dnsName is what the CRD takes for a DNS name.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// ValidateInitializerName says what is wrong with the name of an initializer, in the words
// of the CRD, whose rules these are: NamespaceInitializer.Name.
func ValidateInitializerName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("an initializer needs a name, such as \"quota.policy.example.com\"")
	case len(name) > maxInitializerName:
		return fmt.Errorf("initializer name %q is too long: it has %d characters, and may have up to %d",
			name, len(name), maxInitializerName)
	case strings.Contains(name, ","):
		return fmt.Errorf("initializer name %q contains a comma: list each initializer as an entry of its own", name)
	case strings.Count(name, ".") < 2:
		return fmt.Errorf("initializer name %q is not fully qualified: use at least three dot-separated parts, "+
			"such as \"quota.policy.example.com\"", name)
	case !dnsName.MatchString(name):
		return fmt.Errorf("initializer name %q is not a DNS name: each dot-separated part takes 1 to 63 lower case "+
			"letters, digits and \"-\", and begins and ends with a letter or a digit", name)
	}
	return nil
}
