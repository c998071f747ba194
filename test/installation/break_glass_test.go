// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// badTemplate selects all namespaces. Its ServiceAccount does not exist, so it cannot be applied.
const badTemplate = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: bad}
spec:
  namespaceSelector: {}
  serviceAccountName: missing
  objects: [{name: quota, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: content}}}]
`

// runPage runs a command of a section of docs/break-glass.md, with the name of an object, and returns its output.
func runPage(ctx context.Context, heading string, index int, name ...string) string {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "break-glass.md"))
	Expect(err).NotTo(HaveOccurred())
	_, section, _ := strings.Cut(string(page), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	Expect(len(blocks)).To(BeNumerically(">", index), "section %q", heading)
	script := blocks[index][1]
	if len(name) > 0 {
		Expect(script).To(ContainSubstring("NAME"))
		script = strings.ReplaceAll(script, "NAME", name[0])
	}
	command := exec.CommandContext(ctx, "bash", "-euc", script)
	command.Dir = GinkgoT().TempDir() // Not in the repository, because some commands write files.
	Expect(os.Symlink(filepath.Join(controlplane.Root(), "config"), filepath.Join(command.Dir, "config"))).To(Succeed())
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+command.Dir, "PATH="+strings.Join([]string{
		filepath.Dir(cluster.KubectlPath()), filepath.Join(controlplane.Root(), "bin"), os.Getenv("PATH"),
	}, string(os.PathListSeparator)))
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	AddReportEntry(heading, string(output))
	return string(output)
}

func installDefault(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "default"))
}

// administrator is a ServiceAccount of a cluster administrator.
var administrator = v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "administration", Name: "root"}

// confineAdministrator creates the administrator, whose writes an initializer confines, and returns a kubeconfig file of it.
func confineAdministrator(ctx context.Context) string {
	GinkgoHelper()
	createResource(ctx, wrappers.MakeNamespace(administrator.Namespace).Obj())
	createResource(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: administrator.Namespace, Name: administrator.Name},
	})
	createResource(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: administrator.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: administrator.Namespace, Name: administrator.Name,
		}},
	})
	config, err := cluster.ServiceAccountConfig(ctx, administrator.Namespace, administrator.Name)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, config, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	createResource(ctx, wrappers.MakeConfiguration("confining").Initializer("confining.test.example.com", v1alpha1.InitializerSettings{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"never": "matches"}},
		Subjects:          []v1alpha1.Subject{administrator}, Confinement: v1alpha1.ConfinementInitializingNamespaces,
	}).Obj())
	Eventually(enforced).WithContext(ctx).Should(ContainElement(HaveSuffix(policies.ConfinedName)))
	return framework.KubeconfigFile(config)
}

// applyAgentPolicy applies the policy of config/samples/agent, which the commands that install nslifecycle do not apply.
func applyAgentPolicy(ctx context.Context) {
	GinkgoHelper()
	for _, object := range kustomize(ctx, filepath.Join(controlplane.Root(), "config", "samples", "agent")) {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			createResource(ctx, &object)
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, &object))).To(Succeed()) })
		}
	}
}

// enforced returns what enforces rules: bindings of policies, and webhook configurations.
func enforced(ctx context.Context) []string {
	GinkgoHelper()
	kinds := "validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations"
	if framework.ServesPolicies(ctx, cluster.Admin.Config) {
		kinds += ",mutatingadmissionpolicybindings"
	}
	return strings.Fields(kubectl(ctx, "get", kinds, "--output=name"))
}

// replicas returns the replicas of the Deployments.
func replicas(ctx context.Context) (all []int32) {
	GinkgoHelper()
	var deployments appsv1.DeploymentList
	Expect(admin.List(ctx, &deployments)).To(Succeed())
	for _, deployment := range deployments.Items {
		all = append(all, *deployment.Spec.Replicas)
	}
	return all
}

const bindingPrefix = "validatingadmissionpolicybinding.admissionregistration.k8s.io/"

// remaining returns the bindings that are not deleted when everything is switched off.
func remaining(others ...string) (bindings []any) {
	for _, policy := range append([]string{"confine", "initializer-authors", "template-authors"}, others...) {
		bindings = append(bindings, bindingPrefix+"nslifecycle-"+policy)
	}
	return bindings
}

var _ = Describe("The commands in docs/break-glass.md for Helm", Ordered, func() {
	BeforeAll(startCluster)

	It("switch everything off, and on again", func(ctx context.Context) {
		helmSucceeds(ctx, "install", "--create-namespace", "--set=deletionProtection.enabled=true",
			"--set=namespaceOwners.enabled=true,provisioner.enabled=true")
		before := enforced(ctx)
		runPage(ctx, "Switch everything off", 0)
		Expect(enforced(ctx)).To(ConsistOf(remaining("namespace-owners", "protection", "provisioner")...))
		Expect(replicas(ctx)).To(HaveExactElements(int32(0), int32(0)))
		helmSucceeds(ctx, "upgrade", "--reset-then-reuse-values", "--force-conflicts")
		Expect(enforced(ctx)).To(ConsistOf(before))
		Expect(replicas(ctx)).To(HaveExactElements(int32(2), int32(2)))
	}, SpecTimeout(10*time.Minute))
})

// The specs run the commands of the page, as an administrator whose writes an initializer confines.
var _ = Describe("The commands in docs/break-glass.md", Ordered, ContinueOnFailure, func() {
	start := func(ctx context.Context) {
		GinkgoHelper()
		served, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		served.Duration = time.Second
		cluster.StartManager(ctx, func(options *manager.Options) { options.Hold = served })
		Expect(cluster.WaitForHold(ctx, served.URL)).To(Succeed())
	}
	restart := func(ctx context.Context, hasPolicies bool) {
		GinkgoHelper()
		Expect(cluster.KillAPIServer(ctx)).To(Succeed())
		Expect(cluster.StartAPIServer(controlplane.WithMutatingPolicies(hasPolicies))).To(Succeed())
	}
	create := func(ctx context.Context) error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("created")).Obj())
	}
	write := func(ctx context.Context, namespace string) error {
		return cluster.Ordinary.Clientset().CoreV1().RESTClient().Post().MaxRetries(0).Namespace(namespace).
			Resource("configmaps").Body(wrappers.MakeConfigMap(namespace, framework.Unique("written"))).Do(ctx).Error()
	}
	// By the gate or, after a second, by the hold webhook.
	isEarly := MatchError(ContainSubstring("is being initialized"))
	isInitializing := func(ctx context.Context, name string) bool {
		GinkgoHelper()
		_, ok := cluster.GetNamespace(Default, ctx, name).Labels[v1alpha1.LabelInitializing]
		return ok
	}
	// createInitializing registers an initializer that does not run, and creates a namespace that waits for it.
	createInitializing := func(ctx context.Context, settings v1alpha1.InitializerSettings) (configuration, namespace string) {
		GinkgoHelper()
		configuration = framework.Unique("missing")
		if settings.TimeoutSeconds != nil {
			configuration = framework.Unique("deadline") // Its turn is before the others.
		}
		resource := wrappers.MakeConfiguration(configuration).Initializer(configuration+".test.example.com", settings).Obj()
		createResource(ctx, resource)
		// A spec can have deleted it, or the CRD.
		DeferCleanup(func(ctx context.Context) { _ = admin.Delete(ctx, resource) })
		cluster.ExpectActive(ctx, configuration)
		namespace = framework.Unique("waiting")
		Expect(framework.PendingOf(framework.CreateNamespace(ctx, cluster.Ordinary, namespace))).To(ContainSubstring(configuration))
		return configuration, namespace
	}

	BeforeAll(func(ctx context.Context) {
		authority, err := controlplane.NewAuthority(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		cluster = framework.Start(ctx, controlplane.WithRestarts(authority))
		admin = cluster.Admin
		DeferCleanup(func() { cluster = nil })
		installDefault(ctx)
		Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
		start(ctx)
		kubeconfig = confineAdministrator(ctx)
	}, NodeTimeout(10*time.Minute))

	It("switch everything off while the operator is running, and on again", func(ctx context.Context) {
		Expect(runPage(ctx, "Find the cause", 0)).To(ContainSubstring("namespace/break-glass created"))
		configuration, waiting := createInitializing(ctx, v1alpha1.InitializerSettings{})
		finished := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("finished")).Name
		Eventually(write).WithContext(ctx).WithArguments(waiting).Should(isEarly)
		Expect(replicas(ctx)).To(HaveExactElements(int32(2), int32(2)))

		const timeout = 40 * time.Second
		_, used := createInitializing(ctx, v1alpha1.InitializerSettings{TimeoutSeconds: ptr.To(int32(timeout.Seconds()))})
		unused := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("unused"))
		for _, name := range []string{used, unused.Name} {
			Eventually(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, name)).To(matchers.HaveCondition(
					v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonInitializing))
			}).WithContext(ctx).Should(Succeed())
		}
		timeoutPassed := time.After(timeout)

		applyAgentPolicy(ctx)
		waitingAdministrator := wrappers.MakeConfiguration("waiting-administrator").Obj()
		waitingAdministrator.WaitingSubjects = []v1alpha1.Subject{administrator}
		createResource(ctx, waitingAdministrator)
		DeferCleanup(func(ctx context.Context) { _ = admin.Delete(ctx, waitingAdministrator) })
		cluster.ExpectActive(ctx, waitingAdministrator.Name)
		before := enforced(ctx)
		Expect(before).To(ContainElement(HaveSuffix("/origin-agent-confine")))
		runPage(ctx, "Switch everything off", 0)
		Expect(replicas(ctx)).To(HaveExactElements(int32(0), int32(0)))
		Eventually(write).WithContext(ctx).WithArguments(waiting).Should(Succeed())
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace(framework.Unique("probe")).Obj()
			g.Expect(cluster.Ordinary.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		Consistently(enforced).WithContext(ctx).WithTimeout(5 * time.Second).Should(
			ConsistOf(append(remaining(), bindingPrefix+"origin-agent-confine")...))
		Expect(create(ctx)).To(Succeed())
		cluster.StopManager()
		cluster.Initializer.Patches(ctx, wrappers.MakeNamespace(finished).Obj(), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPendingInitializers+`":""}}}`)
		Expect(isInitializing(ctx, finished)).To(BeTrue(), "no policy completes it")

		Eventually(timeoutPassed).WithContext(ctx).Should(Receive())
		Expect(runPage(ctx, "Switch it on", 0)).To(And(ContainSubstring(waiting), ContainSubstring(finished), ContainSubstring(used)))
		runPage(ctx, "Switch it on", 1, used)
		installDefault(ctx)
		Expect(replicas(ctx)).To(HaveExactElements(int32(2), int32(2)))
		start(ctx)
		Eventually(write).WithContext(ctx).WithArguments(waiting).Should(isEarly)
		Eventually(enforced).WithContext(ctx).Should(ConsistOf(before))
		for _, name := range []string{finished, used} {
			Eventually(isInitializing).WithContext(ctx).WithArguments(name).Should(BeFalse())
			Expect(cluster.GetNamespace(Default, ctx, name).DeletionTimestamp).To(BeNil())
		}
		framework.ExpectDeleted(ctx, admin, unused)
		cluster.ExpectActive(ctx, configuration)
		Expect(runPage(ctx, "Switch it on", 2)).To(And(MatchRegexp(`created-\S+ +\S+ +<none>`), MatchRegexp(waiting+` +\S+ +`+configuration)))
	}, SpecTimeout(10*time.Minute))

	It("deregister an initializer, with and without the operator", func(ctx context.Context) {
		configuration, first := createInitializing(ctx, v1alpha1.InitializerSettings{})
		runPage(ctx, "An initializer is missing", 0, configuration)
		Eventually(write).WithContext(ctx).WithArguments(first).Should(Succeed())

		_, second := createInitializing(ctx, v1alpha1.InitializerSettings{})
		if !framework.ServesPolicies(ctx, cluster.Admin.Config) {
			Skip("without the webhook, the API server completes no initialization")
		}
		cluster.StopManager()
		DeferCleanup(start)
		runPage(ctx, "An initializer is missing", 1)
		Eventually(write).WithContext(ctx).WithArguments(second).Should(Succeed())
		Expect(isInitializing(ctx, second)).To(BeFalse())
	}, SpecTimeout(10*time.Minute))

	It("replace a certificate, as the operator does if it is wrong", func(ctx context.Context) {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: webhooks.SecretName}
		replaced := func(changed []byte) func(Gomega) {
			return func(g Gomega) {
				g.Expect(admin.Get(ctx, key, secret)).To(Succeed())
				g.Expect(secret.Data[corev1.TLSCertKey]).To(And(HavePrefix("-----BEGIN"), Not(Equal(changed))))
				inject := &admissionv1.MutatingWebhookConfiguration{}
				g.Expect(admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, inject)).To(Succeed())
				g.Expect(inject.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", Equal(secret.Data["ca.crt"]))))
			}
		}
		Expect(admin.Get(ctx, key, secret)).To(Succeed())
		patch := client.MergeFrom(secret.DeepCopy())
		for name := range secret.Data {
			secret.Data[name] = []byte("wrong")
		}
		secret.Data[webhooks.TokenKey] = []byte("token")
		Expect(admin.Patch(ctx, secret, patch)).To(Succeed())
		Eventually(replaced(nil)).WithContext(ctx).Should(Succeed())
		current := secret.Data[corev1.TLSCertKey]
		runPage(ctx, "A certificate is wrong", 0)
		Eventually(replaced(current)).WithContext(ctx).Should(Succeed())
		Expect(secret.Data).To(HaveKeyWithValue(webhooks.TokenKey, []byte("token")))
	}, SpecTimeout(10*time.Minute))

	It("stop a template that selects everything", func(ctx context.Context) {
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, badTemplate, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "delete", "nstemplate", "bad") })
		var name string
		Eventually(func(g Gomega) {
			namespace := wrappers.MakeNamespace(framework.Unique("templated")).Obj()
			g.Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
			g.Expect(framework.PendingOf(namespace)).To(Equal(v1alpha1.TemplatesInitializer))
			name = namespace.Name
		}).WithContext(ctx).Should(Succeed())
		Consistently(isInitializing).WithContext(ctx).WithArguments(name).Should(BeTrue())
		runPage(ctx, "A template selects everything", 0, "bad")
		Eventually(isInitializing).WithContext(ctx).WithArguments(name).Should(BeFalse())
		Eventually(write).WithContext(ctx).WithArguments(name).Should(Succeed())
	}, SpecTimeout(10*time.Minute))

	It("restore the CRDs, or switch everything off, if an API server starts without them", func(ctx context.Context) {
		if !framework.ServesPolicies(ctx, cluster.Admin.Config) {
			Skip("no policy of this API server has a parameter")
		}
		isRefused := MatchError(ContainSubstring("failed to find resource referenced by paramKind"))
		for _, isOff := range []bool{false, true} {
			createInitializing(ctx, v1alpha1.InitializerSettings{})
			kubectl(ctx, "patch", "mutatingadmissionpolicy", "nslifecycle-inject", `--patch={"spec":{"failurePolicy":"Fail"}}`)
			cluster.StopManager()
			kubectl(ctx, append([]string{"delete", "crd"}, crds...)...)
			restart(ctx, true)
			Eventually(create).WithContext(ctx).Should(isRefused)
			if isOff {
				runPage(ctx, "Switch everything off", 0)
			} else {
				runPage(ctx, "The CRDs are missing", 0)
			}
			Eventually(create).WithContext(ctx).Should(Succeed())
			if isOff {
				installDefault(ctx)
			}
			start(ctx)
		}
	}, SpecTimeout(10*time.Minute))

	It("admit namespaces without the operator", func(ctx context.Context) {
		createInitializing(ctx, v1alpha1.InitializerSettings{})
		cluster.StopManager()
		By("completing an initialization without it")
		if framework.ServesPolicies(ctx, cluster.Admin.Config) {
			name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("alone")).Name
			cluster.Finish(ctx, name)
			Expect(isInitializing(ctx, name)).To(BeFalse())
		}
		restart(ctx, false)
		start(ctx)
		createInitializing(ctx, v1alpha1.InitializerSettings{})
		Eventually(func() string {
			return kubectl(ctx, "get", "mutatingwebhookconfiguration", "nslifecycle-inject", "--output=jsonpath={.webhooks[0].failurePolicy}")
		}).WithContext(ctx).Should(Equal("Fail"))
		cluster.StopManager()
		Eventually(create).WithContext(ctx).Should(MatchError(ContainSubstring(`failed calling webhook "inject.nslifecycle.dev"`)))
		runPage(ctx, "The operator is missing", 0)
		Eventually(create).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(10*time.Minute))
})
