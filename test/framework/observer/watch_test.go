// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestHasReturned(t *testing.T) {
	at := func(revision int, isDeleted bool) Change {
		change := Change{IsDeleted: isDeleted}
		change.Object.ResourceVersion = strconv.Itoa(revision)
		return change
	}
	for name, test := range map[string]struct {
		listed map[types.UID]uint64
		last   map[types.UID]Change
		want   bool
	}{
		"no objects":                      {want: true},
		"an old version":                  {listed: map[types.UID]uint64{"a": 8}, last: map[types.UID]Change{"a": at(7, false)}},
		"no version":                      {listed: map[types.UID]uint64{"a": 8}},
		"the same version":                {listed: map[types.UID]uint64{"a": 8}, last: map[types.UID]Change{"a": at(8, false)}, want: true},
		"a later version":                 {listed: map[types.UID]uint64{"a": 8}, last: map[types.UID]Change{"a": at(12, false)}, want: true},
		"a later removal":                 {listed: map[types.UID]uint64{"a": 8}, last: map[types.UID]Change{"a": at(12, true)}, want: true},
		"no removal":                      {last: map[types.UID]Change{"a": at(8, false)}},
		"an earlier removal":              {last: map[types.UID]Change{"a": at(9, true)}, want: true},
		"an object that is created later": {last: map[types.UID]Change{"a": at(11, false)}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &resourceWatch{last: test.last}
			NewWithT(t).Expect(w.hasReturned(test.listed, 10)).To(Equal(test.want))
		})
	}
}
