// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseControllers(t *testing.T) {
	both := Controllers{Finalization: true, Initialization: true}
	all := Controllers{Admission: true, Diagnosis: true, Finalization: true, Initialization: true, Templates: true}
	unknown := messageUnknownController
	tests := map[string]struct {
		want      Controllers
		wantError string
	}{
		"*":                            {want: all},
		"diagnosis":                    {want: Controllers{Diagnosis: true}},
		"*,-diagnosis":                 {want: Controllers{Admission: true, Finalization: true, Initialization: true, Templates: true}},
		"admission":                    {want: Controllers{Admission: true}},
		"*,-admission":                 {want: Controllers{Diagnosis: true, Finalization: true, Initialization: true, Templates: true}},
		"finalization":                 {want: Controllers{Finalization: true}},
		"initialization":               {want: Controllers{Initialization: true}},
		"finalization,initialization":  {want: both},
		"initialization, finalization": {want: both},
		"finalization,finalization":    {want: Controllers{Finalization: true}},
		"*,-finalization":              {want: Controllers{Admission: true, Diagnosis: true, Initialization: true, Templates: true}},
		"-initialization,*":            {want: Controllers{Admission: true, Diagnosis: true, Finalization: true}},
		"*,finalization":               {want: all},
		"-finalization,initialization": {want: Controllers{Initialization: true}},

		"-finalization":              {wantError: messageNoController("-finalization")},
		"finalization,-finalization": {wantError: messageNoController("finalization,-finalization")},
		"templates":                  {wantError: messageTemplatesRequireInitialization},
		"*,-admission,-finalization,-initialization,-diagnosis": {
			wantError: messageNoController("*,-admission,-finalization,-initialization,-diagnosis"),
		},
		"":                                 {wantError: unknown("")},
		"*,":                               {wantError: unknown("")},
		"-*":                               {wantError: unknown("*")},
		"namespace":                        {wantError: unknown("namespace")},
		"*,-namespace":                     {wantError: unknown("namespace")},
		"Finalization":                     {wantError: unknown("Finalization")},
		"finalization;initialization":      {wantError: unknown("finalization;initialization")},
		"finalization,--initialization":    {wantError: unknown("-initialization")},
		"finalization, -initialization, x": {wantError: unknown("x")},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			controllers, err := ParseControllers(text)
			if test.wantError != "" {
				g.Expect(err).To(MatchError(test.wantError))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(controllers).To(Equal(test.want))
		})
	}
}

func TestControllers(t *testing.T) {
	tests := map[string]struct {
		controllers                          Controllers
		wantInitialization, wantFinalization bool
		want                                 string
	}{
		"all":  {wantInitialization: true, wantFinalization: true, want: "*"},
		"none": {controllers: Controllers{}},
		"one":  {controllers: Controllers{Finalization: true}, wantFinalization: true, want: "finalization"},
		"both": {
			controllers:        Controllers{Initialization: true, Finalization: true},
			wantInitialization: true, wantFinalization: true, want: "finalization,initialization",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.controllers.Runs(Initialization)).To(Equal(test.wantInitialization))
			g.Expect(test.controllers.Runs(Finalization)).To(Equal(test.wantFinalization))
			g.Expect(test.controllers.String()).To(Equal(test.want))
		})
	}
}
