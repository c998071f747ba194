// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A namespace that is deleted in an unusual state", func() {
	It("is deleted if it has no namespace finalizers when the manager starts", func(ctx context.Context) {
		cluster.PauseManager()
		namespace := createNamespace(ctx, "no-namespace-finalizers")
		framework.SetNamespaceFinalizers(ctx, admin, namespace.Name)
		admin.Deletes(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers())

		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)))
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(requests.matching(namespace.Name)).To(ConsistOf("PUT /api/v1/namespaces/" + namespace.Name + "/finalize (2)"))
	}, SpecTimeout(5*time.Minute))

	It("is kept after the deletion of its content while it has entries in metadata.finalizers", func(ctx context.Context) {
		namespace := withFinalizer(wrappers.MakeNamespace(unique("own-finalizer")).Obj())
		admin.Creates(ctx, namespace)
		admin.Creates(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
		admin.Deletes(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers())
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(), HaveContentRemoved())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Finalizers).To(ConsistOf(testFinalizer))
		framework.RemoveFinalizers(ctx, admin, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
	}, SpecTimeout(5*time.Minute))
})

// requiredNamespaces are those that the API server protects from deletion.
var requiredNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

// The API server of this control plane protects no namespaces.
var _ = Describe("The manager on a control plane of its own", Ordered, SpecPriority(10), func() {
	BeforeAll(func(ctx context.Context) {
		useDedicatedControlPlane(ctx, controlplane.WithAPIServerFlag("disable-admission-plugins", "NamespaceLifecycle"))
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("does not finalize the namespaces that the cluster requires", func(ctx context.Context) {
		startManager(ctx, managerConfig(ctx), withGracePeriod(0))
		// Without finalizers, a write of the condition would make the API server delete the namespace.
		finalizers := map[string][]corev1.FinalizerName{
			metav1.NamespaceDefault: {corev1.FinalizerKubernetes}, metav1.NamespaceSystem: {corev1.FinalizerKubernetes},
			metav1.NamespacePublic: {},
		}
		var objects []client.Object
		for _, name := range requiredNamespaces {
			Eventually(admin.Get).WithContext(ctx).WithArguments(client.ObjectKey{Name: name}, &corev1.Namespace{}).Should(Succeed())
			object := wrappers.MakeConfigMap(name, "protected")
			admin.Creates(ctx, object)
			objects = append(objects, object)
			framework.SetNamespaceFinalizers(ctx, admin, name, finalizers[name]...)
			admin.Deletes(ctx, wrappers.MakeNamespace(name).Obj())
			if len(finalizers[name]) > 0 {
				eventuallyNamespace(ctx, name, HaveContentFailure("does not delete",
					`namespace "`+name+`" is required`))
			}
		}

		By("checking that the manager finalizes other namespaces")
		namespace := createNamespace(ctx, "other")
		admin.Creates(ctx, makeConfigMaps(namespace.Name, "a")...)
		admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectKept(ctx, objects...)
		for _, name := range requiredNamespaces {
			Expect(cluster.GetNamespace(Default, ctx, name)).To(And(BeTerminating(), HaveNamespaceFinalizers(finalizers[name]...)))
		}
	}, SpecTimeout(5*time.Minute))

	It("does not finalize its own namespace", func(ctx context.Context) {
		name := controlplane.SystemNamespace
		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)), func(options *nsmanager.Options) { options.OwnNamespace = name })
		control := createNamespace(ctx, "control")
		admin.Deletes(ctx, control)
		framework.ExpectDeleted(ctx, admin, control)

		object := wrappers.MakeConfigMap(name, "protected")
		admin.Creates(ctx, object)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: name, Name: controlplane.ServiceAccount,
		}}
		begin := time.Now()
		admin.Deletes(ctx, wrappers.MakeNamespace(name).Obj())
		consistentlyNamespace(ctx, name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveNoFinalizationConditions())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, name)).To(HaveContentFailure("does not delete", "running operator",
				"outside the cluster", "kube-controller-manager"))
		}).WithContext(ctx).Should(Succeed())
		Expect(time.Since(begin)).To(BeNumerically(">", 29*time.Second), "the manager must give other controllers time to finalize the namespace")
		expectKept(ctx, object, account)
		Expect(cluster.GetNamespace(Default, ctx, name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
		Expect(requests.matching("/namespaces/" + name)).To(ConsistOf(HavePrefix("PATCH /api/v1/namespaces/" + name + "/status")))

		By("starting another manager outside the namespace")
		startManager(ctx, cluster.Admin.Config)
		framework.ExpectDeleted(ctx, admin, wrappers.MakeNamespace(name).Obj())
		framework.ExpectDeleted(ctx, admin, account)
	}, SpecTimeout(5*time.Minute))
})

