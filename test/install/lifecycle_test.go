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
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var crds = []string{
	"namespaceinitializerconfigurations.nslifecycle.dev", "namespaceinitializersets.nslifecycle.dev",
	"namespacetemplates.nslifecycle.dev",
}

// way is one way to install and uninstall the project.
type way struct {
	install, uninstall func(ctx context.Context)
	// isAlone is true if the manager is the only controller that finalizes namespaces.
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
			// As the garbage collector, which does not run here: their owner is deleted.
			deletePolicies(ctx)
			kubectl(ctx, append([]string{"delete", "crd"}, crds...)...)
			kubectl(ctx, "delete", "namespace", controlplane.SystemNamespace)
		},
	},
	"make in a cluster without the built-in namespace controller": {
		install: func(ctx context.Context) { makeTarget(ctx, "deploy") },
		uninstall: func(ctx context.Context) {
			Expect(makeTarget(ctx, "undeploy", "UNDEPLOY_TIMEOUT=2s")).
				To(ContainSubstring("Running a manager locally until it is deleted"))
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
	kubectl(ctx, "delete", framework.PolicyKinds(ctx, plane.Admin), "--selector=app.kubernetes.io/name=nslifecycle", "--ignore-not-found")
}

// All specs share a control plane, so each spec must restore its initial state.
var _ = Describe("An installation", Ordered, ContinueOnFailure, func() {
	for _, name := range []string{"kustomize", "the manifest", "Helm", "make in a cluster without the built-in namespace controller"} {
		chosen := ways[name]
		It("with "+name+" works and can be uninstalled", func(ctx context.Context) {
			if !chosen.isAlone {
				startFinalization(ctx)
			}
			chosen.install(ctx)
			running, err := plane.StartManager(ctx)
			Expect(err).NotTo(HaveOccurred())
			stop := stopOnce(running.Stop)

			By("checking that new namespaces get the pending list")
			configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
			Expect(admin.Create(ctx, configuration)).To(Succeed())
			expectInjected(ctx)
			waiting := wrappers.MakeNamespace("waiting").Obj()
			Expect(admin.Create(ctx, waiting)).To(Succeed())

			By("uninstalling it as documented")
			Expect(admin.Delete(ctx, configuration)).To(Succeed())
			kubectl(ctx, "annotate", "--overwrite", "namespace", "waiting", v1alpha1.AnnotationPendingInitializers+"=")
			stop()
			chosen.uninstall(ctx)

			By("checking that namespaces can be created and deleted")
			expectNoRemainingObjects(ctx)
			if chosen.isAlone {
				startFinalization(ctx)
			}
			after := wrappers.MakeNamespace("after").Label(v1alpha1.LabelInitializing, "true").Obj()
			Expect(admin.Create(ctx, after)).To(Succeed())
			for _, namespace := range []*corev1.Namespace{waiting, after} {
				Expect(admin.Delete(ctx, namespace)).To(Succeed())
				framework.ExpectDeleted(ctx, admin, namespace)
			}
		}, SpecTimeout(5*time.Minute))
	}

	It("can be upgraded with Helm, including the CRDs, after the manager sets failure policies to Fail", func(ctx context.Context) {
		startFinalization(ctx)
		helmSucceeds(ctx, "install", "--create-namespace")
		DeferCleanup(func(ctx context.Context) {
			ways["Helm"].uninstall(ctx)
			expectNoRemainingObjects(ctx)
		})
		later := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
		webhooks, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		webhooks.URL = "" // Helm could not restore the Service of a webhook with a URL.
		running, err := plane.StartManager(ctx, func(options *manager.Options) { options.Clock, options.Hold = later, webhooks })
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		failurePolicies := func() string {
			return kubectl(ctx, "get", framework.PolicyKinds(ctx, plane.Admin), "--output=jsonpath={range .items[*]}"+
				"{.metadata.name}={.webhooks[0].rules[*].operations[*]}{.spec.failurePolicy}{.webhooks[*].failurePolicy} {end}")
		}
		if framework.ServesPolicies(ctx, plane.Admin) {
			Eventually(failurePolicies).WithContext(ctx).Should(ContainSubstring("nslifecycle-inject=Fail "))
		} else {
			// The API server cannot reach the Service, so the operator does not set Fail.
			Eventually(failurePolicies).WithContext(ctx).Should(ContainSubstring("nslifecycle-inject=CREATEIgnore "))
			kubectl(ctx, "patch", "mutatingwebhookconfiguration", v1alpha1.InjectConfiguration, "--type=json",
				`--patch=[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]`)
		}
		for _, policy := range []string{
			"templates", "waiting-subjects", "waiting-subjects-resources-named-namespaces", "initializer-subjects",
		} {
			kubectl(ctx, "patch", "validatingadmissionpolicy", "nslifecycle-"+policy, "--type=merge",
				`--patch={"spec":{"failurePolicy":"Fail"}}`)
		}
		before := failurePolicies()

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
		Expect(failurePolicies()).To(Equal(before))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("An incomplete installation", Ordered, ContinueOnFailure, func() {
	BeforeEach(func(ctx context.Context) {
		startFinalization(ctx)
		ways["the manifest"].install(ctx)
		DeferCleanup(func(ctx context.Context) {
			deletePolicies(ctx)
			kubectl(ctx, "delete", "-f", manifest(), "--ignore-not-found")
			expectNoRemainingObjects(ctx)
		})
	})

	It("does not block namespace creation and deletion if the CRDs are missing", func(ctx context.Context) {
		kubectl(ctx, append([]string{"delete", "crd"}, crds...)...)
		expectNamespaceLifecycle(ctx)
		Expect(checkInstallation(ctx)).To(ContainSubstring("the CustomResourceDefinitions are not installed"))
	}, SpecTimeout(5*time.Minute))

	It("does not block namespace creation and deletion if the policies are missing", func(ctx context.Context) {
		running, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		deletePolicies(ctx)
		Expect(admin.Create(ctx, wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj())).To(Succeed())
		expectNamespaceLifecycle(ctx)
		Expect(checkInstallation(ctx)).To(And(ContainSubstring(`ValidatingAdmissionPolicy "gate"`),
			ContainSubstring(`FAIL  a policy limits what the operator can write: the API server lacks ValidatingAdmissionPolicy "confine"`)))
	}, SpecTimeout(5*time.Minute))

	It("allows administrators to delete namespaces, and policies to complete them, if no manager runs", func(ctx context.Context) {
		running, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		stop := stopOnce(running.Stop)
		configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		expectInjected(ctx)
		completed, deleted := wrappers.MakeNamespace("completed").Obj(), wrappers.MakeNamespace("deleted").Obj()
		for _, namespace := range []*corev1.Namespace{completed, deleted} {
			Expect(admin.Create(ctx, namespace)).To(Succeed())
		}
		stop()
		_, err = plane.Kubectl(ctx, plane.Admin, "annotate", "--overwrite", "namespace", completed.Name,
			v1alpha1.AnnotationPendingInitializers+"=")
		if framework.ServesPolicies(ctx, plane.Admin) {
			Expect(err).NotTo(HaveOccurred())
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(completed), completed)).To(Succeed())
			Expect(completed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		} else {
			Expect(err).To(MatchError(ContainSubstring("complete.nslifecycle.dev")))
		}
		for _, namespace := range []*corev1.Namespace{completed, deleted} {
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			framework.ExpectDeleted(ctx, admin, namespace)
		}
		Expect(checkInstallation(ctx)).To(ContainSubstring("FAIL  the leader renews its Lease: "))
	}, SpecTimeout(5*time.Minute))
})

// stopOnce returns a function that calls stop on the first call only. The function is also called
// when the spec ends.
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

// checkInstallation runs the command of `helm test` with the permissions of the test Pod, expects
// the command to fail, and returns its output.
func checkInstallation(ctx context.Context) string {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "manager"),
		"--check", "--check-timeout=5s")
	command.Env = []string{"KUBECONFIG=" + framework.KubeconfigFile(config), "POD_NAMESPACE=" + controlplane.SystemNamespace}
	output, err := command.CombinedOutput()
	Expect(err).To(HaveOccurred(), string(output))
	return string(output)
}

// expectInjected waits until the API server injects the pending list into new namespaces.
func expectInjected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe").Obj()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
	}).WithContext(ctx).Should(Succeed())
}

func expectNamespaceLifecycle(ctx context.Context) {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace("half").Obj()
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Expect(admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))).To(Succeed())
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
	framework.ExpectDeleted(ctx, admin, namespace)
}

// expectNoRemainingObjects checks that all objects of the project are deleted, and that no
// remaining namespace is terminating or initializing, or has additional finalizers.
func expectNoRemainingObjects(ctx context.Context) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, admin, wrappers.MakeNamespace(controlplane.SystemNamespace).Obj())
	kinds := framework.PolicyKinds(ctx, plane.Admin) + ",crd,clusterroles,clusterrolebindings"
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
