// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// It needs a control plane of its own: other specs expect that early writes are rejected.
var _ = Describe("enforcement", Ordered, func() {
	const istiod = "system:serviceaccount:istio-system:istiod"
	var (
		audited       *framework.Cluster
		administrator *user
		istio         *framework.User
	)

	BeforeAll(func(ctx context.Context) {
		audited = framework.Start(ctx)
		Expect(audited.AggregateClusterRoles(ctx)).To(Succeed())
		audited.StartHoldingManager(ctx)
		administrator = newUser(audited.Admin.Config)
		istio = audited.Impersonate(istiod, "system:serviceaccounts", "system:authenticated")
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}
		audited.Bind(ctx, "istiod", []rbacv1.PolicyRule{rule},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "istio-system", Name: "istiod"})
		framework.ExpectAllowed(ctx, istio.Config, rule)
	})

	// create creates a ConfigMap without the retries of client-go.
	create := func(ctx context.Context, by *framework.User, namespace string) error {
		return by.Clientset().CoreV1().RESTClient().Post().MaxRetries(0).Namespace(namespace).Resource("configmaps").
			Body(wrappers.MakeConfigMap(namespace, unique("early"))).Do(ctx).Error()
	}
	set := func(ctx context.Context, mode string) {
		GinkgoHelper()
		changed := administrator.run(ctx, "enforcement", mode)
		Expect(changed.code).To(BeZero(), changed.stderr)
		Expect(strings.Count(changed.stdout, "patched ("+mode+")")).To(Equal(2))
		// The command waits only for some time until the operator has observed the mode.
		Expect(changed.stderr).To(Or(BeEmpty(), ContainSubstring("has not observed the mode")))
		Eventually(func(g Gomega) {
			g.Expect(strings.ToLower(string(audited.EffectiveSet(g, ctx).Status.Enforcement))).To(Equal(mode))
		}).WithContext(ctx).Should(Succeed())
	}

	It("admits early writes in audit mode, and API servers record who sent them", func(ctx context.Context) {
		namespace := audited.CreateInitializing(ctx, "audit").Name
		By("showing the mode")
		shown := administrator.run(ctx, "enforcement")
		Expect(shown.stdout).To(ContainSubstring("Mode: enforce."))
		Expect(administrator.run(ctx, "enforcement", "off").code).To(Equal(1))

		By("writing in audit mode")
		set(ctx, "audit")
		Eventually(func(g Gomega) {
			start := time.Now()
			g.Expect(create(ctx, istio, namespace)).To(Succeed())
			g.Expect(time.Since(start)).To(BeNumerically("<", 2*time.Second))
		}).WithContext(ctx).Should(Succeed())
		written := newUser(audited.Ordinary.Config).kubectl(ctx, nil, "create", "configmap", "web", "-n", namespace)
		Expect(written.code).To(BeZero())
		Expect(written.stderr).To(And(ContainSubstring("is being initialized"), ContainSubstring("if the request is rejected, repeat it")),
			"the warning of the gate")
		Expect(create(ctx, audited.Initializer, namespace)).To(Succeed())

		By("changing state that the policy guard protects")
		object := wrappers.MakeNamespace(namespace).Obj()
		Expect(audited.Ordinary.Patch(ctx, object, framework.MergePatch([]byte(
			`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":""}}}`)))).NotTo(Succeed())

		By("reading the status")
		Eventually(func(g Gomega) {
			current := audited.EffectiveSet(g, ctx)
			enforced := meta.FindStatusCondition(current.Status.Conditions, internalv1alpha1.ConditionEnforced)
			g.Expect(enforced).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1alpha1.ReasonAuditMode)))
			var configurations v1alpha1.NamespaceInitializerConfigurationList
			g.Expect(audited.Admin.List(ctx, &configurations)).To(Succeed())
			g.Expect(configurations.Items).NotTo(BeEmpty())
			for _, configuration := range configurations.Items {
				g.Expect(meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)).To(
					And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1alpha1.ReasonAuditMode)))
			}
		}).WithContext(ctx).Should(Succeed())

		By("printing who would have been rejected, with the command in docs/install.md")
		Expect(administrator.run(ctx, "enforcement").stdout).To(ContainSubstring("Mode: audit."))
		Eventually(func(g Gomega) {
			printed, err := printAudited(ctx, audited.AuditLog)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(printed).To(And(
				MatchRegexp(`(?m)^ +[0-9]+ `+istiod+"\tcreate\tconfigmaps\t"),
				MatchRegexp(`(?m)^ +1 `+framework.OrdinaryUser+"\tcreate\tconfigmaps\tkubectl"),
				Not(ContainSubstring(framework.InitializerUser))))
		}).WithContext(ctx).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())

		By("enforcing the gate after the grant")
		Expect(administrator.kubectl(ctx, nil, "create", "clusterrolebinding", "early-writes", "--serviceaccount=istio-system:istiod",
			"--clusterrole=nslifecycle-namespace-provisioner").code).To(BeZero())
		set(ctx, "enforce")
		Eventually(create).WithArguments(ctx, audited.Ordinary, namespace).WithTimeout(time.Minute).
			Should(MatchError(apierrors.IsTooManyRequests, "IsTooManyRequests"))
		Eventually(create).WithArguments(ctx, istio, namespace).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("rejects or admits each write while the mode changes", func(ctx context.Context) {
		namespace := audited.CreateInitializing(ctx, "toggled").Name
		var writers sync.WaitGroup
		toggling, stop := context.WithCancel(ctx)
		for range 4 {
			writers.Go(func() {
				defer GinkgoRecover()
				for toggling.Err() == nil {
					if err := create(toggling, audited.Ordinary, namespace); err != nil && toggling.Err() == nil {
						Expect(apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
					}
				}
			})
		}
		for range 3 {
			set(ctx, "audit")
			set(ctx, "enforce")
		}
		stop()
		writers.Wait()
		Eventually(create).WithArguments(ctx, audited.Ordinary, namespace).WithTimeout(time.Minute).ShouldNot(Succeed())
		Consistently(create).WithArguments(ctx, audited.Ordinary, namespace).WithTimeout(5 * time.Second).ShouldNot(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("refuses to change bindings that another tool manages, and warns if they differ", func(ctx context.Context) {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		binding.Name = "nslifecycle-gate"
		Expect(audited.Admin.Patch(ctx, binding, framework.MergePatch([]byte(
			`{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"nslifecycle"}},"spec":{"validationActions":["Warn"]}}`)))).
			To(Succeed())
		Expect(administrator.run(ctx, "enforcement").stdout).To(ContainSubstring("Mode: mixed."))
		Eventually(func(g Gomega) {
			current := audited.EffectiveSet(g, ctx)
			g.Expect(current.Status.Enforcement).To(Equal(internalv1alpha1.EnforcementEnforce), "held unless all bindings audit")
			enforced := meta.FindStatusCondition(current.Status.Conditions, internalv1alpha1.ConditionEnforced)
			g.Expect(enforced).To(HaveField("Reason", v1alpha1.ReasonAuditMode))
		}).WithContext(ctx).Should(Succeed())
		refused := administrator.run(ctx, "enforcement", "enforce")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(HavePrefix(`error: Flux (Kustomization) "nslifecycle" manages the bindings`),
			ContainSubstring("remove the component config/audit"), ContainSubstring("--force")))
		changed := administrator.run(ctx, "enforcement", "enforce", "--force")
		Expect(changed.code).To(BeZero())
		Expect(changed.stderr).To(HavePrefix(`Warning: Flux (Kustomization) "nslifecycle" manages the bindings`))
		audited.Admin.Reads(ctx, binding)
		Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		audited.Admin.Patches(ctx, binding,
			`{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":null}}}`)
	})

	It("checks the installation", func(ctx context.Context) {
		// The manager under test runs without leader election.
		for _, name := range []string{"nslifecycle.dev", "admission.nslifecycle.dev"} {
			audited.Admin.Creates(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To("test"), LeaseDurationSeconds: ptr.To[int32](3600),
					RenewTime: ptr.To(metav1.NowMicro()),
				},
			})
		}
		Eventually(func(g Gomega) {
			checked := administrator.run(ctx, "check")
			g.Expect(checked.code).To(BeZero())
			g.Expect(strings.ReplaceAll(checked.stdout, "\n  ", " ")).To(And(
				ContainSubstring("ok    new namespaces get the initializers of the set\n"),
				ContainSubstring("ok    API servers reach the webhooks\n"),
				ContainSubstring("ok    ServiceAccount nslifecycle-controller-manager has its permissions\n"),
				ContainSubstring("ok    ServiceAccount nslifecycle-admission has its permissions\n"),
				Not(ContainSubstring("Istio")),
			))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())

		By("adding a controller that writes into new namespaces, in audit mode")
		manager := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cert-manager", Name: "trust-manager"}}
		audited.Admin.Creates(ctx, wrappers.MakeNamespace(manager.Namespace).Obj())
		audited.Admin.Creates(ctx, manager)
		set(ctx, "audit")
		Eventually(func(g Gomega) {
			checked := administrator.run(ctx, "check")
			g.Expect(checked.code).To(BeZero(), "warnings are not failures")
			g.Expect(checked.stdout).To(And(ContainSubstring("warn  new namespaces get the initializers of the set: "),
				ContainSubstring("audit mode"), ContainSubstring("cert-manager/trust-manager"), Not(ContainSubstring("Bundle"))))
		}).WithContext(ctx).Should(Succeed())
		set(ctx, "enforce")

		By("adding objects of this controller that do not exclude initializing namespaces, and that do")
		apply := func(manifest string) error {
			_, err := audited.KubectlWithInput(ctx, audited.Admin.Config, manifest, "apply", "-f", "-")
			return err
		}
		Expect(apply(bundleDefinition)).To(Succeed())
		bundle := func(name, selector string) {
			GinkgoHelper()
			Eventually(apply).WithArguments(`{apiVersion: trust.cert-manager.io/v1alpha1, kind: Bundle, metadata: {name: ` + name +
				`}, spec: {target: {namespaceSelector: ` + selector + `}}}`).WithContext(ctx).Should(Succeed())
		}
		trust := func() string {
			GinkgoHelper()
			checked := strings.ReplaceAll(administrator.run(ctx, "check").stdout, "\n  ", " ")
			return regexp.MustCompile(`(?m)^.* trust-manager .*$`).FindString(checked)
		}
		const exclusion = "{matchExpressions: [{key: nslifecycle.dev/initializing, operator: DoesNotExist}]}"
		bundle("excluding", exclusion)
		Expect(trust()).To(HavePrefix("ok "))
		bundle("selecting", "{matchLabels: {team: a}}")
		Expect(trust()).To(And(HavePrefix("warn "), ContainSubstring(`Bundle "selecting"`)))

		By("granting the permission to write early")
		audited.Bind(ctx, "trust-manager-provisioner", []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"provision"},
		}}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: manager.Namespace, Name: manager.Name})
		Eventually(trust).WithContext(ctx).Should(HavePrefix("ok "))

		By("checking without permissions")
		unauthorized := newRestrictedUser(ctx, audited, unique("restricted"), rbacv1.PolicyRule{
			APIGroups: []string{"internal.nslifecycle.dev"}, Resources: []string{"namespaceinitializersets"}, Verbs: []string{"get"},
		}).run(ctx, "check")
		Expect(unauthorized.code).NotTo(BeZero())
		Expect(unauthorized.stdout).To(ContainSubstring("?     API servers reach the webhooks: "))

		By("removing a permission and the webhook server")
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-admission-rolebinding"}}
		audited.Admin.Deletes(ctx, binding)
		audited.StopManager()
		Eventually(func(g Gomega) {
			failed := administrator.run(ctx, "check")
			g.Expect(failed.code).To(Equal(3))
			g.Expect(failed.stdout).To(And(ContainSubstring("FAIL  API servers reach the webhooks: "),
				ContainSubstring("FAIL  ServiceAccount nslifecycle-admission has its permissions: ")))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

// printAudited runs the command in docs/install.md that prints the audited writes in an audit log.
func printAudited(ctx context.Context, log framework.AuditLog) (string, error) {
	page, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "install.md"))
	if err != nil {
		return "", err
	}
	line := regexp.MustCompile(`(?m)^ +(jq -r .*) audit\.log (.*)$`).FindSubmatch(page)
	if line == nil {
		return "", errors.New("docs/install.md contains no jq command")
	}
	directory := GinkgoT().TempDir()
	if err := controlplane.Build(ctx, filepath.Join(controlplane.Root(), "hack", "gojq"),
		"github.com/itchyny/gojq/cmd/gojq", filepath.Join(directory, "jq")); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "bash", "-c", fmt.Sprintf("set -o pipefail; %s %q %s", line[1], log, line[2]))
	command.Env = append(os.Environ(), "PATH="+directory+string(filepath.ListSeparator)+os.Getenv("PATH"))
	printed, err := command.CombinedOutput()
	return string(printed), err
}

// bundleDefinition is a CustomResourceDefinition for the Bundles of trust-manager.
const bundleDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: bundles.trust.cert-manager.io},
  spec: {group: trust.cert-manager.io, scope: Cluster,
    names: {kind: Bundle, listKind: BundleList, plural: bundles, singular: bundle},
    versions: [{name: v1alpha1, served: true, storage: true,
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
