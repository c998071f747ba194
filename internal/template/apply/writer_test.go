// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

type resettableMapper struct{ *meta.DefaultRESTMapper }

func (resettableMapper) Reset() {}

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// aggregatedVersion is a group version that an aggregated API server serves.
var aggregatedVersion = schema.GroupVersion{Group: "aggregated.example.com", Version: "v1"}

// newWriter returns a Writer that knows version v1 of widgets, and sends its requests to handle.
func newWriter(t *testing.T, handle http.HandlerFunc) *Writer {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, server.Client())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{widgets.GroupVersion()})
	mapper.Add(widgets, meta.RESTScopeNamespace)
	mapper.Add(aggregatedVersion.WithKind("Thing"), meta.RESTScopeNamespace)
	return NewWriter(config, resettableMapper{mapper}, client, "system", clocktesting.NewFakePassiveClock(time.Now()),
		dryrun.New(func(_ context.Context, groupVersion schema.GroupVersion) (bool, error) {
			return groupVersion == aggregatedVersion, nil
		}))
}

// A recorded object has no version.
func TestMapping(t *testing.T) {
	g, writer := NewWithT(t), newWriter(t, nil)
	for kind, want := range map[schema.GroupVersionKind]string{
		widgets: "v1", widgets.GroupKind().WithVersion(""): "v1",
	} {
		resource, err := writer.ResourceOf(kind)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resource.Version).To(Equal(want))
	}
	for _, kind := range []schema.GroupVersionKind{
		widgets.GroupKind().WithVersion("v2"), {Group: "example.com", Kind: "Unknown"}, {Kind: "Widget"},
	} {
		_, err := writer.ResourceOf(kind)
		g.Expect(template.ToProblem("", "", err).Reason).To(Equal(v1alpha1.ReasonKindNotFound))
	}
}

func TestConfirmUnserved(t *testing.T) {
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
		served map[string]any
		want   OmegaMatcher
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
			want: MatchError(plan.ErrUnconfirmed),
		},
		"the server of the last version is unavailable": {
			served: map[string]any{
				"/apis/example.com": group, "/apis/example.com/v2": serving("Other"), "/apis/example.com/v1": nil,
			},
			want: unavailable,
		},
		"a kind of the core group": {
			kind: configMaps.GroupKind(), served: map[string]any{"/api/v1": serving("ConfigMap")}, want: MatchError(plan.ErrUnconfirmed),
		},
		"an unknown kind of the core group": {
			kind: schema.GroupKind{Kind: "Widget"}, served: map[string]any{"/api/v1": serving("ConfigMap")}, want: Succeed(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writer := newWriter(t, func(w http.ResponseWriter, request *http.Request) {
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
			NewWithT(t).Expect(writer.confirmUnserved(t.Context(), kind)).To(test.want)
		})
	}
}

// The API server must report that an object does not exist, and not that it does not serve this version of the kind
// any more.
func TestDelete(t *testing.T) {
	notFound := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotFound,
		Reason: metav1.StatusReasonNotFound,
	}
	tests := map[string]struct {
		code   int
		body   any
		isGone bool
		want   OmegaMatcher
	}{
		"deleted":                    {http.StatusOK, metav1.Status{TypeMeta: notFound.TypeMeta, Status: metav1.StatusSuccess}, true, Succeed()},
		"being deleted":              {http.StatusAccepted, metav1.Status{TypeMeta: notFound.TypeMeta}, false, Succeed()},
		"does not exist":             {http.StatusNotFound, notFound, true, Succeed()},
		"the version is not served":  {http.StatusNotFound, "404 page not found", false, HaveOccurred()},
		"the server does not answer": {http.StatusServiceUnavailable, nil, false, HaveOccurred()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			writer := newWriter(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if text, ok := test.body.(string); ok {
					http.Error(w, text, test.code)
					return
				}
				w.WriteHeader(test.code)
				_ = json.NewEncoder(w).Encode(test.body)
			})
			isGone, err := writer.delete(t.Context(), "account", "ns", widgets, "widget", metav1.Preconditions{})
			g.Expect(err).To(test.want)
			g.Expect(isGone && err == nil).To(Equal(test.isGone))
		})
	}
}

// An aggregated API server can ignore the option dryRun.
func TestNoDryRunForAggregatedServers(t *testing.T) {
	thing := &unstructured.Unstructured{}
	thing.SetGroupVersionKind(aggregatedVersion.WithKind("Thing"))
	thing.SetName("w")
	thing.SetNamespace("shop")
	target := target{template: &v1alpha1.NamespaceTemplate{}, namespace: &corev1.Namespace{}, manifest: thing}
	target.template.Name, target.namespace.Name = "team", "shop"
	for name, request := range map[string]func(*Writer) error{
		"preview":          func(w *Writer) error { _, _, err := w.preview(t.Context(), target); return err },
		"previewUnchanged": func(w *Writer) error { _, err := w.previewUnchanged(t.Context(), target); return err },
		"apply":            func(w *Writer) error { _, err := w.apply(t.Context(), target, true, true); return err },
	} {
		t.Run(name, func(t *testing.T) {
			writer := newWriter(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("received %s %s", r.Method, r.URL) })
			NewWithT(t).Expect(request(writer)).To(Satisfy(dryrun.IsUnsupported))
		})
	}
}
