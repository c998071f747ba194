// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Register registers initializers until the spec ends, and waits until the API server injects them
// into new namespaces.
func (c *Cluster) Register(ctx context.Context, name string, initializerNames ...string) {
	GinkgoHelper()
	c.RegisterConfiguration(ctx, wrappers.MakeConfiguration(name).Initializers(initializerNames...))
}

// RegisterConfiguration is like Register, but accepts initializers with settings.
func (c *Cluster) RegisterConfiguration(
	ctx context.Context, wrapper *wrappers.ConfigurationWrapper,
) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	configuration, name := wrapper.Obj(), wrapper.Name
	Expect(c.Admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(c.Admin.Delete(ctx, configuration))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, entry := range c.EffectiveSet(g, ctx).Initializers {
				g.Expect(entry.Configuration).NotTo(Equal(name))
			}
		}).WithContext(ctx).Should(Succeed())
		c.ExpectInjected(ctx)
	})
	c.ExpectActive(ctx, name)
	return configuration
}

// ExpectInjected waits until the API server injects the initializers in the NamespaceInitializerSet
// into new namespaces, and removes keys that users must not set.
func (c *Cluster) ExpectInjected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var names []string
		for _, entry := range c.EffectiveSet(g, ctx).Initializers {
			names = append(names, entry.Name)
		}
		const forged = v1alpha1.Prefix + "probe"
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "probe-", Annotations: map[string]string{forged: "x"},
		}}
		g.Expect(c.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).NotTo(HaveKey(forged))
		g.Expect(PendingOf(probe)).To(Equal(strings.Join(names, ",")))
	}).WithContext(ctx).Should(Succeed())
}

// ExpectActive waits until the Active condition of a configuration is True for its current
// generation.
func (c *Cluster) ExpectActive(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var now v1alpha1.NamespaceInitializerConfiguration
		g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, &now)).To(Succeed())
		condition := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(metav1.ConditionTrue), condition.Message)
		g.Expect(condition.ObservedGeneration).To(Equal(now.Generation))
	}).WithContext(ctx).Should(Succeed())
}

// EffectiveSet returns the NamespaceInitializerSet that the inject policy uses.
func (c *Cluster) EffectiveSet(g Gomega, ctx context.Context) *v1alpha1.NamespaceInitializerSet {
	set := &v1alpha1.NamespaceInitializerSet{}
	g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set)).To(Succeed())
	return set
}

// CreateNamespace creates a namespace as a user and returns the namespace in the response.
func CreateNamespace(ctx context.Context, user client.Client, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Obj()
	Expect(user.Create(ctx, namespace)).To(Succeed())
	return namespace
}

// CreateInitializing registers an initializer that is not running, and creates a namespace as the
// ordinary user. The namespace is initializing until Finish is called.
func (c *Cluster) CreateInitializing(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	c.Register(ctx, prefix, "absent.test.example.com")
	namespace := CreateNamespace(ctx, c.Ordinary, Unique(prefix))
	Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	return namespace
}

// Finish removes the first entry of the pending list of a namespace as the initializer user.
func (c *Cluster) Finish(ctx context.Context, name string) {
	GinkgoHelper()
	clientset := c.Initializer.Clientset()
	Eventually(func() error {
		namespace, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(PendingOf(namespace), ",")
		if first == "" {
			return fmt.Errorf("namespace %s has no pending initializers", name)
		}
		return initializers.Finish(ctx, clientset, namespace, first)
	}).WithContext(ctx).Should(Succeed())
}

// GetNamespace returns the current namespace.
func (c *Cluster) GetNamespace(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// ExpectDeleted waits until an object no longer exists.
func ExpectDeleted(ctx context.Context, reader client.Reader, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return reader.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), "%T %s still exists", object, object.GetName())
}

// ConditionMessage returns the message of a namespace's condition, or "" if there is no such
// condition.
func ConditionMessage(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) string {
	if condition := nscondition.Find(namespace, conditionType); condition != nil {
		return condition.Message
	}
	return ""
}

// PendingOf returns a namespace's pending list.
func PendingOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
}
