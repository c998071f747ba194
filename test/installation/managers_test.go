// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// otherParameters is a policy with another parameter kind. It makes the API server fill its cache
// of parameter kinds shortly before the CRDs are installed. The API server then does not refresh
// the cache for up to 30 s.
const otherParameters = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: other.example.com}
spec:
  paramKind: {apiVersion: v1, kind: Secret}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: other.example.com}
spec:
  policyName: other.example.com
  paramRef: {name: none, namespace: default, parameterNotFoundAction: Allow}
  validationActions: [Deny]
`

// The first spec is about the first installation.
var _ = Describe("An installation with a manager", Ordered, ContinueOnFailure, func() {
	BeforeAll(startCluster)

	It("is not mentioned in the error message if no cluster is configured", func(ctx context.Context) {
		command := exec.CommandContext(ctx, binary(), "--health-probe-bind-address=0")
		command.Env = []string{"HOME=" + GinkgoT().TempDir(), "KUBECONFIG=" + filepath.Join(GinkgoT().TempDir(), "none")}
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		Expect(errors.As(err, &exit)).To(BeTrue(), string(output))
		Expect(exit.ExitCode()).To(Equal(3))
		Expect(string(output)).To(And(ContainSubstring("no cluster is configured"), Not(ContainSubstring("not installed"))))
	}, SpecTimeout(8*time.Minute))

	// This is the first installation: the API server cannot know the parameter kind from an earlier one.
	It("does not block the creation of namespaces while it is applied or deleted", func(ctx context.Context) {
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, otherParameters, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(2 * time.Second) // The API server refreshes policies every second.
		stop := keepCreatingNamespaces(ctx)
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })

		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		startManager(ctx)
		configuration := wrappers.MakeConfiguration("first").Initializers("a.test.example.com").Obj()
		createResource(ctx, configuration)

		By("reporting the configuration as active only after the API server injects the initializer")
		// The duration depends on when the API server last refreshed its cache.
		Eventually(func(g Gomega) {
			g.Expect(activeCondition(g, ctx, "first").Status).To(Equal(metav1.ConditionTrue))
		}).WithContext(ctx).Should(Succeed())
		Expect(framework.CreateNamespace(ctx, admin, framework.Unique("installed")).Labels).To(HaveKey(v1alpha1.LabelInitializing))

		By("applying it again")
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		Expect(framework.CreateNamespace(ctx, admin, framework.Unique("installed")).Labels).To(HaveKey(v1alpha1.LabelInitializing))

		By("deleting it, as make undeploy does: without the webhooks, the manager does not apply the policies again")
		deletePolicies(ctx)
		cluster.StopManager()
		undeploy(ctx)
		Expect(stop()).To(BeNumerically(">", 50))
		Expect(framework.CreateNamespace(ctx, admin, framework.Unique("removed")).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	}, SpecTimeout(8*time.Minute))

	It("is not required, except for its permissions, for finalization", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		part := filepath.Join(filepath.Dir(framework.Variant()), "part")
		Expect(os.Mkdir(part, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(part, "kustomization.yaml"), []byte("namespace: nslifecycle-system\nnamePrefix: nslifecycle-\n"+
			"resources: [../manager/namespace, ../rbac, ../manager]\n"), 0o644)).To(Succeed())
		kubectl(ctx, "apply", "-k", part)
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())

		By("failing to start the initialization controller")
		initializing := startBinary(config, "--health-probe-bind-address=0")
		Eventually(initializing).WithContext(ctx).Should(gexec.Exit(1))
		Expect(string(initializing.Err.Contents())).To(And(
			ContainSubstring("the CustomResourceDefinitions are not installed"), ContainSubstring("kubectl apply -k config/default")))

		session := startBinary(config, "--controllers=finalization", "--leader-elect", "--health-probe-bind-address=0")
		namespace := framework.CreateNamespace(ctx, admin, "bare")
		held := wrappers.MakeConfigMap(namespace.Name, "held")
		held.Finalizers = []string{"test.example.com/held"}
		for _, object := range []client.Object{held, wrappers.MakeConfigMap(namespace.Name, "a"), wrappers.MakeConfigMap(namespace.Name, "b")} {
			admin.Creates(ctx, object)
		}
		admin.Deletes(ctx, namespace)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain", "configmaps. has 1 resource instances"))
		kubectl(ctx, "patch", "configmap", held.Name, "--namespace="+namespace.Name, `--patch={"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(session).NotTo(gexec.Exit(), "the manager exited early")
		session.Terminate()
		Eventually(session).WithContext(ctx).Should(gexec.Exit(0))
		for line := range strings.Lines(string(session.Err.Contents())) {
			// controller-runtime logs this error if the manager releases its Lease before it has stopped.
			if !strings.Contains(line, "leader election lost") {
				Expect(line).NotTo(Or(ContainSubstring(`"level":"error"`), ContainSubstring("forbidden")))
			}
		}
	}, SpecTimeout(8*time.Minute))

	// With the component config/webhook, the controller may apply the mutating policies and their bindings.
	It("does not permit the admission controller to change mutating policies without the component", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "there is no mutating policy")
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		admin.Deletes(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-webhook-policies"}})
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.AdmissionAccount)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.InstallPolicies(ctx)).To(Succeed())
		for _, name := range []string{"nslifecycle-inject", "nslifecycle-complete", "nslifecycle-require-set"} {
			policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
			err = framework.NewUser(config).Patch(ctx, policy, framework.MergePatch(`{"spec": {"failurePolicy": "Ignore"}}`))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		}
	}, SpecTimeout(8*time.Minute))

	It("uses failurePolicy Fail for policies with parameters after every API server has read the set", func(ctx context.Context) {
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		always, injected := []string{"nslifecycle-template-authors"}, []string{"nslifecycle-template-authors"}
		if framework.ServesPolicies(ctx, cluster.Admin.Config) {
			Expect(cluster.InstallPolicies(ctx)).To(Succeed())
			always = append(always, "nslifecycle-require-set")
			injected = append(always, "nslifecycle-inject")
			expectHeavyRejected(ctx)
		}
		Expect(policiesWithFail(ctx)).To(ConsistOf(always))

		By("changing the failurePolicy to Fail")
		later := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
		startManager(ctx, func(options *manager.Options) { options.Clock = later })
		Eventually(policiesWithFail).WithContext(ctx).Should(ConsistOf(injected), "without templates and subjects")
		admin.Creates(ctx, wrappers.MakeNamespace(framework.Unique("hardened")).Obj())
		// The API server recognizes the parameter kind of the policies for templates after some time.
		Eventually(func() error {
			_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, `{apiVersion: nslifecycle.dev/v1alpha1,
				kind: NamespaceTemplate, metadata: {name: hardened}, spec: {serviceAccountName: provisioner, objects: [
					{name: settings, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}}]}}`, "apply", "-f", "-")
			return err
		}).WithContext(ctx).Should(Succeed())
		waiting := wrappers.MakeConfiguration("hardened").Obj()
		waiting.WaitingSubjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "waiting@corp.example.com"}}
		createResource(ctx, waiting)
		all := ConsistOf(append(injected, "nslifecycle-templates", "nslifecycle-waiting-subjects",
			"nslifecycle-waiting-subjects-resources-named-namespaces", "nslifecycle-initializer-subjects"))
		Eventually(policiesWithFail).WithContext(ctx).Should(all)

		By("keeping Fail in an upgrade")
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		Consistently(policiesWithFail).WithContext(ctx).WithTimeout(3 * time.Second).Should(all)
	}, SpecTimeout(8*time.Minute))

	It("reports missing policies until they are installed", func(ctx context.Context) {
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		deletePolicies(ctx)
		startManager(ctx)
		createResource(ctx, wrappers.MakeConfiguration("policies").Initializers("a.test.example.com").Obj())
		Eventually(func(g Gomega) {
			condition := activeCondition(g, ctx, "policies")
			g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonPolicyMissing))
			if framework.ServesPolicies(ctx, cluster.Admin.Config) {
				g.Expect(condition.Message).To(ContainSubstring(`MutatingAdmissionPolicy "inject"`))
			}
			g.Expect(condition.Message).To(And(ContainSubstring(`ValidatingAdmissionPolicy "gate"`), ContainSubstring("kubectl apply -k config/default")))
		}).WithContext(ctx).Should(Succeed())

		By("repairing labels while the policies are missing")
		expectRepaired(ctx, makeDrift(ctx))

		By("not deleting a namespace that was created without initializers")
		patch := framework.MergePatch(`{"metadata":{
			"labels":{"nslifecycle.dev/initializing":"true"},
			"annotations":{"nslifecycle.dev/pending-initializers":"a.test.example.com",
				"nslifecycle.dev/initialization-result":"{\"status\":\"Failure\"}"}}}`)
		nodeLease := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
		if err := admin.Create(ctx, nodeLease.DeepCopy()); err != nil {
			Expect(err).To(MatchError(ContainSubstring("already exists")))
		}
		for _, victim := range []*corev1.Namespace{framework.CreateNamespace(ctx, admin, framework.Unique("victim")), nodeLease} {
			Expect(admin.Patch(ctx, victim, patch)).To(Succeed())
			Eventually(func(g Gomega) {
				var now corev1.Namespace
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(victim), &now)).To(Succeed())
				g.Expect(&now).To(matchers.BeInitializing("False", v1alpha1.ReasonFailed))
				g.Expect(now.DeletionTimestamp).To(BeNil())
			}).WithContext(ctx).Should(Succeed())
		}

		By("installing the policies")
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(activeCondition(g, ctx, "policies").Status).To(Equal(metav1.ConditionTrue))
		}).WithContext(ctx).Should(Succeed())
		Expect(framework.CreateNamespace(ctx, admin, framework.Unique("policies")).Labels).To(HaveKey(v1alpha1.LabelInitializing))
	}, SpecTimeout(8*time.Minute))

	It("repairs labels that a user edited while the policies were missing", func(ctx context.Context) {
		drifted := makeDrift(ctx)
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		Eventually(func() error {
			return admin.Create(ctx, wrappers.MakeNamespace(framework.Unique("probe")).
				Annotation(v1alpha1.AnnotationRequestedBy, "mallory").Obj(), client.DryRunAll)
		}).WithContext(ctx).Should(matchers.BeDeniedBy("guard"))
		startManager(ctx)
		expectRepaired(ctx, drifted)
	}, SpecTimeout(8*time.Minute))

	It("verifies the set in a process of its own, with its own Lease", func(ctx context.Context) {
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		webhooks, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		running, err := controlplane.RunManager(ctx, config, func(o *manager.Options) {
			o.Controllers, o.Hold = manager.Controllers{manager.Initialization: true}, webhooks
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		createResource(ctx, wrappers.MakeConfiguration("separate").Initializers("a.test.example.com").Obj())
		Eventually(func(g Gomega) {
			condition := activeCondition(g, ctx, "separate")
			g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonEnforcementPending))
			g.Expect(condition.Message).To(ContainSubstring("--controllers=admission"))
		}).WithContext(ctx).Should(Succeed())

		By("starting the process")
		account, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.AdmissionAccount)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.SetWebhookURL(ctx, webhooks.URL)).To(Succeed())
		probes := framework.FreeAddress()
		admission := startBinary(account, "--controllers=admission", "--leader-elect",
			"--leader-elect-resource-name=admission.nslifecycle.dev", "--webhook-url="+webhooks.URL,
			"--health-probe-bind-address="+probes)
		Eventually(httpStatus).WithContext(ctx).WithArguments("http://" + probes + "/readyz").Should(Equal(http.StatusOK))
		Eventually(func(g Gomega) {
			g.Expect(activeCondition(g, ctx, "separate").Status).To(Equal(metav1.ConditionTrue))
		}).WithContext(ctx).Should(Succeed())
		Expect(admission.Err.Contents()).NotTo(ContainSubstring("forbidden"))
		admission.Terminate()
		Eventually(admission).WithContext(ctx).Should(gexec.Exit(0))
	}, SpecTimeout(8*time.Minute))

	It("supports two managers; a manager is ready before it becomes the leader", func(ctx context.Context) {
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { undeploy(ctx) })
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		webhooks, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		next, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		startAdmission := func(hold *hold.Options) *controlplane.Manager {
			GinkgoHelper()
			admission, err := cluster.StartAdmission(ctx, func(o *manager.Options) { o.Hold = hold })
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { Expect(admission.Stop()).To(Succeed()) })
			return admission
		}
		admission := startAdmission(webhooks)
		first := startBinary(config, controlplane.WithoutAdmission, "--webhook-bind-address="+webhooks.Address, "--leader-elect",
			"--health-probe-bind-address="+framework.FreeAddress())
		Eventually(first.Err).WithContext(ctx).Should(gbytes.Say("Successfully acquired lease"))
		probes := framework.FreeAddress()
		second := startBinary(config, controlplane.WithoutAdmission, "--webhook-bind-address="+next.Address, "--leader-elect",
			"--health-probe-bind-address="+probes)
		Eventually(httpStatus).WithContext(ctx).WithArguments("http://" + probes + "/readyz").Should(Equal(http.StatusOK))
		Expect(second.Err.Contents()).NotTo(ContainSubstring("Successfully acquired lease"))

		By("electing the second manager immediately after the first manager stops")
		createResource(ctx, wrappers.MakeConfiguration("leader").Initializers("a.test.example.com").Obj())
		first.Terminate()
		Expect(admission.Stop()).To(Succeed())
		startAdmission(next) // In a cluster, a Service selects the other replica.
		Eventually(second.Err).WithContext(ctx).Should(gbytes.Say("Successfully acquired lease"))
		Eventually(func(g Gomega) {
			g.Expect(activeCondition(g, ctx, "leader").Status).To(Equal(metav1.ConditionTrue))
		}).WithContext(ctx).Should(Succeed())
		Eventually(first).WithContext(ctx).Should(gexec.Exit(0))
	}, SpecTimeout(8*time.Minute))
})

