// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// policyKinds in the order in which they have to go, as docs/install.md has it.
const policyKinds = "mutatingadmissionpolicybindings,validatingadmissionpolicybindings," +
	"mutatingadmissionpolicies,validatingadmissionpolicies"

var crds = []string{
	"namespaceinitializerconfigurations.nslifecycle.dev", "namespaceinitializersets.nslifecycle.dev",
}

// way is one way of installing and the way back.
type way struct {
	install, uninstall func(ctx context.Context)
	// isAlone tells that nobody else ends namespaces meanwhile.
	isAlone bool
}

var ways = map[string]way{
	"kustomize": {
		install: func(ctx context.Context) {
			kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "default"))
		},
		uninstall: func(ctx context.Context) {
			deletePolicies(ctx)
			kubectl(ctx, "delete", "--ignore-not-found", "-k", filepath.Join(controlplane.Root(), "config", "default"))
		},
	},
	"the manifest": {
		install: func(ctx context.Context) { kubectl(ctx, "apply", "-f", manifest()) },
		uninstall: func(ctx context.Context) {
			deletePolicies(ctx)
			kubectl(ctx, "delete", "--ignore-not-found", "-f", manifest())
		},
	},
	"Helm": {
		install: func(ctx context.Context) { helmSucceeds(ctx, "install", "--create-namespace") },
		uninstall: func(ctx context.Context) {
			_, err := helm(ctx, "uninstall", "nslifecycle", "--namespace="+controlplane.SystemNamespace)
			Expect(err).NotTo(HaveOccurred())
			kubectl(ctx, append([]string{"delete", "crd"}, crds...)...)
			kubectl(ctx, "delete", "namespace", controlplane.SystemNamespace)
		},
	},
	"make, where nobody else ends namespaces": {
		install: func(ctx context.Context) { makeTarget(ctx, "deploy") },
		uninstall: func(ctx context.Context) {
			Expect(makeTarget(ctx, "undeploy", "UNDEPLOY_PATIENCE=2s")).
				To(ContainSubstring("so a manager is run here until it has gone"))
		},
		isAlone: true,
	},
}

func helmSucceeds(ctx context.Context, verb string, args ...string) {
	GinkgoHelper()
	_, err := helm(ctx, append([]string{verb, "nslifecycle", chart(), "--namespace=" + controlplane.SystemNamespace}, args...)...)
	Expect(err).NotTo(HaveOccurred())
}

func deletePolicies(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "delete", policyKinds, "--selector=app.kubernetes.io/name=nslifecycle")
}

