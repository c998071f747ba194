// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// unique returns a name that no other spec of this process uses.
var unique = framework.Unique

// register registers a configuration until the end of the spec, and waits until it is active.
func register(ctx context.Context, name string, names ...string) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration(name).Initializers(names...).Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(deregister, configuration)
	expectActive(ctx, name, metav1.ConditionTrue, v1alpha1.ReasonEnforced)
}

// deregister deletes a configuration, and waits until no new namespace gets its initializers.
func deregister(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
	Eventually(func(g Gomega) {
		set := &v1alpha1.NamespaceInitializerSet{}
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set)).To(Succeed())
		var left []string
		for _, entry := range set.Initializers {
			g.Expect(entry.Configuration).NotTo(Equal(configuration.Name))
			left = append(left, entry.Name)
		}
		// The API server or the operator, whichever injects the pending list, uses a cached set.
		probe := wrappers.MakeNamespace(unique("probe")).Obj()
		if byOperator {
			probe = create(ctx, probe.Name)
			Eventually(func(g Gomega) {
				probe = get(g, ctx, probe.Name)
				g.Expect(nscondition.Find(probe, v1alpha1.ConditionInitializing)).NotTo(BeNil())
			}).WithContext(ctx).Should(Succeed())
		} else {
			g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		}
		g.Expect(probe.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(strings.Join(left, ",")))
	}).WithContext(ctx).Should(Succeed())
}

// expectActive waits for the Active condition of a configuration, and returns its message.
func expectActive(ctx context.Context, name string, status metav1.ConditionStatus, reason string) string {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		var now v1alpha1.NamespaceInitializerConfiguration
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &now)).To(Succeed())
		condition := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(condition).NotTo(BeNil())
		message = condition.Message
		g.Expect(condition.Status).To(Equal(status), message)
		g.Expect(condition.Reason).To(Equal(reason), message)
		g.Expect(condition.ObservedGeneration).To(Equal(now.Generation))
	}).WithContext(ctx).Should(Succeed())
	return message
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// create creates a namespace as the ordinary user.
func create(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Obj()
	Expect(ordinary.Create(ctx, namespace)).To(Succeed())
	return namespace
}

// createInjected creates a namespace, and waits until it has the pending list and the Initializing
// condition.
func createInjected(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	created := create(ctx, name)
	if !byOperator {
		Expect(created.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	}
	return expectPending(ctx, name)
}

func expectPending(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	var namespace *corev1.Namespace
	Eventually(func(g Gomega) {
		namespace = get(g, ctx, name)
		g.Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		g.Expect(namespace).To(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonPending))
	}).WithContext(ctx).Should(Succeed())
	return namespace
}

// expectWritable waits until the Initializing condition has the reason, and ordinary users can write
// to the namespace.
func expectWritable(ctx context.Context, name, reason string) *corev1.Namespace {
	GinkgoHelper()
	var namespace *corev1.Namespace
	Eventually(func(g Gomega) {
		namespace = get(g, ctx, name)
		g.Expect(namespace).To(BeInitializing(corev1.ConditionFalse, reason))
		g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		g.Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
	}).WithContext(ctx).Should(Succeed())
	// The gate reads the Namespace from the API server's watch cache, which can be stale.
	Eventually(ordinary.Create).WithContext(ctx).
		WithArguments(wrappers.MakeConfigMap(name, unique("open"))).Should(Succeed())
	return namespace
}

func expectDeleted(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
}

// serve runs an initializer until the end of the spec.
func serve(ctx context.Context, name string, work initializers.Work) {
	GinkgoHelper()
	running, err := initializers.Start(ctx, initializerConfig, name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(running.Stop)
}

// finish removes the first pending initializer from the list, as the initializer user.
func finish(ctx context.Context, name string) {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(initializerConfig))
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		namespace, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], ",")
		return initializers.Finish(ctx, clientset, namespace, first)
	}).WithContext(ctx).Should(Succeed())
}

// plugin runs `kubectl nslifecycle` as an administrator and returns its output. It returns an error
// if the exit status is not 0.
func plugin(ctx context.Context, args ...string) (string, error) {
	GinkgoHelper()
	kubeconfig := filepath.Join(plane.Dir, unique("kubeconfig"))
	Expect(controlplane.WriteKubeconfig(kubeconfig, plane.Admin)).To(Succeed())
	command := exec.CommandContext(ctx, filepath.Join(bin, "kubectl-nslifecycle"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	output, err := command.CombinedOutput()
	return string(output), err
}

// BeInitializing matches a namespace whose Initializing condition has the given status and reason.
func BeInitializing(status corev1.ConditionStatus, reason string) types.GomegaMatcher {
	return matchers.HaveCondition(v1alpha1.ConditionInitializing, status, reason)
}

// BeDeniedBy is matchers.BeDeniedBy.
var BeDeniedBy = matchers.BeDeniedBy