// expectHeavyRejected expects that namespaces are rejected that exceed the CEL budget of inject while its failurePolicy is
// Ignore.
func expectHeavyRejected(ctx context.Context) {
	GinkgoHelper()
	set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.EffectiveSetName}}
	set.Initializers = []internalv1alpha1.EffectiveInitializer{{
		Name: "a.test.example.com", InitializerSettings: v1alpha1.DefaultInitializerSettings(),
	}}
	createResource(ctx, set)
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace(framework.Unique("probe")).Obj()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
	}).WithContext(ctx).Should(Succeed())
	heavy := wrappers.MakeNamespace(framework.Unique("heavy")).Label(v1alpha1.LabelDeletionProtection, "enabled")
	for i := range 20000 {
		heavy.Label(fmt.Sprintf("nslifecycle.dev/%d", i), "")
	}
	Eventually(func() error { return admin.Create(ctx, heavy.Obj(), client.DryRunAll) }).WithContext(ctx).
		Should(matchers.BeDeniedBy("guard", "at most 2000 labels and annotations"))
	admin.Deletes(ctx, set)
}

// drift contains namespaces whose label and pending list are inconsistent because a user edited
// them while the policies were missing.
type drift struct {
	// withoutList contains namespaces that have the label but no pending initializers.
	withoutList []*corev1.Namespace
	// withoutLabel is a namespace that has a pending initializer but not the label.
	withoutLabel *corev1.Namespace
}