// One control plane for all of them: each has to leave it as the next one needs it.
var _ = Describe("An installation comes and goes", Ordered, ContinueOnFailure, func() {
	for _, name := range []string{"kustomize", "the manifest", "Helm", "make, where nobody else ends namespaces"} {
		chosen := ways[name]
		It("by "+name, func(ctx context.Context) {
			if !chosen.isAlone {
				endNamespaces(ctx)
			}
			chosen.install(ctx)
			running, err := plane.StartManager(ctx)
			Expect(err).NotTo(HaveOccurred())
			stop := stopOnce(running.Stop)

			By("working")
			configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
			Expect(admin.Create(ctx, configuration)).To(Succeed())
			Eventually(func(g Gomega) {
				probe := wrappers.MakeNamespace("probe").Obj()
				g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
				g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
			waiting := wrappers.MakeNamespace("waiting").Obj()
			Expect(admin.Create(ctx, waiting)).To(Succeed())

			By("being removed as the documentation says")
			Expect(admin.Delete(ctx, configuration)).To(Succeed())
			kubectl(ctx, "annotate", "--overwrite", "namespace", "waiting", v1alpha1.AnnotationPendingInitializers+"=")
			stop()
			chosen.uninstall(ctx)

			By("leaving nothing that holds a namespace")
			expectNothingLeft(ctx)
			if chosen.isAlone {
				endNamespaces(ctx)
			}
			after := wrappers.MakeNamespace("after").Label(v1alpha1.LabelInitializing, "true").Obj()
			Expect(admin.Create(ctx, after)).To(Succeed())
			for _, namespace := range []*corev1.Namespace{waiting, after} {
				Expect(admin.Delete(ctx, namespace)).To(Succeed())
				expectGone(ctx, namespace.Name)
			}
		}, SpecTimeout(5*time.Minute))
	}

	It("is upgraded by Helm, CRDs included, while the manager has made inject fail shut", func(ctx context.Context) {
		endNamespaces(ctx)
		helmSucceeds(ctx, "install", "--create-namespace")
		DeferCleanup(func(ctx context.Context) {
			ways["Helm"].uninstall(ctx)
			expectNothingLeft(ctx)
		})
		later := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
		running, err := plane.StartManager(ctx, func(options *manager.Options) { options.Clock = later })
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		failurePolicy := func() admissionv1.FailurePolicyType {
			var inject admissionv1.MutatingAdmissionPolicy
			Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-inject"}, &inject)).To(Succeed())
			return *inject.Spec.FailurePolicy
		}
		Eventually(failurePolicy).WithContext(ctx).WithTimeout(time.Minute).Should(Equal(admissionv1.Fail))

		next := filepath.Join(GinkgoT().TempDir(), "chart")
		Expect(os.CopyFS(next, os.DirFS(chart()))).To(Succeed())
		file := filepath.Join(next, "files", "crds.yaml")
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		changed := strings.ReplaceAll(string(content), keep+": keep", keep+": keep\n    example.com/next: \"1\"")
		Expect(os.WriteFile(file, []byte(changed), 0o600)).To(Succeed())
		_, err = helm(ctx, "upgrade", "nslifecycle", next, "--namespace="+controlplane.SystemNamespace, "--set=replicas=3")
		Expect(err).NotTo(HaveOccurred())
		for _, crd := range crds {
			Expect(kubectl(ctx, "get", "crd", crd, "--output=jsonpath={.metadata.annotations.example\\.com/next}")).To(Equal("1"))
		}
		Expect(failurePolicy()).To(Equal(admissionv1.Fail))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Half an installation", Ordered, ContinueOnFailure, func() {
	BeforeEach(func(ctx context.Context) {
		endNamespaces(ctx)
		ways["the manifest"].install(ctx)
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "delete", policyKinds, "--selector=app.kubernetes.io/name=nslifecycle", "--ignore-not-found")
			kubectl(ctx, "delete", "-f", manifest(), "--ignore-not-found")
			expectNothingLeft(ctx)
		})
	})

	It("lets namespaces come and go where the policies are there and the CRDs are not", func(ctx context.Context) {
		kubectl(ctx, append([]string{"delete", "crd"}, crds...)...)
		expectNamespacesComeAndGo(ctx)
		Expect(checkInstallation(ctx)).To(ContainSubstring("the CustomResourceDefinitions are not installed"))
	}, SpecTimeout(3*time.Minute))

	It("lets namespaces come and go where the CRDs are there and the policies are not", func(ctx context.Context) {
		running, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		deletePolicies(ctx)
		Expect(admin.Create(ctx, wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj())).To(Succeed())
		expectNamespacesComeAndGo(ctx)
		Expect(checkInstallation(ctx)).To(ContainSubstring(`ValidatingAdmissionPolicy "gate"`))
	}, SpecTimeout(3*time.Minute))

	It("lets administrators open and delete namespaces where the manager is missing", func(ctx context.Context) {
		Expect(admin.Create(ctx, &v1alpha1.NamespaceInitializerSet{
			ObjectMeta:   metav1.ObjectMeta{Name: v1alpha1.EffectiveSetName},
			Initializers: []v1alpha1.EffectiveInitializer{{Name: "a.test.example.com"}},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace("probe").Obj()
			g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		for _, name := range []string{"opened", "deleted"} {
			namespace := wrappers.MakeNamespace(name).Obj()
			Expect(admin.Create(ctx, namespace)).To(Succeed())
			if name == "opened" {
				kubectl(ctx, "annotate", "--overwrite", "namespace", name, v1alpha1.AnnotationPendingInitializers+"=")
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
				Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			}
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			expectGone(ctx, name)
		}
		Expect(checkInstallation(ctx)).To(ContainSubstring("FAIL  the leader renews its Lease: "))
	}, SpecTimeout(4*time.Minute))
})

// stopOnce returns a function that stops something, and sees to it that it is called at the
// end of the spec if not before.
func stopOnce(stop func() error) func() {
	isStopped := false
	once := func() {
		if !isStopped {
			isStopped = true
			Expect(stop()).To(Succeed())
		}
	}
	DeferCleanup(once)
	return once
}

// checkInstallation runs the container of `helm test` with the rights of its Pod, and returns
// what it says of an installation that does not work.
func checkInstallation(ctx context.Context) string {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	own := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(own, config)).To(Succeed())
	command := exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "manager"),
		"--check", "--check-timeout=5s")
	command.Env = []string{"KUBECONFIG=" + own, "POD_NAMESPACE=" + controlplane.SystemNamespace}
	output, err := command.CombinedOutput()
	Expect(err).To(HaveOccurred(), string(output))
	return string(output)
}

func expectNamespacesComeAndGo(ctx context.Context) {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace("half").Obj()
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Expect(admin.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "content", Namespace: namespace.Name},
	})).To(Succeed())
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
	expectGone(ctx, namespace.Name)
}

func expectGone(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue(), "namespace %q has not gone", name)
}

// expectNothingLeft looks for objects of ours, and for namespaces that something holds.
func expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	expectGone(ctx, controlplane.SystemNamespace)
	kinds := policyKinds + ",crd,clusterroles,clusterrolebindings"
	Eventually(func() string {
		return kubectl(ctx, "get", kinds, "--selector=app.kubernetes.io/name=nslifecycle", "--output=name")
	}).WithContext(ctx).Should(BeEmpty())
	var namespaces corev1.NamespaceList
	Expect(admin.List(ctx, &namespaces)).To(Succeed())
	for _, namespace := range namespaces.Items {
		Expect(namespace.DeletionTimestamp).To(BeNil(), namespace.Name)
		Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), namespace.Name)
		Expect(namespace.Finalizers).To(BeEmpty(), namespace.Name)
		Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}), namespace.Name)
	}
}
