// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

func TestCount(t *testing.T) {
	g := NewWithT(t)
	g.Expect(printable.Count(1, "object")).To(Equal("1 object"))
	g.Expect(printable.Count(0, "object")).To(Equal("0 objects"))
}
