// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// newServer returns an aggregated API server with a type. It responds to requests for objects with a status.
func newServer(status *apierrors.StatusError) *framework.AggregatedServer {
	return framework.NewAggregatedServer(func(w http.ResponseWriter, _ *http.Request) {
		framework.WriteStatus(w, status)
	}, framework.MakeType("things", "list", "delete"))
}

// failAt makes a server respond to requests for a path, or for all paths, with a text.
func failAt(server *framework.AggregatedServer, path string, code int, body string) {
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		isFailing := path == "*" || r.URL.Path == path
		if isFailing {
			http.Error(w, body, code)
		}
		return isFailing
	}
}

// expectStuckUntilDeregistered requests the deletion of the namespace, expects the finding, deletes
// the APIService, and expects that the namespace is then deleted.
func (f *fixture) expectStuckUntilDeregistered(ctx context.Context, server *framework.AggregatedServer, expected expectedFinding) {
	GinkgoHelper()
	f.create(ctx, twoConfigMaps)
	f.deleteNamespace(ctx)
	expected.objects = []string{"apiservices.apiregistration.k8s.io/" + server.APIService.GetName()}
	f.expectFindings(ctx, expected.withMessage(server.Group))

	By("deleting the APIService")
	admin.Deletes(ctx, server.APIService)
	f.expectDeleted(ctx)
}

var _ = Describe("An aggregated API server", func() {
	DescribeTable("blocks terminating namespaces while it is unavailable:",
		func(ctx context.Context, reason string, breakServer func(*framework.AggregatedServer)) {
			f, server := newFixture(ctx), newServer(nil)
			breakServer(server)
			server.Register(ctx, cluster)
			expected := proven(diagnosis.CauseAPIServiceUnavailable).withEvidence(reason)
			if reason == "ServiceNotFound" {
				admin.Deletes(ctx, server.Service.DeepCopy())
				expected = expected.withMessage("Service default/" + server.Service.Name + " does not exist")
			}
			server.ExpectAvailable(ctx, "False")
			f.expectStuckUntilDeregistered(ctx, server, expected)
		},
		Entry("the Service is missing", "ServiceNotFound", func(*framework.AggregatedServer) {}),
		Entry("the connection is refused", "FailedDiscoveryCheck", func(server *framework.AggregatedServer) {
			server.Start()
			server.Stop()
		}),
	)

	It("makes discovery stale if its group list is unavailable", func(ctx context.Context) {
		f, server := newFixture(ctx), newServer(nil)
		failAt(server, "/apis", http.StatusServiceUnavailable, "internal failure")
		server.Register(ctx, cluster)
		server.ExpectAvailable(ctx, "True")
		f.expectStuckUntilDeregistered(ctx, server, proven(diagnosis.CauseDiscoveryStale))
	})

	It("is reported if it rejects list requests", func(ctx context.Context) {
		f, server := newFixture(ctx), newServer(apierrors.NewServiceUnavailable("the storage is unavailable"))
		server.IsLegacy = true
		server.Register(ctx, cluster)
		server.ExpectAvailable(ctx, "True")
		f.expectStuckUntilDeregistered(ctx, server, proven(diagnosis.CauseAPIServiceUnavailable).withEvidence("the storage is unavailable"))
	})

	It("is reported with the missing permission if it authorizes requests again", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		var server *framework.AggregatedServer
		server = framework.NewAggregatedServer(func(w http.ResponseWriter, r *http.Request) {
			user := r.Header.Get("X-Remote-User")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "create", Group: server.Group, Resource: "stores", Namespace: f.ns,
				},
			}}
			if user == framework.ManagerUser && (admin.Create(r.Context(), review) != nil || !review.Status.Allowed) {
				framework.WriteStatus(w, apierrors.NewForbidden(schema.GroupResource{Group: server.Group, Resource: "things"}, "",
					fmt.Errorf("User %q cannot create resource \"stores\" in API group %q in the namespace %q", user, server.Group, f.ns)))
				return
			}
			framework.WriteList(w, metav1.ListMeta{})
		}, framework.MakeType("stores", "get"), framework.MakeType("things", "list", "delete"))
		server.IsLegacy = true
		server.Register(ctx, cluster)
		server.ExpectAvailable(ctx, "True")
		f.deleteNamespace(ctx)
		result := f.expectFindings(ctx,
			published(diagnosis.CauseForbidden, "apiservices.apiregistration.k8s.io/"+server.APIService.GetName()).
				withMessage(framework.ManagerUser, "cannot create stores."+server.Group).withEvidence("kube-apiserver does not grant"))

		By("running the recommended commands")
		for _, remedy := range result.Findings[0].Remedies {
			if remedy.Changes {
				_, err := runShell(ctx, remedy.Command)
				Expect(err).NotTo(HaveOccurred())
			}
		}
		meta := metav1.ObjectMeta{Name: "create-stores." + server.Group}
		for _, object := range []client.Object{&rbacv1.ClusterRole{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta}} {
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		}
		f.expectDeleted(ctx)
	})
})
