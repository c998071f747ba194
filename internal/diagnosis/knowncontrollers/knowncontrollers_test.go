// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package knowncontrollers

import "testing"

func TestDecode(t *testing.T) {
	controllers, err := decode()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(controllers))
}
