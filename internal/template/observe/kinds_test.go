// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

type resettableMapper struct{ *meta.DefaultRESTMapper }

func (resettableMapper) Reset() {}

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// newKinds returns Kinds that know version v1 of widgets, and send their requests to handle.
func newKinds(t *testing.T, handle http.HandlerFunc) *Kinds {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: server.URL}, server.Client())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{widgets.GroupVersion()})
	mapper.Add(widgets, meta.RESTScopeNamespace)
	return &Kinds{Mapper: resettableMapper{mapper}, Discovery: client, Clock: clocktesting.NewFakePassiveClock(start)}
}

// A recorded object has no version.
func TestMapping(t *testing.T) {
	g, kinds := NewWithT(t), newKinds(t, nil)
	for kind, want := range map[schema.GroupVersionKind]string{
		widgets: "v1", widgets.GroupKind().WithVersion(""): "v1",
	} {
		resource, err := kinds.ResourceOf(kind)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resource.Version).To(Equal(want))
	}
	for _, kind := range []schema.GroupVersionKind{
		widgets.GroupKind().WithVersion("v2"), {Group: "example.com", Kind: "Unknown"}, {Kind: "Widget"},
	} {
		_, err := kinds.ResourceOf(kind)
		g.Expect(template.ToProblem("", "", err).Reason).To(Equal(v1alpha1.ReasonKindNotFound))
	}
}

func TestIsServed(t *testing.T) {
	serving := func(kind string) *metav1.APIResourceList {
		return &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			APIResources: []metav1.APIResource{{Name: "resource", Kind: kind}},
		}
	}
	group := &metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: "example.com",
		Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "example.com/v2"}, {GroupVersion: "example.com/v1"}},
	}
	unavailable := MatchError(ContainSubstring("failed to discover"))
	tests := map[string]struct {
		kind schema.GroupKind
		// served are the responses by path: nil if the server is unavailable.
		served   map[string]any
		isServed bool
		want     OmegaMatcher
	}{
		"the group is not served":  {want: Succeed()},
		"no version is served":     {served: map[string]any{"/apis/example.com": group}, want: Succeed()},
		"the group is unavailable": {served: map[string]any{"/apis/example.com": nil}, want: unavailable},
		"the kind is not served": {
			served: map[string]any{"/apis/example.com": group, "/apis/example.com/v1": serving("Other")}, want: Succeed(),
		},
		"the kind is served in the last version": {
			served: map[string]any{
				"/apis/example.com": group, "/apis/example.com/v2": serving("Other"), "/apis/example.com/v1": serving("Widget"),
			},
			isServed: true, want: Succeed(),
		},
		"the server of the last version is unavailable": {
			served: map[string]any{
				"/apis/example.com": group, "/apis/example.com/v2": serving("Other"), "/apis/example.com/v1": nil,
			},
			want: unavailable,
		},
		"a kind of the core group": {
			kind: configMaps.GroupKind(), served: map[string]any{"/api/v1": serving("ConfigMap")}, isServed: true, want: Succeed(),
		},
		"an unknown kind of the core group": {
			kind: schema.GroupKind{Kind: "Widget"}, served: map[string]any{"/api/v1": serving("ConfigMap")}, want: Succeed(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kinds := newKinds(t, func(w http.ResponseWriter, request *http.Request) {
				body, ok := test.served[request.URL.Path]
				w.Header().Set("Content-Type", "application/json")
				switch {
				case !ok:
					w.WriteHeader(http.StatusNotFound)
				case body == nil:
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_ = json.NewEncoder(w).Encode(body)
			})
			kind := test.kind
			if kind.Empty() {
				kind = widgets.GroupKind()
			}
			isServed, err := kinds.IsServed(t.Context(), kind)
			NewWithT(t).Expect(err).To(test.want)
			NewWithT(t).Expect(isServed).To(Equal(test.isServed))
		})
	}
}