func makeDrift(ctx context.Context) drift {
	GinkgoHelper()
	made := drift{
		withoutList: []*corev1.Namespace{
			wrappers.MakeNamespace(framework.Unique("drift")).Label(v1alpha1.LabelInitializing, "true").Obj(),
			wrappers.MakeNamespace(framework.Unique("drift")).Label(v1alpha1.LabelInitializing, "false").
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ").
				Annotation(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`).Obj(),
		},
		withoutLabel: wrappers.MakeNamespace(framework.Unique("drift")).
			Annotation(v1alpha1.AnnotationPendingInitializers, "a.test.example.com").Obj(),
	}
	for _, namespace := range append([]*corev1.Namespace{made.withoutLabel}, made.withoutList...) {
		admin.Creates(ctx, namespace)
	}
	return made
}

func expectRepaired(ctx context.Context, drifted drift) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, namespace := range drifted.withoutList {
			var now corev1.Namespace
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), &now)).To(Succeed())
			g.Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			g.Expect(now.Annotations).To(BeEmpty())
			g.Expect(&now).To(matchers.BeInitializing("False", v1alpha1.ReasonInitialized))
		}
		var now corev1.Namespace
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(drifted.withoutLabel), &now)).To(Succeed())
		g.Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		g.Expect(&now).To(matchers.BeInitializing("True", v1alpha1.ReasonInitializing))
	}).WithContext(ctx).Should(Succeed())
}

func activeCondition(g Gomega, ctx context.Context, name string) *metav1.Condition {
	var configuration v1alpha1.NamespaceInitializerConfiguration
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &configuration)).To(Succeed())
	condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
	g.Expect(condition).NotTo(BeNil())
	return condition
}

// policiesWithFail returns the names of the installed policies with a parameter and the failure policy Fail.
func policiesWithFail(ctx context.Context) []string {
	GinkgoHelper()
	var mutating admissionv1.MutatingAdmissionPolicyList
	var validating admissionv1.ValidatingAdmissionPolicyList
	if err := admin.List(ctx, &mutating); !meta.IsNoMatchError(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(admin.List(ctx, &validating)).To(Succeed())
	var names []string
	add := func(name string, paramKind *admissionv1.ParamKind, policy *admissionv1.FailurePolicyType) {
		// Other specs create policies, too.
		if paramKind != nil && *policy == admissionv1.Fail && strings.HasPrefix(name, "nslifecycle-") {
			names = append(names, name)
		}
	}
	for _, policy := range mutating.Items {
		add(policy.Name, policy.Spec.ParamKind, policy.Spec.FailurePolicy)
	}
	for _, policy := range validating.Items {
		add(policy.Name, policy.Spec.ParamKind, policy.Spec.FailurePolicy)
	}
	return names
}

// deletePolicies deletes the webhooks and the admission policies, and waits until the API server no longer enforces
// them.
func deletePolicies(ctx context.Context) {
	GinkgoHelper()
	kinds := framework.PolicyKinds(ctx, cluster.Admin.Config)
	// Without the policies, guard does not reject the label and inject does not remove it.
	Eventually(func(g Gomega) {
		// The manager can be applying policies whose owner was just deleted, and there is no garbage collector here.
		kubectl(ctx, "delete", kinds, "--selector="+selector, "--ignore-not-found")
		probe := wrappers.MakeNamespace(framework.Unique("probe")).Label(v1alpha1.LabelInitializing, "false").Obj()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "false"))
	}).WithContext(ctx).Should(Succeed())
	time.Sleep(time.Second) // Requests that inject has already changed might still be in progress.
}

// undeploy deletes an installation as make undeploy does. It does not wait until the system
// namespace is deleted, because no namespace controller runs here.
func undeploy(ctx context.Context) {
	GinkgoHelper()
	deletePolicies(ctx)
	kubectl(ctx, "delete", "--ignore-not-found", "--wait=false", withoutSources, "-k", filepath.Join(controlplane.Root(), "config", "default"))
	clientset := cluster.Admin.Clientset()
	Eventually(func() error {
		system, err := clientset.CoreV1().Namespaces().Get(ctx, controlplane.SystemNamespace, metav1.GetOptions{})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		system.Spec.Finalizers = nil
		_, err = clientset.CoreV1().Namespaces().Finalize(ctx, system, metav1.UpdateOptions{})
		return errors.Join(client.IgnoreNotFound(err), errors.New("the system namespace still existed"))
	}).WithContext(ctx).Should(Succeed())
	// Otherwise, the next installation could apply a CRD that is about to be deleted. The API server can wait
	// for a minute until it has deleted the objects of a CRD that has just been created, and then retries.
	Eventually(func() string {
		return kubectl(ctx, append([]string{"get", "crd", "--ignore-not-found"}, crds...)...)
	}).WithContext(ctx).WithTimeout(4 * time.Minute).Should(BeEmpty())
}

// createResource creates a custom resource immediately after an installation. The API server's cache
// might not contain the CRD yet, or still contain the terminating CRD of the previous installation.
func createResource(ctx context.Context, resource client.Object) {
	GinkgoHelper()
	Eventually(func() error { return admin.Create(ctx, resource) }).WithContext(ctx).Should(Succeed())
}

// keepCreatingNamespaces creates namespaces in sequence until stop is called or a request fails.
// stop returns the number of created namespaces.
func keepCreatingNamespaces(ctx context.Context) (stop func() int) {
	done := make(chan struct{})
	count := 0
	var group sync.WaitGroup
	group.Go(func() {
		defer GinkgoRecover()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			admin.Creates(ctx, wrappers.MakeNamespace(framework.Unique("meanwhile")).Obj())
			count++
		}
	})
	return func() int {
		close(done)
		group.Wait()
		return count
	}
}

// startBinary runs the manager until the spec ends.
func startBinary(config *rest.Config, args ...string) *gexec.Session {
	GinkgoHelper()
	return framework.StartProcess(exec.Command(binary(), append(args, "--kubeconfig="+framework.KubeconfigFile(config))...))
}

// httpStatus returns the status code of a GET request, or 0 if there is no response.
func httpStatus(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
