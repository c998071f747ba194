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
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// apiService registers the fixture's API group with a server at $port.
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

// localhost contains a Service that refers to a server in the test process.
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

// thingResources is the discovery document of the aggregated API group.
const thingResources = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"$id.aggregated.example.com/v1",
"resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list","delete"]}]}`

// storageUnavailable is the response of a server that cannot reach its storage.
const storageUnavailable = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,
"message":"the storage is unavailable"}`

// serve runs an API server until the spec ends and returns its port. The server responds to each
// path with the given status and body. For other paths, it returns the response for *, or 404 if
// there is none.
func (f *fixture) serve(responses map[string]response) string {
	GinkgoHelper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for path, response := range responses {
			if response.isDenied != nil && r.URL.Path == f.text(path) && response.isDenied(r.Header.Get("X-Remote-User")) {
				response.status, response.body = http.StatusForbidden,
					strings.ReplaceAll(storeForbidden, "$user", r.Header.Get("X-Remote-User"))
			}
			if r.URL.Path == f.text(path) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(response.status)
				fmt.Fprint(w, f.text(response.body))
				return
			}
		}
		if response, ok := responses["*"]; ok {
			http.Error(w, response.body, response.status)
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
	// isDenied reports whether the server denies a request by a user.
	isDenied func(user string) bool
}

// storeForbidden is the response of a server that requires a permission on another resource.
const storeForbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
"message":"things.$id.aggregated.example.com is forbidden: User \"$user\" cannot create resource \"stores\" ` +
	`in API group \"$id.aggregated.example.com\" in the namespace \"$ns\""}`

