// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOption(t *testing.T) {
	unreadable := errors.New("apiservices is forbidden")
	for name, test := range map[string]struct {
		groupVersion string
		isAggregated bool
		err          error
		want         bool
	}{
		"a type of kube-apiserver":                                {groupVersion: "v1", want: true},
		"a type of kube-apiserver, and APIServices are forbidden": {groupVersion: "networking.k8s.io/v1", err: unreadable, want: true},
		"a custom resource":                                       {groupVersion: "example.com/v1", want: true},
		"a type behind an APIService":                             {groupVersion: "example.com/v1", isAggregated: true},
		"a type of a group in k8s.io behind an APIService":        {groupVersion: "metrics.k8s.io/v1beta1", isAggregated: true},
		"an unknown server":                                       {groupVersion: "example.com/v1", err: unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			groupVersion, err := schema.ParseGroupVersion(test.groupVersion)
			g.Expect(err).NotTo(HaveOccurred())
			guard := New(func(context.Context, schema.GroupVersion) (bool, error) { return test.isAggregated, test.err })
			option, err := guard.Option(t.Context(), groupVersion)
			if test.want {
				g.Expect(option).To(Equal([]string{metav1.DryRunAll}))
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(option).To(BeNil())
			g.Expect(IsUnsupported(fmt.Errorf("failed to try: %w", err))).To(BeTrue())
			g.Expect(errors.Is(err, unreadable)).To(Equal(test.err != nil))
		})
	}
}
