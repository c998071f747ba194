// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// apiService is an APIService of the group of the scene, for a server at a port.
const apiService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.$id.aggregated.example.com}
spec:
  group: $id.aggregated.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: $id-system, name: server, port: $port}
`

// localhost is the Service by which a server in the process of the test is reached.
const localhost = `
apiVersion: v1
kind: Namespace
metadata: {name: $id-system}
---
apiVersion: v1
kind: Service
metadata: {namespace: $id-system, name: server}
spec: {type: ExternalName, externalName: localhost}
`

// things is how the server of a group describes its one type.
const things = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"$id.aggregated.example.com/v1",
"resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list","delete"]}]}`

// outOfOrder is how the server of a group says that it cannot answer.
const outOfOrder = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,
"message":"my storage is out of order"}`

// serve runs an API server until the end of the spec, and returns its port. It answers
// each path with a status and a body; other paths are not found.
func (s *scene) serve(answers map[string]response) string {
	GinkgoHelper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for path, answer := range answers {
			if r.URL.Path == s.text(path) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(answer.status)
				fmt.Fprint(w, s.text(answer.body))
				return
			}
		}
		if answer, isThere := answers["*"]; isThere {
			http.Error(w, answer.body, answer.status)
			return
		}
		http.NotFound(w, r)
	}))
	DeferCleanup(server.Close)
	return server.URL[strings.LastIndex(server.URL, ":")+1:]
}

type response struct {
	status int
	body   string
}

// register makes the API server ask a server for the group of the scene, until the end of
// the spec, when discovery is whole again.
func (s *scene) register(ctx context.Context, port string) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		discoverer, err := discovery.NewDiscoveryClientForConfig(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			_, _, err := discoverer.ServerGroupsAndResourcesWithContext(ctx)
			return err
		}).WithContext(ctx).Should(Succeed())
	})
	s.create(ctx, strings.ReplaceAll(apiService, "$port", port))
}

// expectAvailable waits for the condition of the scene's APIService.
func (s *scene) expectAvailable(ctx context.Context, status string) {
	GinkgoHelper()
	object := s.objects(strings.ReplaceAll(apiService, "$port", "1"))[0]
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Available"),
			HaveKeyWithValue("status", status))))
	}).WithContext(ctx).Should(Succeed())
}

// endStuck ends the namespace, diagnoses it and removes the APIService.
func (s *scene) endStuck(ctx context.Context, b blame) {
	GinkgoHelper()
	s.create(ctx, settings)
	s.end(ctx)
	b.objects = []string{s.text("apiservices.apiregistration.k8s.io/v1.$id.aggregated.example.com")}
	s.expectBlamed(ctx, b.saying(s.text("$id.aggregated.example.com")))

	By("removing the APIService")
	s.delete(ctx, strings.ReplaceAll(apiService, "$port", "1"))
	s.expectGone(ctx)
}

var _ = Describe("An aggregated API server", func() {
	DescribeTable("that does not answer holds every namespace that goes:",
		func(ctx context.Context, setUp func(context.Context, *scene) string, texts ...string) {
			s := newScene(ctx)
			s.register(ctx, setUp(ctx, s))
			s.expectAvailable(ctx, "False")
			s.endStuck(ctx, confirmed(diagnosis.CauseAPIServiceUnavailable).since(texts...))
		},
		Entry("its Service is missing", func(context.Context, *scene) string { return "443" }, "ServiceNotFound"),
		Entry("its Service has no endpoints", func(ctx context.Context, s *scene) string {
			s.create(ctx, strings.ReplaceAll(localhost, "{type: ExternalName, externalName: localhost}", "{ports: [{port: 443}]}"))
			return "443"
		}, "EndpointsNotFound"),
		Entry("nothing listens", func(ctx context.Context, s *scene) string {
			s.create(ctx, localhost)
			return "1"
		}, "FailedDiscoveryCheck"),
		Entry("it answers 503", func(ctx context.Context, s *scene) string {
			s.create(ctx, localhost)
			return s.serve(map[string]response{"*": {http.StatusServiceUnavailable, "out of order"}})
		}, "FailedDiscoveryCheck"),
	)

	It("whose types the API server does not learn of makes discovery stale", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, localhost)
		s.register(ctx, s.serve(map[string]response{
			"/apis":                               {http.StatusServiceUnavailable, "out of order"},
			"/apis/$id.aggregated.example.com/v1": {http.StatusOK, things},
		}))
		s.expectAvailable(ctx, "True")
		s.endStuck(ctx, confirmed(diagnosis.CauseDiscoveryStale))
	})

	It("that describes its types in a way that nobody understands makes discovery fail", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, localhost)
		s.register(ctx, s.serve(map[string]response{
			"/apis/$id.aggregated.example.com/v1": {http.StatusOK, "these are my types"},
		}))
		s.expectAvailable(ctx, "True")
		s.endStuck(ctx, confirmed(diagnosis.CauseDiscoveryFailing))
	})

	It("that cannot list is named for it", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, localhost)
		s.register(ctx, s.serve(map[string]response{
			"/apis":                               {http.StatusNotFound, ""},
			"/apis/$id.aggregated.example.com/v1": {http.StatusOK, things},
			"/apis/$id.aggregated.example.com/v1/namespaces/$ns/things": {http.StatusServiceUnavailable, outOfOrder},
		}))
		s.expectAvailable(ctx, "True")
		s.endStuck(ctx, confirmed(diagnosis.CauseAPIServiceUnavailable).since("my storage is out of order"))
	})

	It("is no concern of a namespace that is in use", func(ctx context.Context) {
		s := newScene(ctx)
		s.register(ctx, "443")
		s.expectAvailable(ctx, "False")
		s.expectUnblamed(ctx, gatherer, time.Second)
	})
})