// grantedRole contains the objects that the recommended commands create.
const grantedRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: create-stores.$id.aggregated.example.com}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: create-stores.$id.aggregated.example.com}
`

// mayCreateStores reports whether kube-apiserver allows a user to create stores.
func (f *fixture) mayCreateStores(user string) bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: f.text("$id.aggregated.example.com"), Resource: "stores", Namespace: f.ns,
		},
	}}
	return admin.Create(context.Background(), review) == nil && review.Status.Allowed
}

// registerAPIService creates the fixture's APIService. The cleanup deletes the APIService and waits
// until discovery succeeds again.
func (f *fixture) registerAPIService(ctx context.Context, port string) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		discoverer, err := discovery.NewDiscoveryClientForConfig(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			_, _, err := discoverer.ServerGroupsAndResourcesWithContext(ctx)
			return err
		}).WithContext(ctx).Should(Succeed())
	})
	f.create(ctx, strings.ReplaceAll(apiService, "$port", port))
}

// expectAvailable waits until the Available condition of the fixture's APIService has the given
// status.
func (f *fixture) expectAvailable(ctx context.Context, status string) {
	GinkgoHelper()
	object := f.objects(strings.ReplaceAll(apiService, "$port", "1"))[0]
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Available"),
			HaveKeyWithValue("status", status))))
	}).WithContext(ctx).Should(Succeed())
}

// expectStuckUntilUnregistered requests the deletion of the namespace, expects the finding, deletes
// the APIService, and expects that the namespace is then deleted.
func (f *fixture) expectStuckUntilUnregistered(ctx context.Context, expected expectedFinding) {
	GinkgoHelper()
	f.create(ctx, twoConfigMaps)
	f.deleteNamespace(ctx)
	expected.objects = []string{f.text("apiservices.apiregistration.k8s.io/v1.$id.aggregated.example.com")}
	f.expectFindings(ctx, expected.withMessage(f.text("$id.aggregated.example.com")))

	By("deleting the APIService")
	f.delete(ctx, strings.ReplaceAll(apiService, "$port", "1"))
	f.expectDeleted(ctx)
}

var _ = Describe("An aggregated API server", func() {
	DescribeTable("blocks terminating namespaces while it is unavailable:",
		func(ctx context.Context, setUp func(context.Context, *fixture) string, texts ...string) {
			f := newFixture(ctx)
			f.registerAPIService(ctx, setUp(ctx, f))
			f.expectAvailable(ctx, "False")
			f.expectStuckUntilUnregistered(ctx, proven(diagnosis.CauseAPIServiceUnavailable).withEvidence(texts...))
		},
		Entry("the Service is missing", func(context.Context, *fixture) string { return "443" }, "ServiceNotFound"),
		Entry("the Service has no endpoints", func(ctx context.Context, f *fixture) string {
			f.create(ctx, strings.ReplaceAll(localhost, "{type: ExternalName, externalName: localhost}", "{ports: [{port: 443}]}"))
			return "443"
		}, "EndpointsNotFound"),
		Entry("the connection is refused", func(ctx context.Context, f *fixture) string {
			f.create(ctx, localhost)
			return "1"
		}, "FailedDiscoveryCheck"),
		Entry("the server responds with 503", func(ctx context.Context, f *fixture) string {
			f.create(ctx, localhost)
			return f.serve(map[string]response{"*": {status: http.StatusServiceUnavailable, body: "internal failure"}})
		}, "FailedDiscoveryCheck"),
	)

	It("makes discovery stale if its group list is unavailable", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, localhost)
		f.registerAPIService(ctx, f.serve(map[string]response{
			"/apis":                               {status: http.StatusServiceUnavailable, body: "internal failure"},
			"/apis/$id.aggregated.example.com/v1": {status: http.StatusOK, body: thingResources},
		}))
		f.expectAvailable(ctx, "True")
		f.expectStuckUntilUnregistered(ctx, proven(diagnosis.CauseDiscoveryStale))
	})

	It("makes discovery fail if its discovery document is invalid", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, localhost)
		f.registerAPIService(ctx, f.serve(map[string]response{
			"/apis/$id.aggregated.example.com/v1": {status: http.StatusOK, body: "not a discovery document"},
		}))
		f.expectAvailable(ctx, "True")
		f.expectStuckUntilUnregistered(ctx, proven(diagnosis.CauseDiscoveryFailing))
	})

	It("is reported if it rejects list requests", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, localhost)
		f.registerAPIService(ctx, f.serve(map[string]response{
			"/apis":                               {status: http.StatusNotFound, body: ""},
			"/apis/$id.aggregated.example.com/v1": {status: http.StatusOK, body: thingResources},
			"/apis/$id.aggregated.example.com/v1/namespaces/$ns/things": {status: http.StatusServiceUnavailable, body: storageUnavailable},
		}))
		f.expectAvailable(ctx, "True")
		f.expectStuckUntilUnregistered(ctx, proven(diagnosis.CauseAPIServiceUnavailable).withEvidence("the storage is unavailable"))
	})

	It("is reported with the missing permission if it authorizes requests again", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, localhost)
		f.create(ctx, twoConfigMaps)
		manager := "system:serviceaccount:" + controlplane.SystemNamespace + ":" + controlplane.ServiceAccount
		f.registerAPIService(ctx, f.serve(map[string]response{
			"/apis": {status: http.StatusNotFound},
			"/apis/$id.aggregated.example.com/v1": {status: http.StatusOK, body: strings.Replace(thingResources, `"resources":[`,
				`"resources":[{"name":"stores","singularName":"store","namespaced":true,"kind":"Store","verbs":["get"]},`, 1)},
			"/apis/$id.aggregated.example.com/v1/namespaces/$ns/things": {
				status: http.StatusOK, body: `{"kind":"ThingList","apiVersion":"$id.aggregated.example.com/v1","metadata":{},"items":[]}`,
				isDenied: func(user string) bool { return user == manager && !f.mayCreateStores(user) },
			},
		}))
		f.expectAvailable(ctx, "True")
		f.deleteNamespace(ctx)
		result := f.expectFindings(ctx,
			published(diagnosis.CauseForbidden, f.text("apiservices.apiregistration.k8s.io/v1.$id.aggregated.example.com")).
				withMessage(manager, f.text("cannot create stores.$id.aggregated.example.com")).
				withEvidence("kube-apiserver does not grant"))

		By("running the recommended commands")
		for _, remedy := range result.Findings[0].Remedies {
			if remedy.Changes {
				_, err := runShell(ctx, remedy.Command)
				Expect(err).NotTo(HaveOccurred())
			}
		}
		for _, object := range f.objects(grantedRole) {
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		}
		f.expectDeleted(ctx)
	})

	It("does not affect active namespaces", func(ctx context.Context) {
		f := newFixture(ctx)
		f.registerAPIService(ctx, "443")
		f.expectAvailable(ctx, "False")
		f.expectNoFindings(ctx, collector, time.Second)
	})
})
