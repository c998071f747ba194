// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// victim is the namespace of the other tenant.
const victim = "tenant-b"

// Each word occurs in one field of the other tenant's objects. To guess a word, a tenant uses it in
// the name of a finalizer.
var (
	words = []string{
		"argword", "commandword", "envword", "imageword", "containerword", "labelword", "deploymentword", "podword",
		"accountword", "leaseword", "holderword", "bindingsubjectword", "uninstalledword", victim,
	}
	unknownWord = "unknownword"
)

// The specs use their own control plane, in which the manager starts a diagnosis after a short time. Each spec waits
// for a diagnosis. On a busy machine, a shorter deadline results in Events with the cause
// NamespaceControllerUnresponsive about some of the namespaces.
var _ = Describe("A diagnosis", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		startCluster(ctx, func(options *manager.Options) { options.DiagnosisProgressDeadline = 15 * time.Second })
	}, NodeTimeout(specTimeout))

	Context("for a tenant who can read a Namespace", describeTenant)
	Context("with Hostile text", describeHostileText)
})

func describeTenant() {
	BeforeAll(func(ctx context.Context) {
		createOtherTenant(ctx)
		// The first finalization can take longer than the deadline.
		first := framework.CreateNamespace(ctx, cluster.Admin, "first")
		cluster.Admin.Deletes(ctx, first)
		framework.ExpectDeleted(ctx, cluster.Admin, first)
	})

	It("cannot use a finalizer to learn which words occur in another namespace", func(ctx context.Context) {
		stuck := func(word string) *corev1.Namespace {
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("stuck"))
			held := wrappers.MakeConfigMap(namespace.Name, "held")
			held.Finalizers = []string{finalizerOf(word)}
			// The diagnosis searches for workloads with the name of the field manager.
			Expect(cluster.Admin.Create(ctx, held, client.FieldOwner(word+"-controller"))).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				Expect(cluster.Admin.Patch(ctx, held, withoutFinalizers)).To(Succeed())
			})
			Eventually(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(HaveCondition(
					v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized))
			}).WithContext(ctx).Should(Succeed())
			cluster.Admin.Deletes(ctx, namespace)
			return namespace
		}
		reference := stuck(unknownWord)
		guesses := map[string]*corev1.Namespace{}
		for _, word := range words {
			guesses[word] = stuck(word)
		}
		Eventually(func(g Gomega) {
			expected := published(g, ctx, reference, unknownWord)
			g.Expect(expected).To(ContainElement(HavePrefix("Event Warning ")))
			for word, namespace := range guesses {
				texts := published(g, ctx, namespace, word)
				g.Expect(texts).To(ContainElement(HavePrefix("Event Warning ")))
				expectNoVictim(g, texts)
				g.Expect(texts).To(Equal(expected), "the namespace with the guessed word %s", word)
			}
			g.Expect(cluster.GetNamespace(g, ctx, reference.Name)).To(HaveCondition(
				v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, string(diagnosis.CauseFinalizerPending),
				finalizerOf(unknownWord), `configmaps "held"`, "kubectl nslifecycle explain "+reference.Name))
		}).WithContext(ctx).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(Succeed())

		By("running explain with permissions to read the other namespace")
		Expect(explain(ctx, guesses["deploymentword"].Name)).To(ContainSubstring(
			"deployments.apps " + victim + "/deploymentword-controller has 0 of 1 pods ready"))
		Expect(explain(ctx, guesses["argword"].Name)).
			NotTo(ContainSubstring(victim), "explain must not use arguments as evidence")
	}, SpecTimeout(8*time.Minute))

	It("cannot see which users have the initialize verb", func(ctx context.Context) {
		initialize := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"initialize"}}
		cluster.Bind(ctx, "initializers-of-the-test", []rbacv1.PolicyRule{initialize},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: victim, Name: "accountword"},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bindingsubjectword"})
		namespace := cluster.CreateInitializing(ctx, "holders")
		Eventually(func(g Gomega) {
			texts := published(g, ctx, namespace, unknownWord)
			g.Expect(texts).To(ContainElement(HavePrefix("Event Warning InitializerPending ")))
			expectNoVictim(g, texts)
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(HaveCondition(
				v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue, string(diagnosis.CauseInitializerPending),
				"absent.test.example.com", "kubectl nslifecycle explain "+namespace.Name))
		}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
		Expect(explain(ctx, namespace.Name)).To(And(
			ContainSubstring("ServiceAccount "+victim+"/accountword"), ContainSubstring("bindingsubjectword")))
	}, SpecTimeout(5*time.Minute))

	It("cannot see the namespace of the Service of a webhook", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("rejected"))
		cluster.Admin.Creates(ctx, wrappers.MakeConfigMap(namespace.Name, "kept"))
		webhook := webhookOfVictim(namespace.Name)
		cluster.Admin.Creates(ctx, webhook)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, webhook)).To(Succeed()) })
		Eventually(func() error {
			return cluster.Admin.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "kept"), client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("failed calling webhook")))
		cluster.Admin.Deletes(ctx, namespace)
		Eventually(func(g Gomega) {
			condition := nsobject.FindCondition(cluster.GetNamespace(g, ctx, namespace.Name), v1alpha1.ConditionDeletionBlocked)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Reason).To(Equal(string(diagnosis.CauseAdmissionWebhookFailing)))
			expectNoVictim(g, []string{condition.Message})
			g.Expect(condition.Message).To(And(ContainSubstring(`"guard.test.example.com"`),
				ContainSubstring("its Service does not exist"), ContainSubstring(webhook.Name)))
			expectNoVictim(g, diagnosisEvents(g, ctx, namespace))
		}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
		Expect(explain(ctx, namespace.Name)).To(ContainSubstring("Service " + victim + "/guard does not exist"))
	}, SpecTimeout(5*time.Minute))
}

