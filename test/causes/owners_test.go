// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// heldSettings is a ConfigMap with a finalizer whose owner leaves no trace.
const heldSettings = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: $ns, name: held, finalizers: [` + testFinalizer + `]}
`

var _ = Describe("A finalizer", func() {
	It("whose owner is alive waits for it", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.createOperator(ctx)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerPending, s.text("widgets.$id.example.com/held")).
			saying(s.text("$id.example.com/cleanup"), "widget-operator"))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})

	DescribeTable("whose owner is dead, as", func(ctx context.Context, kill func(context.Context, *scene), b blame) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.createOperator(ctx)
		kill(ctx, s)
		s.end(ctx)
		b.objects = []string{s.text("widgets.$id.example.com/held")}
		s.expectBlamed(ctx, b.saying(s.text("$id.example.com/cleanup")))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	},
		Entry("its Deployment is scaled to zero and its Lease is old", func(ctx context.Context, s *scene) {
			s.scaleOperator(ctx, 0)
			s.ageLease(ctx)
		}, confirmed(diagnosis.CauseFinalizerOwnerGone).since("widget-operator has 0 of 0 pods ready")),
		Entry("its Deployment has no ready pods", func(ctx context.Context, s *scene) {
			s.scaleOperator(ctx, 1)
			s.ageLease(ctx)
		}, confirmed(diagnosis.CauseFinalizerOwnerGone).since("widget-operator has 0 of 1 pods ready")),
		Entry("its Deployment is deleted and its Lease is old", func(ctx context.Context, s *scene) {
			s.delete(ctx, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: $id-system, name: widget-operator}}`)
			s.delete(ctx, operatorPod)
			s.ageLease(ctx)
		}, likely(diagnosis.CauseFinalizerOwnerGone).saying("was renewed")),
		Entry("its namespace is deleted, but not its binding", func(ctx context.Context, s *scene) {
			s.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
			(&scene{ns: s.text("$id-system")}).expectGone(ctx)
		}, likely(diagnosis.CauseFinalizerOwnerGone).saying("ServiceAccount")),
		Entry("all but the CRD is uninstalled", func(ctx context.Context, s *scene) {
			s.delete(ctx, `
{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: $id-widget-operator}}
`)
			(&scene{ns: s.text("$id-system")}).expectGone(ctx)
		}, likely(diagnosis.CauseFinalizerOwnerGone)),
	)

	It("whose owner may not do its work any more", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.createOperator(ctx)
		s.delete(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-widget-operator}
`)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseFinalizerOwnerForbidden, s.text("widgets.$id.example.com/held")).
			saying(s.text("$id-system"), "widget-operator"))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})

	It("whose owner was in the namespace and is gone with it", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.create(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-widget-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: ServiceAccount, namespace: $ns, name: $id-widget-operator}
`)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerInNamespace, s.text("widgets.$id.example.com/held")).
			saying("ServiceAccount", s.ns))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})

	It("whose owner leaves no trace", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, heldSettings)
		s.create(ctx, `
{apiVersion: v1, kind: Secret, metadata: {namespace: $ns, name: also-held, finalizers: [`+testFinalizer+`]}}
`)
		s.end(ctx)
		result := s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerGone, "configmaps/held", "secrets/also-held").
			saying(testFinalizer))
		Expect(result.Findings[0].Count).To(Equal(2))
		release(ctx, s.objects(heldSettings)[0])
		release(ctx, s.objects(`{apiVersion: v1, kind: Secret, metadata: {namespace: $ns, name: also-held}}`)[0])
		s.expectGone(ctx)
	})

	It("whose name tells nothing of its owner", func(ctx context.Context) {
		s := newScene(ctx)
		const held = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: $ns, name: held, finalizers: [kubernetes]}
`
		s.create(ctx, held)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerPending, "configmaps/held"))
		release(ctx, s.objects(held)[0])
		s.expectGone(ctx)
	})

	It("on many objects is one finding, with a few names and the number of all", func(ctx context.Context) {
		s := newScene(ctx)
		for i := range 30 {
			s.create(ctx, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: held-%02d, finalizers: [`+testFinalizer+`]}}
`, i))
		}
		s.end(ctx)
		result := s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerGone, "configmaps/held-00", "configmaps/held-01",
			"configmaps/held-02", "configmaps/held-03", "configmaps/held-04").saying("30 configmaps"))
		Expect(result.Findings[0].Count).To(Equal(30))
	})
})

