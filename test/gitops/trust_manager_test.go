// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	trustv1alpha1 "github.com/cert-manager/trust-manager/pkg/apis/trust/v1alpha1"
	"github.com/cert-manager/trust-manager/pkg/bundle"
	"github.com/cert-manager/trust-manager/pkg/bundle/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/knownwriters"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// trust-manager writes a ConfigMap into every namespace that a Bundle selects. It stops at the first write that is
// rejected, in random order.
var _ = Describe("trust-manager", Ordered, func() {
	const other = "bundle-initialized"
	var bundles client.Client
	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		cluster.StartHoldingManager(ctx)
		DeferCleanup(func(ctx context.Context) {
			cluster.StopManager()
			cluster.StartManager(ctx, withAllControllers)
		})
		framework.CreateNamespace(ctx, cluster.Ordinary, other)
		bundles = startTrustManager(ctx)
	})

	// fill creates a Bundle and initializing namespaces, and returns their names and how long the namespaces delay a
	// write to an initialized one.
	fill := func(ctx context.Context, name string, selector *metav1.LabelSelector) (names []string, delay time.Duration) {
		GinkgoHelper()
		trusted := &trustv1alpha1.Bundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: trustv1alpha1.BundleSpec{
				Sources: []trustv1alpha1.BundleSource{{InLine: string(cluster.Admin.Config.CAData)}},
				Target: trustv1alpha1.BundleTarget{
					ConfigMap:         &trustv1alpha1.TargetTemplate{Key: "ca.crt"},
					NamespaceSelector: selector,
				},
			},
		}
		Expect(bundles.Create(ctx, trusted)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(bundles.Delete(ctx, trusted)).To(Succeed()) })
		expectBundle(ctx, other, name, time.Minute)
		for range 20 {
			names = append(names, cluster.CreateInitializing(ctx, name).Name)
		}
		Expect(cluster.Admin.Delete(ctx, wrappers.MakeConfigMap(other, name))).To(Succeed())
		start := time.Now()
		finish := time.AfterFunc(30*time.Second, func() {
			defer GinkgoRecover()
			for _, name := range names {
				cluster.Finish(context.Background(), name)
			}
		})
		DeferCleanup(finish.Stop)
		expectBundle(ctx, other, name, 3*time.Minute)
		return names, time.Since(start)
	}

	It("is delayed by initializing namespaces", Label("long"), func(ctx context.Context) {
		names, delay := fill(ctx, "unlimited", nil)
		for _, name := range names {
			expectBundle(ctx, name, "unlimited", 3*time.Minute)
		}
		AddReportEntry("delay", delay.String())
	}, SpecTimeout(5*time.Minute))

	It("is not delayed if its Bundles exclude them, and writes when they are initialized", func(ctx context.Context) {
		writer := known("trust-manager")
		Expect(writer.Advice).To(Equal(knownwriters.Exclude))
		_, requirement, _ := strings.Cut(writer.Setting, ": ")
		var exclusion metav1.LabelSelectorRequirement
		Expect(yaml.UnmarshalStrict([]byte(requirement), &exclusion)).To(Succeed())
		names, delay := fill(ctx, "excluding", &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{exclusion},
		})
		Expect(delay).To(BeNumerically("<", 5*time.Second))
		cluster.Finish(ctx, names[0])
		start := time.Now()
		expectBundle(ctx, names[0], "excluding", 5*time.Second)
		AddReportEntry("delays", fmt.Sprintf("another namespace %s, after the initialization %s", delay, time.Since(start)))
	})

	It("writes to initializing namespaces if it may provision them", func(ctx context.Context) {
		cluster.Bind(ctx, "trust-manager-provisioner", []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision},
		}}, subjectOf(known("trust-manager")))
		names, delay := fill(ctx, "provisioning", nil)
		Expect(delay).To(BeNumerically("<", 20*time.Second))
		for _, name := range names {
			expectBundle(ctx, name, "provisioning", time.Second)
			Expect(cluster.GetNamespace(Default, ctx, name).Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}
	})
})

func expectBundle(ctx context.Context, namespace, name string, within time.Duration) {
	GinkgoHelper()
	Eventually(func() error {
		return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ConfigMap{})
	}).WithContext(ctx).WithTimeout(within).Should(Succeed())
}

func known(name string) knownwriters.Writer {
	GinkgoHelper()
	for _, writer := range knownwriters.All() {
		if writer.Name == name {
			return writer
		}
	}
	Fail("no known writer " + name)
	return knownwriters.Writer{}
}

func subjectOf(writer knownwriters.Writer) rbacv1.Subject {
	account := writer.ServiceAccounts[0]
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}
}

// startTrustManager runs the controller of trust-manager, with the permissions in its chart, until the container ends.
// It returns a client for Bundles.
func startTrustManager(ctx context.Context) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, trustv1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	bundles, err := client.New(cluster.Admin.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	installBundles(ctx, bundles)

	writer := known("trust-manager")
	account := writer.ServiceAccounts[0]
	framework.CreateNamespace(ctx, cluster.Admin, account.Namespace)
	Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name},
	})).To(Succeed())
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "create", "patch", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"trust.cert-manager.io"}, Resources: []string{"bundles"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"trust.cert-manager.io"}, Resources: []string{"bundles/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{"trust.cert-manager.io"}, Resources: []string{"bundles/status"}, Verbs: []string{"patch"}},
	}
	cluster.Bind(ctx, "trust-manager", rules, subjectOf(writer))
	restConfig, err := cluster.ServiceAccountConfig(ctx, account.Namespace, account.Name)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, restConfig, rules[0])

	options := controller.Options{Namespace: account.Namespace}
	manager, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Cache: bundle.CacheOpts(options), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	Expect(bundle.SetupWithManager(running, manager, options)).To(Succeed())
	done := make(chan error, 1)
	go func() { done <- manager.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	return bundles
}

// installBundles installs the CRD of Bundles from the module of trust-manager.
func installBundles(ctx context.Context, admin client.Client) {
	GinkgoHelper()
	directory, err := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Dir}}", "github.com/cert-manager/trust-manager").Output()
	Expect(err).NotTo(HaveOccurred())
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)),
		"deploy", "crds", "trust.cert-manager.io_bundles.yaml"))
	Expect(err).NotTo(HaveOccurred())
	definition := &apiextensionsv1.CustomResourceDefinition{}
	Expect(yaml.Unmarshal(data, definition)).To(Succeed())
	Expect(admin.Create(ctx, definition)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(definition), definition)).To(Succeed())
		g.Expect(definition.Status.Conditions).To(ContainElement(And(
			HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
	}).WithContext(ctx).Should(Succeed())
}
