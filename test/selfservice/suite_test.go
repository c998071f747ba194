// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package selfservice

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// sizeLabel is the label with which developers choose a template.
const sizeLabel = "example.com/size"

// cluster is shared by all specs.
var cluster *framework.Cluster

func TestSelfService(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Self-service")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.StartControlPlane(ctx)
	cluster.StartObserver(ctx)
	cluster.Install(ctx, "default")
	cluster.StartManager(ctx)
	cluster.ExpectInjected(ctx)
	controllerManager, err := cluster.StartControllerManager(ctx, "--controllers=resourcequota-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllerManager.Stop)
	// The API server rejects the templates until it recognizes the parameter kind of their policy.
	Eventually(func() error {
		directory := filepath.Join(controlplane.Root(), "config", "samples", "self-service")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", directory)
		return err
	}).WithContext(ctx).Should(Succeed())
	for _, name := range []string{"self-service", "small", "medium", "large"} {
		Eventually(func(g Gomega) {
			template := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, template)).To(Succeed())
			for _, condition := range []string{v1alpha1.ConditionValid, v1alpha1.ConditionAuthorized} {
				g.Expect(meta.IsStatusConditionTrue(template.Status.Conditions, condition)).To(BeTrue(), "%+v", template.Status)
			}
		}).WithContext(ctx).Should(Succeed())
	}
	Eventually(func(g Gomega) {
		probe := sized("probe", "small")
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(Equal(v1alpha1.TemplatesInitializer))
	}).WithContext(ctx).Should(Succeed())
	probe := framework.CreateNamespace(ctx, cluster.Admin, "probe")
	Eventually(func() error {
		return developer("probe").Delete(ctx, probe.DeepCopy(), client.DryRunAll)
	}).WithContext(ctx).Should(beDenied("namespace-owners", "its creator is not recorded"))
}, NodeTimeout(5*time.Minute))

// developer returns a user whose only group is that of the sample.
func developer(name string) *framework.User {
	GinkgoHelper()
	config, err := cluster.User(name, "developers")
	Expect(err).NotTo(HaveOccurred())
	return framework.NewUser(config)
}

// sized returns a Namespace with the size that selects a template.
func sized(name, size string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label(sizeLabel, size).Obj()
}

// createOpen creates a Namespace, and waits until it is open.
func createOpen(ctx context.Context, user *framework.User, namespace *corev1.Namespace) *corev1.Namespace {
	GinkgoHelper()
	Expect(user.Create(ctx, namespace)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), "%v", namespace.Status.Conditions)
	}).WithContext(ctx).Should(Succeed())
	return namespace
}

// beDenied matches the error of a policy that was applied without config/default, so its name has no
// prefix.
func beDenied(policy string, texts ...string) OmegaMatcher {
	all := []OmegaMatcher{
		Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("ValidatingAdmissionPolicy '" + policy + "'")),
	}
	for _, text := range texts {
		all = append(all, MatchError(ContainSubstring(text)))
	}
	return And(all...)
}

var (
	BeForbiddenBy = matchers.BeForbiddenBy
	HaveCondition = matchers.HaveCondition
)
