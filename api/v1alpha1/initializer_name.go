// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
)

// maxInitializerName is the maximum length of the name of an initializer in bytes.
const maxInitializerName = 253

// dnsName is the pattern that names must match according to the CRD.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// ValidateInitializerName returns an error if the CRD rejects the name of an initializer. If the
// CRD has a CEL rule for the error, the message is the same.
func ValidateInitializerName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of an initializer is required, such as \"quota.policy.example.com\"")
	case len(name) > maxInitializerName:
		return fmt.Errorf("initializer name %q is too long: %d characters, must be no more than %d",
			name, len(name), maxInitializerName)
	case strings.Contains(name, ","):
		return fmt.Errorf("initializer name %q contains a comma: list each initializer as a separate entry", name)
	case strings.Count(name, ".") < 2:
		return fmt.Errorf("initializer name %q is not fully qualified: use at least three dot-separated parts, "+
			"such as \"quota.policy.example.com\"", name)
	case !dnsName.MatchString(name):
		return fmt.Errorf("initializer name %q is not a DNS name: each dot-separated part must consist of 1 to 63 "+
			"lower case letters, digits and \"-\", and must begin and end with a letter or a digit", name)
	}
	return nil
}
