// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const preExistingName = "pre-existing"

// cluster is shared by all specs.
var cluster *framework.Cluster

func TestInitialization(t *testing.T) { framework.RunSuite(t, "Initialization") }

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	// This namespace is older than the installation of this project.
	framework.CreateNamespace(ctx, cluster.Admin, preExistingName)
	cluster.Install(ctx, "default")
	cluster.StartManager(ctx)
	cluster.ExpectInjected(ctx)
	// The API server recognizes the parameter kind of the policies for templates after some time.
	Eventually(func() error {
		const template = `{apiVersion: nslifecycle.dev/v1alpha1, kind: NamespaceTemplate, metadata: {name: probe}, spec: {
			serviceAccountName: a, objects: [{name: a, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}]}}`
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, template, "create", "--dry-run=server", "-f", "-")
		return err
	}).WithContext(ctx).Should(Succeed())
})

// serve runs an initializer until the spec ends.
func serve(ctx context.Context, config *rest.Config, name string, work initializers.Work) {
	GinkgoHelper()
	running, err := initializers.Start(ctx, config, name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(running.Stop)
}

// initializer returns an entry of a configuration.
func initializer(name string) v1alpha1.NamespaceInitializer {
	return v1alpha1.NamespaceInitializer{Name: name}
}

// limited returns an entry with a timeout.
func limited(name string, seconds int32, policy v1alpha1.FailurePolicy) v1alpha1.NamespaceInitializer {
	entry := initializer(name)
	entry.TimeoutSeconds, entry.FailurePolicy = &seconds, policy
	return entry
}

// register creates a configuration for one spec and waits until it is enforced.
func register(ctx context.Context, entries ...v1alpha1.NamespaceInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	wrapper := wrappers.MakeConfiguration(framework.Unique("c"))
	wrapper.NamespaceInitializerConfiguration.Initializers = entries
	return cluster.RegisterConfiguration(ctx, wrapper)
}

// registered returns the initializers in the effective set without that of CreateInitializing.
func registered(g Gomega, ctx context.Context) []internalv1alpha1.EffectiveInitializer {
	return slices.DeleteFunc(cluster.EffectiveSet(g, ctx).Initializers, func(entry internalv1alpha1.EffectiveInitializer) bool {
		return entry.Name == framework.Absent
	})
}

// expectWritable waits until a namespace is initialized and ordinary users can write to it.
func expectWritable(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	var now *corev1.Namespace
	Eventually(func(g Gomega) {
		now = cluster.GetNamespace(g, ctx, name)
		g.Expect(now).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))
	}).WithContext(ctx).Should(Succeed())
	Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
	// For a few milliseconds, the API server can evaluate a stale Namespace.
	Eventually(func() error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, "late"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	return now
}

// expectEvent waits for an Event about the namespace that has the reason and whose note contains the values.
func expectEvent(ctx context.Context, namespace *corev1.Namespace, reason string, values ...string) {
	GinkgoHelper()
	note := Not(BeEmpty())
	for _, value := range values {
		note = And(note, ContainSubstring(value))
	}
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(
			HaveField("Regarding.UID", namespace.UID), HaveField("Reason", reason), HaveField("Note", note))))
	}).WithContext(ctx).Should(Succeed())
}

func ownCondition(initializer string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(initializer + v1alpha1.ConditionInitializedSuffix)
}

// beInTurn matches a namespace that records the start of the turn of an initializer.
func beInTurn(initializer string) types.GomegaMatcher {
	return HaveField("Annotations", HaveKeyWithValue(v1alpha1.AnnotationTurnStartedAt, HavePrefix(initializer+" ")))
}

var (
	HaveCondition  = matchers.HaveCondition
	BeDeniedBy     = matchers.BeDeniedBy
	BeForbiddenBy  = matchers.BeForbiddenBy
	BeInitializing = matchers.BeInitializing
)
