// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/plugin"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var crds = []string{
	"namespaceinitializerconfigurations.nslifecycle.dev", "namespaceinitializersets.internal.nslifecycle.dev",
	"namespacetemplates.nslifecycle.dev",
}

// withoutSources keeps the source namespace.
const withoutSources = "--selector=app.kubernetes.io/component!=sources"

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
			kubectl(ctx, "delete", "--ignore-not-found", withoutSources, "-k", filepath.Join(controlplane.Root(), "config", "default"))
		},
	},
	"the manifest": {
		install: func(ctx context.Context) { kubectl(ctx, "apply", "-f", manifest()) },
		uninstall: func(ctx context.Context) {
			deletePolicies(ctx)
			kubectl(ctx, "delete", "--ignore-not-found", withoutSources, "-f", manifest())
		},
	},
	"Helm": {
		install: func(ctx context.Context) {
			helmSucceeds(ctx, "install", "--create-namespace", "--set=deletionProtection.enabled=true",
				"--set=namespaceOwners.enabled=true,provisioner.enabled=true,networkPolicy.enabled=true")
		},
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
		install: func(ctx context.Context) {
			makeTargetIn(ctx, checkout("protection", "owners", "network-policy", "audit"), "deploy")
			kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "provisioner"))
			kubectl(ctx, "apply", "-f", filepath.Join(controlplane.Root(), "config", "samples", "self-service", "provisioner.yaml"))
		},
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

var _ = Describe("An installation", Ordered, ContinueOnFailure, func() {
	BeforeAll(startCluster)

	for _, name := range []string{"kustomize", "the manifest", "Helm", "make in a cluster without the built-in namespace controller"} {
		chosen := ways[name]
		It("with "+name+" works and can be uninstalled", func(ctx context.Context) {
			if !chosen.isAlone {
				startFinalization(ctx)
			}
			chosen.install(ctx)
			applyPrintedPermissions(ctx)
			startManager(ctx)

			By("checking that new namespaces get the pending list")
			configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
			createResource(ctx, configuration)
			cluster.ExpectActive(ctx, "test")
			waiting := wrappers.MakeNamespace("waiting").Obj()
			admin.Creates(ctx, waiting)
			Expect(framework.PendingOf(waiting)).To(Equal("a.test.example.com"))

			By("uninstalling it as documented")
			admin.Deletes(ctx, configuration)
			kubectl(ctx, "annotate", "--overwrite", "namespace", "waiting", v1alpha1.AnnotationPendingInitializers+"=")
			cluster.StopManager()
			chosen.uninstall(ctx)
			if !chosen.isAlone {
				kubectl(ctx, permissionsCommand...)
			}

			By("checking that namespaces can be created and deleted")
			expectNoRemainingObjects(ctx)
			if chosen.isAlone {
				startFinalization(ctx)
			}
			after := wrappers.MakeNamespace("after").Label(v1alpha1.LabelInitializing, "true").Obj()
			admin.Creates(ctx, after)
			By("deleting the namespace of the sources, which remains")
			sources := &corev1.Namespace{}
			Expect(admin.Get(ctx, client.ObjectKey{Name: controlplane.SourceNamespace}, sources)).To(Succeed())
			Expect(sources.DeletionTimestamp).To(BeNil())
			for _, namespace := range []*corev1.Namespace{waiting, after, sources} {
				admin.Deletes(ctx, namespace)
				framework.ExpectDeleted(ctx, admin, namespace)
			}
		}, SpecTimeout(10*time.Minute))
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
		startManager(ctx, func(options *manager.Options) { options.Clock, options.Hold = later, webhooks })
		failurePolicies := func() string {
			return kubectl(ctx, "get", framework.PolicyKinds(ctx, cluster.Admin.Config), "--output=jsonpath={range .items[*]}"+
				"{.metadata.name}={.webhooks[0].rules[*].operations[*]}{.spec.failurePolicy}{.webhooks[*].failurePolicy} {end}")
		}
		if framework.ServesPolicies(ctx, cluster.Admin.Config) {
			// The chart sets Fail in the webhook configuration with this name.
			Eventually(failurePolicies).WithContext(ctx).Should(ContainSubstring("nslifecycle-complete=Fail nslifecycle-inject=Fail "))
		} else {
			// The API server cannot reach the Service, so the operator does not set Fail.
			Eventually(failurePolicies).WithContext(ctx).Should(ContainSubstring("nslifecycle-inject=CREATEIgnore "))
			kubectl(ctx, "patch", "mutatingwebhookconfiguration", internalv1alpha1.InjectConfiguration, "--type=json",
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
	}, SpecTimeout(10*time.Minute))
	Context("that is incomplete", describeIncomplete)
	Context("in each variant", describeVariants)
})

func describeIncomplete() {
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
		expectCheck(ctx, ContainSubstring("the CustomResourceDefinitions are not installed"))
	}, SpecTimeout(10*time.Minute))

	It("does not block namespace creation and deletion if the policies are missing", func(ctx context.Context) {
		startManager(ctx)
		deletePolicies(ctx)
		createResource(ctx, wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj())
		expectNamespaceLifecycle(ctx)
		expectCheck(ctx, And(ContainSubstring(`ValidatingAdmissionPolicy "gate"`),
			ContainSubstring(`FAIL  a policy limits what the operator can write: the API server lacks ValidatingAdmissionPolicy "confine"`)))
	}, SpecTimeout(10*time.Minute))

	It("allows administrators to delete namespaces, and policies to complete them, if no manager runs", func(ctx context.Context) {
		startManager(ctx)
		configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
		createResource(ctx, configuration)
		cluster.ExpectActive(ctx, "test")
		completed, deleted := wrappers.MakeNamespace("completed").Obj(), wrappers.MakeNamespace("deleted").Obj()
		for _, namespace := range []*corev1.Namespace{completed, deleted} {
			admin.Creates(ctx, namespace)
		}
		cluster.StopManager()
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "annotate", "--overwrite", "namespace", completed.Name,
			v1alpha1.AnnotationPendingInitializers+"=")
		if framework.ServesPolicies(ctx, cluster.Admin.Config) {
			Expect(err).NotTo(HaveOccurred())
			admin.Reads(ctx, completed)
			Expect(completed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		} else {
			Expect(err).To(MatchError(ContainSubstring("complete.nslifecycle.dev")))
		}
		for _, namespace := range []*corev1.Namespace{completed, deleted} {
			admin.Deletes(ctx, namespace)
			framework.ExpectDeleted(ctx, admin, namespace)
		}
		expectCheck(ctx, ContainSubstring("FAIL  the leader renews its Lease: "))
	}, SpecTimeout(10*time.Minute))
}