// builtManager is the path of the manager binary. The binary is in the directory of the control
// plane and is removed together with it.
var builtManager string

// managerBinary returns the path of the manager binary, which the first call builds.
func managerBinary(ctx context.Context) string {
	GinkgoHelper()
	if _, err := os.Stat(builtManager); err == nil {
		return builtManager
	}
	builtManager = filepath.Join(cluster.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, builtManager)).To(Succeed())
	return builtManager
}

// startProcess runs the manager binary until the spec ends.
func startProcess(ctx context.Context, config *rest.Config, flags ...string) *gexec.Session {
	GinkgoHelper()
	return framework.StartProcess(exec.Command(managerBinary(ctx), append(flags,
		"--kubeconfig="+framework.KubeconfigFile(config), "--health-probe-bind-address=0", "--metrics-bind-address=0")...))
}

var _ = Describe("The manager process", func() {
	It("does not finalize namespaces if only the initialization controller is enabled", func(ctx context.Context) {
		cluster.PauseManager()
		initializing := startProcess(ctx, managerConfig(ctx), "--controllers=initialization")
		active := createNamespace(ctx, "active")
		initialized := func(name string) func(Gomega) {
			return func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, name)).To(
					HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized))
			}
		}
		Eventually(initialized(active.Name)).WithContext(ctx).Should(Succeed())

		namespace := createNamespace(ctx, "not-finalized")
		Eventually(initialized(namespace.Name)).WithContext(ctx).Should(Succeed())
		objects := makeConfigMaps(namespace.Name, "a", "b")
		admin.Creates(ctx, objects...)
		admin.Deletes(ctx, namespace)
		before := cluster.GetNamespace(Default, ctx, namespace.Name)
		expectKept(ctx, objects...)
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name)).To(And(Equal(before), BeTerminating(), HaveNoFinalizationConditions()))
		Expect(initializing).NotTo(gexec.Exit())

		By("starting another manager, which finalizes namespaces")
		finalizing := startProcess(ctx, managerConfig(ctx), "--controllers=*,-admission,-initialization,-diagnosis")
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(finalizing.Err).To(gbytes.Say(`"controllers":"finalization"`))
		admin.Deletes(ctx, active)
		framework.ExpectDeleted(ctx, admin, active)
	}, SpecTimeout(5*time.Minute))

	It("applies the values of its flags", func(ctx context.Context) {
		cluster.PauseManager()
		namespace := createNamespace(ctx, "flags", origin)
		session := startProcess(ctx, serviceAccountConfig(ctx, "flags", origin),
			"--controllers=finalization", "--namespace-finalizer="+string(origin), "--finalization-grace-period=0s")
		admin.Deletes(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(corev1.FinalizerKubernetes))
		Eventually(session.Err).WithContext(ctx).Should(gbytes.Say(`"gracePeriod":"0s","reason":"set by --finalization-grace-period"`))
		framework.SetNamespaceFinalizers(ctx, admin, namespace.Name)
		framework.ExpectDeleted(ctx, admin, namespace)
	}, SpecTimeout(5*time.Minute))

	It("reports an invalid flag in a single line even if no cluster is configured", func(ctx context.Context) {
		var stdout, stderr bytes.Buffer
		command := exec.CommandContext(ctx, managerBinary(ctx), "--finalization-grace-period=soon")
		command.Env = []string{"HOME=" + GinkgoT().TempDir(), "KUBECONFIG=" + filepath.Join(GinkgoT().TempDir(), "none")}
		command.Stdout, command.Stderr = &stdout, &stderr
		var exit *exec.ExitError
		Expect(errors.As(command.Run(), &exit)).To(BeTrue())
		Expect(exit.ExitCode()).To(Equal(1))
		Expect(stdout.String()).To(BeEmpty())
		Expect(strings.TrimSuffix(stderr.String(), "\n")).To(And(HavePrefix(`grace period "soon" is neither`), Not(ContainSubstring("\n"))))
	}, SpecTimeout(5*time.Minute))
})
