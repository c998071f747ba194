// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestChooseWay(t *testing.T) {
	tests := map[string]struct {
		askers  int
		objects int64
		want    way
	}{
		"nothing is there":                           {askers: 3, objects: 0, want: wholeCluster},
		"nothing is there, for one":                  {askers: 1, objects: 0, want: wholeCluster},
		"one object, for one":                        {askers: 1, objects: 1, want: eachNamespace},
		"one object, for two":                        {askers: 2, objects: 1, want: wholeCluster},
		"a full page costs three requests":           {askers: 3, objects: 500, want: wholeCluster},
		"a full page, for two":                       {askers: 2, objects: 500, want: eachNamespace},
		"one object on a second page":                {askers: 3, objects: 501, want: eachNamespace},
		"one object on a second page, for one more":  {askers: 4, objects: 501, want: eachNamespace},
		"one object on a second page, for two more":  {askers: 5, objects: 501, want: wholeCluster},
		"a full cluster, for a few":                  {askers: 20, objects: 10000, want: eachNamespace},
		"a full cluster, for many":                   {askers: 200, objects: 10000, want: wholeCluster},
		"just as cheap, for many":                    {askers: 200, objects: 33250, want: wholeCluster},
		"just not as cheap, for many":                {askers: 200, objects: 33251, want: eachNamespace},
		"more objects than an API server ever holds": {askers: 10000, objects: 1 << 60, want: eachNamespace},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(chooseWay(test.askers, test.objects)).To(Equal(test.want))
		})
	}
}
