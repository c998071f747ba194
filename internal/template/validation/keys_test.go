// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const openAPIDocument = `{"components": {"schemas": {
	"meta": {"properties": {"name": {}, "labels": {"additionalProperties": {}}}},
	"quota": {
		"properties": {
			"apiVersion": {}, "kind": {}, "metadata": {"allOf": [{"$ref": "#/components/schemas/meta"}]},
			"spec": {"properties": {
				"hard": {"additionalProperties": {"properties": {"value": {}}}}, "scopes": {"items": {"properties": {"name": {}}}},
				"any": {"x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"properties": {"a": {}}}}},
				"closed": {"properties": {"a": {}}, "additionalProperties": false}, "open": {"properties": {"a": {}}, "additionalProperties": true}
			}}
		},
		"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ResourceQuota"}]
	}
}}}`

func TestUnknownKeys(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/openapi/v3/api/v1", "/openapi/v3/apis/example.com/v1":
			_, _ = w.Write([]byte(openAPIDocument))
		case "/openapi/v3/apis/slow.example.com/v1":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	openAPI := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL}).RESTClient()
	for name, test := range map[string]struct {
		group, spec, want string
	}{
		"known":                   {spec: `{"hard": {"pods": {"value": 1}}, "scopes": [{"name": "a"}]}`},
		"unknown":                 {spec: `{"hardd": {"pods": 1}}`, want: `unknown field "spec.hardd"`},
		"in a list":               {spec: `{"scopes": [{"name": "a"}, {"nam": "a"}]}`, want: `unknown field "spec.scopes[1].nam"`},
		"in a map":                {spec: `{"hard": {"pods": {"val": 1}}}`, want: `unknown field "spec.hard.pods.val"`},
		"preserved":               {spec: `{"any": {"x": {"y": 1}, "known": {"b": 1}}}`, want: `unknown field "spec.any.known.b"`},
		"no additional keys":      {spec: `{"closed": {"b": 1}, "open": {"b": 1}}`, want: `unknown field "spec.closed.b"`},
		"expressions":             {spec: `{"scopes": "${params.scopes}", "${key}": 1, "hard": "${x}"}`},
		"two":                     {spec: `{"a": 1, "b": 1}`, want: `unknown fields "spec.a", "spec.b"`},
		"many":                    {spec: `{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}`, want: `unknown fields "spec.a", "spec.b", "spec.c", "spec.d", "spec.e" and 2 more`},
		"a kind without a schema": {group: "example.com/", spec: `{"a": 1}`},
		"no document":             {group: "other.example.com/", spec: `{"a": 1}`},
		"no answer in time":       {group: "slow.example.com/", spec: `{"a": 1}`},
	} {
		t.Run(name, func(t *testing.T) {
			g, manifest := NewWithT(t), &unstructured.Unstructured{}
			g.Expect(manifest.UnmarshalJSON([]byte(`{"apiVersion": "` + test.group + `v1", "kind": "ResourceQuota",
				"metadata": {"name": "team", "labels": {"a": "b"}}, "spec": ` + test.spec + `}`))).To(Succeed())
			ctx, cancel := context.WithTimeout(t.Context(), schemaTimeout)
			defer cancel()
			validator := &Validator{openAPI: openAPI, lookups: rate.NewLimiter(0, 1)}
			reader := &schemaReader{validator, map[schema.GroupVersion]*document{}}
			before := requests
			g.Expect(reader.unknownKeys(ctx, manifest)).To(Equal(test.want))
			g.Expect(reader.unknownKeys(ctx, manifest)).To(Equal(test.want))
			g.Expect(requests - before).To(Equal(1))
			if test.want != "" {
				other := &schemaReader{validator, map[schema.GroupVersion]*document{}}
				g.Expect(other.unknownKeys(ctx, manifest)).To(BeEmpty(), "the limit is reached")
			}
		})
	}
}
