// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

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
	"k8s.io/utils/clock"
)

type resettableMapper struct{ *meta.DefaultRESTMapper }

func (resettableMapper) Reset() {}

func TestServedVersion(t *testing.T) {
	g := NewWithT(t)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "example.com", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, meta.RESTScopeNamespace)
	writer := &Writer{mapper: resettableMapper{mapper}, clock: clock.RealClock{}}
	served := func(version, kind string) string {
		return writer.servedVersion(ObjectState{APIVersion: "example.com/" + version, Kind: kind})
	}
	g.Expect(served("v1", "Widget")).To(Equal("example.com/v1"))
	g.Expect(served("v1beta1", "Widget")).To(Equal("example.com/v1"))
	g.Expect(served("v1beta1", "Unknown")).To(Equal("example.com/v1beta1"))
}

func TestConfirmUnserved(t *testing.T) {
	serving := func(kind string) any {
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.com/v1",
			APIResources: []metav1.APIResource{{Name: "resource", Kind: kind}},
		}
	}
	tests := map[string]struct {
		code int
		body any
		want OmegaMatcher
	}{
		"the group is not served":             {code: http.StatusNotFound, want: Succeed()},
		"the kind is not served":              {code: http.StatusOK, body: serving("Other"), want: Succeed()},
		"the kind is served":                  {code: http.StatusOK, body: serving("Widget"), want: MatchError(errUnconfirmed)},
		"the aggregated server does not work": {code: http.StatusServiceUnavailable, want: MatchError(ContainSubstring("Widget"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_ = json.NewEncoder(w).Encode(test.body)
			}))
			t.Cleanup(server.Close)
			client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: server.URL}, server.Client())
			g.Expect(err).NotTo(HaveOccurred())
			writer := &Writer{discovery: client}
			kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
			g.Expect(writer.confirmUnserved(t.Context(), kind)).To(test.want)
		})
	}
}
