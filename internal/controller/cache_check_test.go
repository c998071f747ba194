// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

func TestCacheCheck(t *testing.T) {
	reader := func(templates ...client.Object) client.Client {
		return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(templates...).Build()
	}
	template := func(uid types.UID, generation int64) client.Object {
		object := &v1alpha1.NamespaceTemplate{}
		object.Name, object.UID, object.Generation = "team", uid, generation
		return object
	}
	tests := map[string]struct {
		cached, live []client.Object
		want         bool
	}{
		"no template":                {want: true},
		"equal":                      {cached: []client.Object{template("a", 2)}, live: []client.Object{template("a", 2)}, want: true},
		"the template is missing":    {live: []client.Object{template("a", 1)}},
		"the template has changed":   {cached: []client.Object{template("a", 1)}, live: []client.Object{template("a", 2)}},
		"the template was recreated": {cached: []client.Object{template("a", 2)}, live: []client.Object{template("b", 1)}},
		"the template was deleted":   {cached: []client.Object{template("a", 1)}, want: true},
		"the response is older":      {cached: []client.Object{template("a", 2)}, live: []client.Object{template("a", 1)}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var check cacheCheck
			cached, templates := reader(test.cached...), &v1alpha1.NamespaceTemplateList{}
			g.Expect(check.verify(t.Context(), cached, reader(test.live...), templates) == nil).To(Equal(test.want))
			live := reader(template("c", 1))
			g.Expect(check.verify(t.Context(), cached, live, templates) == nil).To(Equal(test.want), "the cache remains current")
		})
	}
}
