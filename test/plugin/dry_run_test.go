// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// thingServer is an aggregated API server with one terminating object in a namespace. It counts the requests that
// change objects, and would ignore the option dryRun.
type thingServer struct {
	*framework.AggregatedServer
	namespace string
	lock      sync.Mutex
	writes    []string
}

func (s *thingServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		s.lock.Lock()
		s.writes = append(s.writes, r.Method+" "+r.URL.String())
		s.lock.Unlock()
	}
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "thing", UID: "thing-uid", ResourceVersion: "1", Finalizers: []string{testFinalizer},
		CreationTimestamp: metav1.Now(), DeletionTimestamp: new(metav1.Now()),
	}}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
	object.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	switch {
	case r.URL.Query().Get("watch") != "":
		framework.WriteStatus(w, apierrors.NewMethodNotSupported(corev1.Resource("things"), "watch"))
		return
	case strings.HasSuffix(r.URL.Path, "/"+object.Name):
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
		return
	case strings.HasSuffix(r.URL.Path, "/namespaces/"+s.namespace+"/things"):
		list.Items = append(list.Items, object)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func (s *thingServer) received() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.writes
}

var _ = Describe("Dry runs", func() {
	It("are not sent to aggregated API servers", func(ctx context.Context) {
		server := &thingServer{namespace: unique("things")}
		server.AggregatedServer = framework.NewAggregatedServer(server.serve,
			framework.MakeType("things", "create", "delete", "get", "list", "patch"))
		server.Register(ctx, plane)
		server.ExpectDiscovered(ctx)
		user := newUser(plane.Admin.Config)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: server.namespace}}
		admin.Creates(ctx, namespace)

		By("comparing a template")
		tmpl := newTemplate(unique("things"))
		tmpl.Spec.Variables = nil
		tmpl.Spec.Parameters = nil
		tmpl.Spec.Scope = v1alpha1.ScopeAllNamespaces
		tmpl.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{
			corev1.LabelMetadataName: v1alpha1.LabelValue(namespace.Name),
		}}
		tmpl.Spec.Objects = []v1alpha1.TemplateObject{{Name: "thing", Template: &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"` + server.Group + `/v1","kind":"Thing","metadata":{"name":"thing"},"spec":{"size":9}}`)}}}
		compared := user.run(ctx, "template", "diff", "-f", writeTemplate(user, tmpl))
		Expect(compared.code).To(BeZero(), compared.stderr)
		Expect(compared.stdout).To(ContainSubstring("Namespace " + namespace.Name + ": "))
		Expect(unwrap(compared.stderr)).To(ContainSubstring("no dry run is sent for objects of %s/v1", server.Group))

		By("planning the removal of a finalizer")
		admin.Deletes(ctx, namespace)
		planned := user.run(ctx, "finalize", namespace.Name, "--finalizer="+testFinalizer, "--ignore-active-owner")
		Expect(planned.code).To(BeZero(), planned.stderr)
		Expect(planned.stdout).To(ContainSubstring("Remove: "))
		Expect(unwrap(planned.stderr)).To(And(ContainSubstring("no dry run is sent for objects of %s/v1", server.Group),
			ContainSubstring("Nothing was changed (dry run)")))

		By("refusing to remove the finalizer without a confirmation")
		refused := user.run(ctx, "finalize", namespace.Name, "--finalizer="+testFinalizer, "--ignore-active-owner",
			"--dry-run=false", "--confirm=another")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(ContainSubstring("refused, nothing was changed"))
		Expect(server.received()).To(BeEmpty())
	})
})