// scaleOperator leaves the operator of the scene no ready pods.
func (s *scene) scaleOperator(ctx context.Context, replicas int32) {
	GinkgoHelper()
	s.delete(ctx, operatorPod)
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = s.text("$id-system"), "widget-operator"
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		deployment.Spec.Replicas = &replicas
		g.Expect(admin.Update(ctx, deployment)).To(Succeed())
		deployment.Status = appsv1.DeploymentStatus{Replicas: replicas}
		g.Expect(admin.Status().Update(ctx, deployment)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// ageLease makes the Lease of the operator of the scene one that nobody has renewed for an
// hour.
func (s *scene) ageLease(ctx context.Context) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = s.text("$id-system"), s.text("widgets.$id.example.com")
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	Expect(admin.Update(ctx, lease)).To(Succeed())
}

// addToken makes an agent answer for the namespace.
func (s *scene) addToken(ctx context.Context, token corev1.FinalizerName) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := s.namespace(g, ctx) // The manager writes its status meanwhile.
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, token)
		g.Expect(admin.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The Namespace itself", func() {
	It("has a token that an agent has not released", func(ctx context.Context) {
		s := newScene(ctx)
		s.addToken(ctx, "agent.example.org/origin")
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseNamespaceFinalizer, "namespaces/"+s.ns).saying("agent.example.org/origin"))
		finalize(ctx, s.ns, corev1.FinalizerKubernetes)
		s.expectGone(ctx)
	})

	It("has the token of an initializer whose agent does not run", func(ctx context.Context) {
		configuration := wrappers.MakeConfiguration("search").Initializer("index.search.example.com",
			v1alpha1.InitializerSettings{Finalizer: "search.example.com/index", NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"search.example.com/indexed": "true"},
			}}).Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, configuration)).To(Succeed()) })
		s := newScene(ctx)
		s.addToken(ctx, "search.example.com/index")
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseNamespaceFinalizer, "namespaces/"+s.ns).saying("search.example.com/index",
			"initializer index.search.example.com", `configuration "search"`))
		finalize(ctx, s.ns, corev1.FinalizerKubernetes)
		s.expectGone(ctx)
	})

	It("has a finalizer that somebody has left behind", func(ctx context.Context) {
		s := newScene(ctx)
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":["controller.cattle.io/namespace-auth"]}}`))
		Expect(admin.Patch(ctx, s.namespace(Default, ctx), patch)).To(Succeed())
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseNamespaceMetadataFinalizer, "namespaces/"+s.ns).
			saying("controller.cattle.io/namespace-auth"))
		release(ctx, s.namespace(Default, ctx))
		s.expectGone(ctx)
	})

	It("has both, beside an object that is held", func(ctx context.Context) {
		s := newScene(ctx)
		s.addToken(ctx, "agent.example.org/origin")
		s.create(ctx, heldSettings)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerGone, "configmaps/held"))
		release(ctx, s.objects(heldSettings)[0])
		s.expectNoMore(ctx, diagnosis.CauseFinalizerOwnerGone)
		// Until then the controller has still something to do, for longer than the suite's patience
		// where the machine is busy.
		Eventually(func(g Gomega) []corev1.FinalizerName { return s.namespace(g, ctx).Spec.Finalizers }).
			WithContext(ctx).ShouldNot(ContainElement(corev1.FinalizerKubernetes))
		s.expectBlamed(ctx, confirmed(diagnosis.CauseNamespaceFinalizer, "namespaces/"+s.ns))
		finalize(ctx, s.ns, corev1.FinalizerKubernetes)
		s.expectGone(ctx)
	})
})
