// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	alice = "alice"
	// account is the ServiceAccount of the templates.
	account = "furnisher"
)

//go:embed testdata/team.yaml
var teamTemplate []byte

var (
	// cluster is shared by all specs.
	cluster *framework.Cluster
	// creator can create, get, update and delete Namespaces, and nothing else.
	creator *framework.User
)

func TestTemplateObjects(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Template objects")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	cluster.Install(ctx, "default")
	creator = cluster.AddUserWithRules(ctx, alice, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "update", "patch", "delete"},
	})
	Expect(cluster.Admin.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "edit-configmaps"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "update", "delete"},
		}},
	})).To(Succeed())
	cluster.AddTemplateAccount(ctx, account)
	cluster.StartManager(ctx)
	controllerManager, err := cluster.StartControllerManager(ctx, "--controllers=resourcequota-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllerManager.Stop)
	waitForTemplates(ctx)
}, NodeTimeout(15*time.Minute))

// waitForTemplates waits until the API server recognizes the parameter kind of the policies for
// templates.
func waitForTemplates(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return cluster.Admin.Create(ctx, newTemplate("probe"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
}

// newTemplate returns the template in testdata with another name, which selects Namespaces by the label
// "kind" with the name as its value.
func newTemplate(name string, changes ...func(*v1alpha1.NamespaceTemplateSpec)) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	template := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict(teamTemplate, template)).To(Succeed())
	template.Name = name
	template.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"kind": v1alpha1.LabelValue(name)}
	for _, change := range changes {
		change(&template.Spec)
	}
	return template
}

// create creates a template, and waits until the API server selects new Namespaces with it. The
// template exists until the spec ends.
func create(ctx context.Context, template *v1alpha1.NamespaceTemplate) {
	GinkgoHelper()
	Expect(cluster.Admin.Create(ctx, template)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, template))).To(Succeed())
		// Otherwise, the operator would continue to prune objects while other specs count its requests.
		Expect(client.IgnoreNotFound(cluster.Admin.Patch(ctx, template, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, entry := range cluster.EffectiveSet(g, ctx).Templates {
				g.Expect(entry.Name).NotTo(Equal(template.Name))
			}
		}).WithContext(ctx).Should(Succeed())
	})
	Eventually(func(g Gomega) {
		probe := selectedBy(string(template.Spec.NamespaceSelector.MatchLabels["kind"]))
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
		g.Expect(strings.Split(probe.Annotations[v1alpha1.AnnotationSelectedTemplates], ",")).To(ContainElement(template.Name))
	}).WithContext(ctx).Should(Succeed())
}

// selectedBy returns a Namespace that the template selects.
func selectedBy(template string) *corev1.Namespace {
	return wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template).Obj()
}

// createOpen creates a Namespace as alice, and waits until it is open.
func createOpen(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(creator.Create(ctx, namespace)).To(Succeed())
	expectOpen(ctx, namespace)
}

func expectOpen(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), "%v", namespace.Status.Conditions)
	}).WithContext(ctx).Should(Succeed())
}

// expectCondition waits until a template has a condition for its current generation.
func expectCondition(
	ctx context.Context, template, conditionType string, status metav1.ConditionStatus, message ...string,
) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := &v1alpha1.NamespaceTemplate{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: template}, current)).To(Succeed())
		condition := meta.FindStatusCondition(current.Status.Conditions, conditionType)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.ObservedGeneration).To(Equal(current.Generation))
		g.Expect(condition.Status).To(Equal(status), "%+v", current.Status)
		for _, part := range message {
			g.Expect(condition.Message).To(ContainSubstring(part))
		}
	}).WithContext(ctx).Should(Succeed())
}

// get returns an object in a Namespace.
func get[T client.Object](ctx context.Context, namespace *corev1.Namespace, name string, object T) T {
	GinkgoHelper()
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, object)).To(Succeed())
	return object
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// expectEvents waits for an Event about a Namespace, and expects that the operator does not repeat it.
func expectEvents(ctx context.Context, namespace *corev1.Namespace, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &events)).To(Succeed())
		count := 0
		for _, event := range events.Items {
			if event.Reason == reason && event.Regarding.UID == namespace.UID {
				count++
			}
		}
		g.Expect(count).To(Equal(1))
	}).WithContext(ctx).Should(Succeed())
}
