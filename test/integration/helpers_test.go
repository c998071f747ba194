// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var counter atomic.Int32

// unique returns a name that no other spec uses: nothing but the operator's own
// deletions reclaims a namespace here.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, counter.Add(1))
}

// register puts a configuration in force for the time of one spec.
func register(ctx context.Context, name string, initializerNames ...string) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	return registerAll(ctx, wrappers.MakeConfiguration(name).Initializers(initializerNames...))
}

// registerAll is register for initializers with settings.
func registerAll(
	ctx context.Context, wrapper *wrappers.ConfigurationWrapper,
) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	configuration, name := wrapper.Obj(), wrapper.Name
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, entry := range effectiveSet(g, ctx).Initializers {
				g.Expect(entry.Configuration).NotTo(Equal(name))
			}
		}).WithContext(ctx).Should(Succeed())
		expectInjected(ctx)
	})
	expectActive(ctx, name)
	return configuration
}

// expectInjected waits until the API server injects what the set says.
func expectInjected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var names []string
		for _, entry := range effectiveSet(g, ctx).Initializers {
			names = append(names, entry.Name)
		}
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(strings.Join(names, ",")))
	}).WithContext(ctx).Should(Succeed())
}

// expectActive waits until a configuration says that it is in force.
func expectActive(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var now v1alpha1.NamespaceInitializerConfiguration
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &now)).To(Succeed())
		condition := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(metav1.ConditionTrue), condition.Message)
		g.Expect(condition.ObservedGeneration).To(Equal(now.Generation))
	}).WithContext(ctx).Should(Succeed())
}

func effectiveSet(g Gomega, ctx context.Context) *v1alpha1.NamespaceInitializerSet {
	set := &v1alpha1.NamespaceInitializerSet{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set)).To(Succeed())
	return set
}

// createNamespace creates a namespace as a user and returns what the API server made
// of it.
func createNamespace(ctx context.Context, c client.Client, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Obj()
	Expect(c.Create(ctx, namespace)).To(Succeed())
	return namespace
}

// initializing creates a namespace that waits for one initializer that nobody runs.
func initializing(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	register(ctx, prefix, "nobody.test.example.com")
	namespace := createNamespace(ctx, ordinary, unique(prefix))
	Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	return namespace
}

// serve runs an initializer for the time of one spec, with an identity of its own.
func serve(ctx context.Context, config *rest.Config, name string, work initializers.Work) {
	GinkgoHelper()
	running, err := initializers.Start(ctx, config, name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(running.Stop)
}

// finish takes the first pending initializer off the list, as the initializer user.
func finish(ctx context.Context, name string) {
	GinkgoHelper()
	clientset := newClientset(initializerConfig)
	Eventually(func() error {
		namespace, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], ",")
		return initializers.Finish(ctx, clientset, namespace, first)
	}).WithContext(ctx).Should(Succeed())
}

func newClientset(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(config))
	Expect(err).NotTo(HaveOccurred())
	return clientset
}

// The matchers of all suites.
var (
	HaveCondition = matchers.HaveCondition
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

// BeInitializing matches a namespace with the condition Initializing of this reason.
func BeInitializing(status corev1.ConditionStatus, reason string) types.GomegaMatcher {
	return HaveCondition(v1alpha1.ConditionInitializing, status, reason)
}

// conditionMessage returns the message of a namespace's condition.
func conditionMessage(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) string {
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == conditionType {
			return condition.Message
		}
	}
	return ""
}

// pendingOf returns a namespace's list.
func pendingOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
}

// NotBeDenied matches whatever error or success comes from behind the policies.
func NotBeDenied() types.GomegaMatcher {
	return Or(Not(HaveOccurred()), Not(MatchError(ContainSubstring("nslifecycle-"))))
}
