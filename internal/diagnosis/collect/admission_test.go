// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestDependsOnUser(t *testing.T) {
	for expression, want := range map[string]bool{
		`request.userInfo.username == "x"`: true, `request . userInfo.groups`: true, `authorizer.group("")`: true,
		`request.name != "x"`: false,
	} {
		conditions := []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
		if got := dependsOnUser(conditions); got != want {
			t.Errorf("dependsOnUser(%q) = %t, want %t", expression, got, want)
		}
	}
}
