// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// With config/compat, users can write to a new namespace until the operator injects the pending
// list. In the meantime, the creator must not be able to prevent the injection.
var _ = Describe("An installation of config/compat", Ordered, ContinueOnFailure, func() {
	var compat *framework.Cluster

	BeforeAll(func(ctx context.Context) {
		compat = framework.Start(ctx)
		compat.StartObserver(ctx)
		compat.Install(ctx, "compat")
		compat.StartManager(ctx)
		Expect(compat.Admin.Create(ctx, wrappers.MakeConfiguration("compat").Initializers("absent.test.example.com").Obj())).To(Succeed())
		compat.ExpectActive(ctx, "compat")
	}, NodeTimeout(5*time.Minute))

	expectInjected := func(ctx context.Context, name string) *corev1.Namespace {
		GinkgoHelper()
		var now *corev1.Namespace
		Eventually(func(g Gomega) {
			now = compat.GetNamespace(g, ctx, name)
			g.Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			g.Expect(framework.PendingOf(now)).To(Equal("absent.test.example.com"))
		}).WithContext(ctx).Should(Succeed())
		return now
	}

	It("does not let a creator mark a namespace as processed by the operator", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("seen")).
			Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse}).Obj()
		Expect(compat.Ordinary.Create(ctx, namespace)).To(Succeed())
		expectInjected(ctx, namespace.Name)
		for _, body := range []string{
			`{"status":{"conditions":[{"type":"Initializing","status":"False"}]}}`,
			`{"status":{"conditions":null}}`,
		} {
			compat.StopManager()
			other := framework.CreateNamespace(ctx, compat.Ordinary, framework.Unique("seen"))
			err := compat.Ordinary.Status().Patch(ctx, other.DeepCopy(), mergePatch(body))
			if !strings.Contains(body, "null") {
				Expect(err).To(BeForbiddenBy("guard"))
			}
			compat.StartManager(ctx)
			expectInjected(ctx, other.Name)
		}
	}, SpecTimeout(10*time.Minute))

	It("does not let a creator set the state of an initialization", func(ctx context.Context) {
		compat.StopManager()
		namespace := framework.CreateNamespace(ctx, compat.Ordinary, framework.Unique("planted"))
		for _, key := range []string{
			v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy,
			v1alpha1.AnnotationInjectedAt, v1alpha1.AnnotationInitializationResult, v1alpha1.AnnotationSelectedTemplates,
		} {
			for _, value := range []string{"", "x"} {
				By(key + "=" + value)
				Expect(compat.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`))).
					To(BeDeniedBy("guard"))
				Expect(compat.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("planted")).Annotation(key, value).Obj())).
					To(Or(BeDeniedBy("guard"), BeDeniedBy("templates")), "the API server names one of several policies")
			}
		}
		Expect(compat.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(`{"metadata":{"labels":{"`+v1alpha1.LabelInitializing+`":""}}}`))).
			To(BeDeniedBy("guard"))
		for _, size := range []int{132 << 10, 255 << 10} {
			Expect(compat.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"a":"`+strings.Repeat("x", size)+`"}}}`))).
				To(BeDeniedBy("guard"))
		}
		compat.StartManager(ctx)
		expectInjected(ctx, namespace.Name)

		By("moving the text of one annotation to another")
		Expect(compat.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		for _, annotations := range []map[string]any{
			{v1alpha1.AnnotationRequestedBy: namespace.Annotations[v1alpha1.AnnotationInitializers], v1alpha1.AnnotationInitializers: nil},
			{
				v1alpha1.AnnotationRequestedBy:  namespace.Annotations[v1alpha1.AnnotationInitializers],
				v1alpha1.AnnotationInitializers: namespace.Annotations[v1alpha1.AnnotationInjectedAt], v1alpha1.AnnotationInjectedAt: nil,
			},
		} {
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
			Expect(err).NotTo(HaveOccurred())
			Expect(compat.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(string(body)))).To(BeDeniedBy("guard"))
		}
	}, SpecTimeout(5*time.Minute))

	for name, verb := range map[string]string{"with": "initialize", "without": "get"} {
		It("does not let a user "+name+" the initialize verb inject a pending list", func(ctx context.Context) {
			user := compat.AddUserWithRules(ctx, framework.Unique(name)+"@corp.example.com", rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"}, Verbs: []string{"create", "update", "patch", "get", verb},
			})
			compat.StopManager()
			DeferCleanup(func(ctx context.Context) { compat.StartManager(ctx) })
			var namespace *corev1.Namespace
			Eventually(func() error {
				namespace = wrappers.MakeNamespace(framework.Unique("inject")).Obj()
				return user.Create(ctx, namespace)
			}).WithContext(ctx).Should(Succeed())
			Expect(user.Patch(ctx, namespace, mergePatch(`{"metadata":{"labels":{"`+v1alpha1.LabelInitializing+`":"true"},"annotations":{`+
				`"`+v1alpha1.AnnotationPendingInitializers+`":"mine.example.com","`+v1alpha1.AnnotationInitializers+`":"mine.example.com",`+
				`"`+v1alpha1.AnnotationInjectedAt+`":"2026-01-01T00:00:00Z"}}}`))).To(BeDeniedBy("guard"))
		}, SpecTimeout(5*time.Minute))
	}

	for name, enlarge := range map[string]func(*corev1.Namespace, int){
		"a large owner reference": func(n *corev1.Namespace, size int) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Filler", Name: strings.Repeat("x", size), UID: "u"}}
		},
	} {
		It("does not let a creator prevent the injection with "+name, func(ctx context.Context) {
			var namespace *corev1.Namespace
			// The first size is approximately the maximum that etcd accepts.
			for _, size := range []int{1572352, 1572096, 1571840, 1 << 20, 256 << 10, 120 << 10} {
				namespace = wrappers.MakeNamespace(framework.Unique("large")).Obj()
				enlarge(namespace, size)
				if compat.Ordinary.Create(ctx, namespace) == nil {
					AddReportEntry("size", fmt.Sprint(size))
					break
				}
			}
			expectInjected(ctx, namespace.Name)
		}, SpecTimeout(5*time.Minute))
	}

	It("does not let a creator prevent the injection with continuous updates", func(ctx context.Context) {
		for range 5 {
			name := framework.Unique("busy")
			begin := time.Now()
			framework.CreateNamespace(ctx, compat.Ordinary, name)
			stop := keepAnnotating(ctx, compat.Ordinary, name)
			DeferCleanup(stop)
			expectInjected(ctx, name)
			AddReportEntry("time until the injection", time.Since(begin).String())
			stop()
		}
	}, SpecTimeout(5*time.Minute))

	It("does not let a creator choose the creation timestamp of a namespace", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("old")).Obj()
		namespace.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
		Expect(compat.Ordinary.Create(ctx, namespace)).To(Succeed())
		expectInjected(ctx, namespace.Name)
		var now corev1.Namespace
		Expect(compat.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), &now)).To(Succeed())
		Expect(time.Since(now.CreationTimestamp.Time)).To(BeNumerically("<", time.Minute))
	}, SpecTimeout(5*time.Minute))
})
