// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestIsClusterWideCheaper(t *testing.T) {
	tests := map[string]struct {
		namespaces int
		objects    int64
		want       bool
	}{
		"no objects":                                    {namespaces: 3, objects: 0, want: true},
		"no objects, one namespace":                     {namespaces: 1, objects: 0, want: true},
		"one object, one namespace":                     {namespaces: 1, objects: 1, want: false},
		"one object, two namespaces":                    {namespaces: 2, objects: 1, want: true},
		"a full page, three namespaces":                 {namespaces: 3, objects: 500, want: true},
		"a full page, two namespaces":                   {namespaces: 2, objects: 500, want: false},
		"one object on a second page, three namespaces": {namespaces: 3, objects: 501, want: false},
		"one object on a second page, four namespaces":  {namespaces: 4, objects: 501, want: false},
		"one object on a second page, five namespaces":  {namespaces: 5, objects: 501, want: true},
		"many objects, few namespaces":                  {namespaces: 20, objects: 10000, want: false},
		"many objects, many namespaces":                 {namespaces: 200, objects: 10000, want: true},
		"equal cost":                                    {namespaces: 200, objects: 33250, want: true},
		"slightly higher cost":                          {namespaces: 200, objects: 33251, want: false},
		"an impossibly large number of objects":         {namespaces: 10000, objects: 1 << 60, want: false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isClusterWideCheaper(test.namespaces, test.objects)).To(Equal(test.want))
		})
	}
}