// expectCheck runs the command of `helm test` with the permissions of the test Pod, and expects the command to fail with
// an output.
func expectCheck(ctx context.Context, want OmegaMatcher) {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := framework.KubeconfigFile(config)
	var timeout time.Duration
	Eventually(func() string { // On a busy machine, the first checks can take longer than the timeout.
		timeout += 5 * time.Second // The manager would retry failed checks for a minute.
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		command := exec.CommandContext(ctx, binary(), "--check")
		command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
		command.Env = []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + controlplane.SystemNamespace}
		output, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred(), string(output))
		return string(output)
	}).WithContext(ctx).Should(want)
}

func expectNamespaceLifecycle(ctx context.Context) {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace("half").Obj()
	admin.Creates(ctx, namespace)
	admin.Creates(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))
	admin.Deletes(ctx, namespace)
	framework.ExpectDeleted(ctx, admin, namespace)
}

// expectNoRemainingObjects checks that all objects of the project are deleted, and that no
// remaining namespace is terminating or initializing, or has additional finalizers.
func expectNoRemainingObjects(ctx context.Context) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, admin, wrappers.MakeNamespace(controlplane.SystemNamespace).Obj())
	Eventually(func(g Gomega) string { return cmp.Diff(initial, inventory(g, ctx)) }).WithContext(ctx).Should(BeEmpty())
	var namespaces corev1.NamespaceList
	Expect(admin.List(ctx, &namespaces)).To(Succeed())
	for _, namespace := range namespaces.Items {
		Expect(namespace.DeletionTimestamp).To(BeNil(), namespace.Name)
		Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), namespace.Name)
		Expect(namespace.Finalizers).To(BeEmpty(), namespace.Name)
		Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}), namespace.Name)
	}
}

// permissionsCommand deletes what applyPrintedPermissions has created.
var permissionsCommand = []string{
	"delete", "clusterrolebindings,clusterroles,rolebindings,roles", "--all-namespaces", "--selector=" + selector,
}

