// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package stolentoken

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// cluster has the variant installed whose specs run.
var cluster *framework.Cluster

func TestStolenToken(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Stolen token")
}

var _ = BeforeSuite(framework.SetDefaults)

// installVariant applies config/default with a component, as in docs/install.md.
func installVariant(ctx context.Context, component string) {
	GinkgoHelper()
	directory := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(os.CopyFS(directory, os.DirFS(filepath.Join(controlplane.Root(), "config")))).To(Succeed())
	if component != "" {
		path := filepath.Join(directory, "default", "kustomization.yaml")
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		disabled := "# - ../" + component + "\n"
		Expect(string(content)).To(ContainSubstring(disabled))
		enabled := strings.Replace(string(content), disabled, strings.TrimPrefix(disabled, "# "), 1)
		Expect(os.WriteFile(path, []byte(enabled), 0o600)).To(Succeed())
	}
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", filepath.Join(directory, "default"))
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	// The API server cannot reach the webhooks, and ignores the failures after this time.
	_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "patch", "validatingwebhookconfiguration",
		v1alpha1.TemplatesConfiguration, "--type=json", `--patch=[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]`)
	Expect(err).NotTo(HaveOccurred())
}

// startManagers runs a manager for each installed Deployment, with its ServiceAccount and its controllers. It returns a
// function that stops them.
func startManagers(ctx context.Context) (stop func()) {
	GinkgoHelper()
	deployments, err := cluster.Admin.Clientset().AppsV1().Deployments(systemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nslifecycle",
	})
	Expect(err).NotTo(HaveOccurred())
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	webhooks.URL = "" // As installed, although the API server cannot reach the Service.
	var running []*controlplane.Manager
	stop = func() {
		for _, one := range running {
			Expect(one.Stop()).To(Succeed())
		}
		running = nil
	}
	DeferCleanup(func() { stop() })
	for _, deployment := range deployments.Items {
		pod := deployment.Spec.Template.Spec
		config, err := cluster.ServiceAccountConfig(ctx, systemNamespace, pod.ServiceAccountName)
		Expect(err).NotTo(HaveOccurred())
		one, err := controlplane.RunManager(ctx, config, func(options *manager.Options) {
			options.Controllers = controllersOf(pod.Containers[0].Args)
			options.Hold = webhooks
		})
		Expect(err).NotTo(HaveOccurred())
		running = append(running, one)
	}
	Eventually(func(g Gomega) {
		hold := &admissionv1.MutatingWebhookConfiguration{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: v1alpha1.HoldConfiguration}, hold)).To(Succeed())
		g.Expect(hold.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	return stop
}

// controllersOf returns the controllers that the flags of a manager select.
func controllersOf(args []string) manager.Controllers {
	GinkgoHelper()
	var names []string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--controllers="); ok {
			names = append(names, value)
		}
	}
	if len(names) == 0 {
		return nil
	}
	controllers, err := manager.ParseControllers(strings.Join(names, ","))
	Expect(err).NotTo(HaveOccurred())
	return controllers
}

// serviceAccounts returns the names of the ServiceAccounts of the operator.
func serviceAccounts(ctx context.Context) []string {
	GinkgoHelper()
	list, err := cluster.Admin.Clientset().CoreV1().ServiceAccounts(systemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nslifecycle",
	})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return names
}

// expectReady waits until the operator has processed the fixtures.
func expectReady(ctx context.Context) {
	GinkgoHelper()
	cluster.ExpectActive(ctx, fixture)
	// The template selects this Namespace, so the operator adds the types in the template to its permissions.
	cluster.AddTemplateAccount(ctx, "template")
	namespace := wrappers.MakeNamespace(fixture).Label(v1alpha1.LabelTemplate, fixture).Obj()
	Eventually(func(g Gomega) {
		// The template is effective if it selects new namespaces.
		probe := namespace.DeepCopy()
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKey(v1alpha1.AnnotationSelectedTemplates))
	}).WithContext(ctx).Should(Succeed())
	Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
	Eventually(func(g Gomega) {
		role := &rbacv1.ClusterRole{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: filledRoles[1]}, role)).To(Succeed())
		g.Expect(role.Rules).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}