func finalizerOf(word string) string { return word + ".example.com/hold" }

// createOtherTenant creates the workloads, Leases and ServiceAccounts of the other tenant, and a
// ClusterRoleBinding that references the ServiceAccounts.
func createOtherTenant(ctx context.Context) {
	GinkgoHelper()
	framework.CreateNamespace(ctx, cluster.Admin, victim)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: victim, Name: name} }
	template := corev1.PodSpec{
		ServiceAccountName: "accountword",
		Containers: []corev1.Container{{
			Name: "containerword", Image: "registry.test.example.com/imageword:v1", Command: []string{"/bin/commandword"},
			Args: []string{"--finalizer=" + finalizerOf("argword")}, Env: []corev1.EnvVar{{Name: "TARGET", Value: "envword"}},
		}},
	}
	labels := map[string]string{"app": "labelword"}
	pod := &corev1.Pod{ObjectMeta: in("podword-0"), Spec: template}
	holder, now := "holderword-0", metav1.NowMicro()
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: in("accountword")},
		&appsv1.Deployment{ObjectMeta: in("deploymentword-controller"), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
		}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "database", Labels: labels},
			Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
			}},
		&coordinationv1.Lease{ObjectMeta: in("leaseword"), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: new(int32(3600)),
		}},
		pod,
	} {
		cluster.Admin.Creates(ctx, object)
	}
	pod.Status.Phase = corev1.PodRunning
	Expect(cluster.Admin.Status().Update(ctx, pod)).To(Succeed())
	cluster.Bind(ctx, "rights-of-the-other-tenant", nil,
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: victim, Name: "accountword"},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: victim, Name: "uninstalledword"},
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bindingsubjectword"})
}

// webhookOfVictim returns a webhook for the given namespace. The Service of the webhook is in the
// namespace of the other tenant and does not exist.
func webhookOfVictim(namespace string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("guard")},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guard.test.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: victim, Name: "guard"},
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
}

// times matches timestamps and durations. The conditions and Events of two namespaces can differ
// only in these.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+(m\d+)?s\b`)

// published returns all conditions of a namespace and the Events of the diagnosis. It replaces the
// name of the namespace, the guessed word and all times with placeholders.
func published(g Gomega, ctx context.Context, namespace *corev1.Namespace, word string) []string {
	texts := diagnosisEvents(g, ctx, namespace)
	for _, condition := range cluster.GetNamespace(g, ctx, namespace.Name).Status.Conditions {
		texts = append(texts, fmt.Sprintf("condition %s=%s %s %s", condition.Type, condition.Status, condition.Reason,
			condition.Message))
	}
	replacer := strings.NewReplacer(namespace.Name, "NAMESPACE", finalizerOf(word), "FINALIZER", word+".example.com", "DOMAIN")
	for i, text := range texts {
		texts[i] = times.ReplaceAllString(replacer.Replace(text), "TIME")
	}
	slices.Sort(texts)
	return texts
}

func diagnosisEvents(g Gomega, ctx context.Context, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(cluster.Admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	var texts []string
	for _, event := range list.Items {
		if event.Regarding.UID == namespace.UID && event.Action == "Diagnose" {
			g.Expect(event.Related == nil || event.Related.Namespace != victim).To(BeTrue())
			texts = append(texts, fmt.Sprintf("Event %s %s %s", event.Type, event.Reason, event.Note))
		}
	}
	return texts
}

// expectNoVictim checks that the texts do not contain names of the other tenant's objects.
func expectNoVictim(g Gomega, texts []string) {
	for _, text := range texts {
		for _, word := range words {
			g.Expect(text).NotTo(ContainSubstring(word), "%s", text)
		}
	}
}

// explain diagnoses a namespace with the permissions of an administrator, as `kubectl nslifecycle
// explain` does, and returns the findings.
func explain(ctx context.Context, name string) string {
	GinkgoHelper()
	gatherer, err := collect.New(cluster.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	gatherer.ProgressDeadline = 0
	found, err := gatherer.Diagnose(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	var texts []string
	for _, finding := range found.Findings {
		texts = append(texts, finding.Message)
		texts = append(texts, diagnosis.TextsOf(finding.Evidence)...)
	}
	return strings.Join(texts, "\n")
}