var _ = It("describes the command that deletes printed permissions", func() {
	for _, file := range []string{"docs/install.md", "dist/chart/templates/NOTES.txt"} {
		content, err := os.ReadFile(filepath.Join(controlplane.Root(), file))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(ContainSubstring("kubectl "+strings.Join(permissionsCommand, " ")), file)
	}
})

// copyingTemplate requires a Role in the namespace of the operator, and a ClusterRole.
const copyingTemplate = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: copying}
spec:
  serviceAccountName: copying
  objects:
  - {name: source, sourceRef: {kind: Secret, name: source}}
`

// applyPrintedPermissions applies what the plugin prints for a template, and optional objects that have permissions.
func applyPrintedPermissions(ctx context.Context) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "template.yaml")
	Expect(os.WriteFile(file, []byte(copyingTemplate), 0o600)).To(Succeed())
	streams, _, printed, stderr := genericiooptions.NewTestIOStreams()
	command := plugin.New(streams)
	command.SetArgs([]string{
		"template", "permissions", "--filename=" + file, "--kubeconfig=" + kubeconfig, "--system-namespace=" + controlplane.SystemNamespace,
	})
	Expect(command.ExecuteContext(ctx)).To(Succeed(), stderr.String())
	Expect(strings.Count(printed.String(), "\nkind: RoleBinding\n")).To(Equal(1))
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, printed.String(), "apply", "--filename=-")
	Expect(err).NotTo(HaveOccurred())
}

// checkout returns a copy of the files that make deploy needs, with the given directories enabled.
func checkout(directories ...string) string {
	GinkgoHelper()
	root := filepath.Dir(filepath.Dir(framework.Variant(directories...)))
	for _, name := range []string{"Makefile", "hack", "test"} {
		Expect(os.Symlink(filepath.Join(controlplane.Root(), name), filepath.Join(root, name))).To(Succeed())
	}
	tools, err := filepath.Glob(filepath.Join(controlplane.Root(), "bin", "kustomize-*"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Mkdir(filepath.Join(root, "bin"), 0o700)).To(Succeed())
	for _, tool := range tools {
		Expect(os.Symlink(tool, filepath.Join(root, "bin", filepath.Base(tool)))).To(Succeed())
	}
	return root
}

func describeVariants() {
	AfterEach(func(ctx context.Context) {
		startFinalization(ctx)
		makeTarget(ctx, "undeploy")
		expectNoRemainingObjects(ctx)
	})

	It("is replaced by its variants, and replaces an earlier version", func(ctx context.Context) {
		kubectl(ctx, "create", "namespace", controlplane.SystemNamespace)
		kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "owners"))
		kubectl(ctx, "create", "clusterrolebinding", "nslifecycle-earlier", "--clusterrole=cluster-admin",
			"--serviceaccount="+controlplane.SystemNamespace+":"+controlplane.ServiceAccount)
		kubectl(ctx, "label", "clusterrolebinding", "nslifecycle-earlier", selector, "app.kubernetes.io/managed-by=kustomize")
		kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "provisioner"))
		const finalizationAccount = "nslifecycle-finalization"
		separate, without := []string{"separate-finalization"}, []string{"without-finalization"}
		for _, variant := range []struct {
			components        []string
			finalizingAccount string
		}{
			{nil, controlplane.ServiceAccount}, {separate, finalizationAccount}, {without, ""}, {nil, controlplane.ServiceAccount},
		} {
			By(fmt.Sprint("installing ", variant.components))
			root := checkout(variant.components...)
			makeTargetIn(ctx, root, "deploy")
			wanted := strings.Fields(kubectl(ctx, "get", "-k", filepath.Join(root, "config", "default"), "--output=name"))
			Expect(append(wanted, separatelyApplied...)).To(ContainElements(installedParts(ctx)))
			kubectl(ctx, "get", "clusterrolebinding/namespace-deleter", "clusterrolebinding/nslifecycle:provisioner")
			kubectl(ctx, "get", "serviceaccount", "nslifecycle-provisioner", "--namespace="+controlplane.SystemNamespace)
			for _, account := range []string{controlplane.ServiceAccount, finalizationAccount, controlplane.AdmissionAccount} {
				Expect(canFinalize(ctx, account)).To(Equal(account == variant.finalizingAccount), "%v: %s", variant.components, account)
			}
		}
	}, SpecTimeout(10*time.Minute))

	DescribeTable("initialize, diagnose and finalize namespaces with the permissions of their ServiceAccounts",
		func(ctx context.Context, components ...string) {
			if slices.Contains(components, "without-finalization") {
				startFinalization(ctx)
			}
			makeTargetIn(ctx, checkout(components...), "deploy")
			stop := startDeployments(ctx)

			By("initializing a namespace")
			configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
			createResource(ctx, configuration)
			DeferCleanup(func(ctx context.Context) {
				Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
			})
			cluster.ExpectActive(ctx, "test")
			namespace := wrappers.MakeNamespace("variant").Obj()
			admin.Creates(ctx, namespace)
			kubectl(ctx, "annotate", "--overwrite", "namespace", namespace.Name, v1alpha1.AnnotationPendingInitializers+"=")
			kubectl(ctx, "wait", "--for=condition="+v1alpha1.ConditionInitializing+"=False", "namespace/"+namespace.Name)
			admin.Deletes(ctx, configuration)

			By("diagnosing its deletion")
			held := wrappers.MakeConfigMap(namespace.Name, "held")
			held.Finalizers = []string{"test.example.com/held"}
			admin.Creates(ctx, held)
			admin.Deletes(ctx, namespace)
			kubectl(ctx, "wait", "--for=condition="+v1alpha1.ConditionDeletionBlocked, "--timeout=60s", "namespace/"+namespace.Name)

			By("deleting it")
			kubectl(ctx, "patch", "configmap", held.Name, "--namespace="+namespace.Name, `--patch={"metadata":{"finalizers":null}}`)
			framework.ExpectDeleted(ctx, admin, namespace)
			stop()
		},
		Entry("by default", SpecTimeout(10*time.Minute)),
		Entry("with separate finalization", "separate-finalization", SpecTimeout(10*time.Minute)),
		Entry("without finalization", "without-finalization", SpecTimeout(10*time.Minute)),
	)
}

// separatelyApplied are the objects of config/owners and config/provisioner that have permissions.
var separatelyApplied = []string{
	"clusterrole.rbac.authorization.k8s.io/namespace-deleter", "clusterrolebinding.rbac.authorization.k8s.io/namespace-deleter",
	"clusterrole.rbac.authorization.k8s.io/nslifecycle:provisioner", "clusterrolebinding.rbac.authorization.k8s.io/nslifecycle:provisioner",
	"role.rbac.authorization.k8s.io/impersonate-provisioner", "rolebinding.rbac.authorization.k8s.io/impersonate-provisioner",
	"serviceaccount/nslifecycle-provisioner",
}

// installedParts returns the installed objects that run or have permissions.
func installedParts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(kubectl(ctx, "get", "deployments,poddisruptionbudgets,clusterrolebindings,clusterroles,rolebindings,"+
		"roles,serviceaccounts", "--namespace="+controlplane.SystemNamespace, "--selector="+selector,
		"--output=name"))
}

// canFinalize reports whether an account may remove the finalizers of namespaces.
func canFinalize(ctx context.Context, account string) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + controlplane.SystemNamespace + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "update", Resource: "namespaces", Subresource: "finalize", Name: "any",
		},
	}}
	admin.Creates(ctx, review)
	return review.Status.Allowed
}

// startDeployments runs a process for each Deployment of the system namespace, with its arguments and its ServiceAccount.
// The returned function stops them, and expects that the API server has not rejected any of their requests.
func startDeployments(ctx context.Context) (stop func()) {
	GinkgoHelper()
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.SetWebhookURL(ctx, webhooks.URL)).To(Succeed())
	var deployments appsv1.DeploymentList
	Expect(admin.List(ctx, &deployments, client.InNamespace(controlplane.SystemNamespace))).To(Succeed())
	var sessions []*gexec.Session
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		config, err := cluster.ServiceAccountConfig(ctx, deployment.Namespace, deployment.Spec.Template.Spec.ServiceAccountName)
		Expect(err).NotTo(HaveOccurred())
		args := []string{"--metrics-bind-address=0", "--diagnosis-progress-deadline=2s", "--webhook-url=" + webhooks.URL}
		if deployment.Name == controlplane.ServiceAccount {
			args = append(args, "--webhook-bind-address="+webhooks.Address)
		}
		command := framework.DeploymentCommand(deployment, binary(), config, args...)
		sessions = append(sessions, framework.StartProcess(command))
	}
	return func() {
		GinkgoHelper()
		for _, session := range sessions {
			session.Terminate().Wait(time.Minute)
			Expect(string(session.Err.Contents())).NotTo(ContainSubstring("forbidden"))
		}
	}
}
