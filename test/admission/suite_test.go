// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	provisionerUser = "provisioner@corp.example.com"
	operatorUser    = "operator@corp.example.com"
	initializer     = "a.test.example.com"
	// plain is the label of the namespaces that the initializer does not select.
	plain = "plain"
)

var (
	// cluster is that of the current container.
	cluster *framework.Cluster
	// provisioner has every verb of the ordinary user, and "provision".
	provisioner *framework.User

	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

func TestAdmission(t *testing.T) { framework.RunSuite(t, "Admission") }

// These specs share a control plane without a manager, which would replace the set that they publish.
var _ = Describe("Without a manager", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster = framework.Start(ctx)
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no manager runs, which would answer the webhooks")
		cluster.StartObserver(ctx)
		install(ctx)
		provisioner = cluster.AddUser(ctx, provisionerUser,
			append([]string{v1alpha1.VerbProvision}, framework.VerbsButInitialize...))
		publish(ctx)
	})
	Describe("a restricted template", restrictedTemplates)
	Describe("a user without the use verb", usersWithoutUse)
	Describe("injection with templates", injectionWithTemplates)
	Describe("the parameters of a new namespace", newParameters)
	Describe("the parameters of an existing namespace", existingParameters)
	Describe("a parameter that no template has", unusedParameters)
	Describe("a holder of the provision verb", provisioners)
	Describe("the record of the templates", recordsOfTemplates)
	Describe("a write of a template", templateWrites)
	Describe("a locked object", lockedObjects)
	Describe("the author of a template", authorsOfTemplates)
	Describe("the author of a confinement", authorsOfConfinements)
	Describe("the CEL budgets", celBudgets)
	Describe("the operator", Ordered, func() {
		BeforeAll(addOperators)
		Describe("changes a Namespace", confinedNamespaces)
		Describe("an entry in managedFields", confinedManagers)
		Describe("of finalization", confinedFinalization)
		Describe("deletes a Namespace", confinedDeletions)
		Describe("deletes content of a namespace that was created again", confinedRecreations)
		Describe("writes an object", confinedObjects)
		Describe("writes its ClusterRoles", confinedRoles)
		Describe("writes a webhook configuration", confinedWebhooks)
	})
})

// install installs all policies.
func install(ctx context.Context) {
	GinkgoHelper()
	cluster.Install(ctx, "default")
	Expect(cluster.InstallPolicies(ctx)).To(Succeed())
}

// publish replaces the effective set by one with the templates of all specs. See publishSet.
func publish(ctx context.Context) {
	GinkgoHelper()
	publishSet(ctx, func(*internalv1alpha1.NamespaceInitializerSet) {})
}

// publishSet replaces the effective set by one with two initializers, that of the templates and another one, and the
// templates of all specs, and changes it. It waits until all policies use the set.
func publishSet(ctx context.Context, change func(*internalv1alpha1.NamespaceInitializerSet)) {
	GinkgoHelper()
	marker := framework.Unique("marker")
	set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metaOf("", internalv1alpha1.EffectiveSetName)}
	err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(set), set)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	set.Initializers = []internalv1alpha1.EffectiveInitializer{
		{Name: v1alpha1.TemplatesInitializer, InitializerSettings: v1alpha1.DefaultInitializerSettings()},
		{Name: initializer, InitializerSettings: v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
			MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{{Key: plain, Operator: metav1.LabelSelectorOpDoesNotExist}},
		}}},
	}
	set.Templates, set.Operators = allTemplates(), []string{operatorUser}
	set.SystemNamespace, set.SourceNamespace = controlplane.SystemNamespace, controlplane.SourceNamespace
	change(set)
	// The policies report the first template that rejects a namespace.
	set.Templates = slices.Concat([]internalv1alpha1.EffectiveTemplate{{
		Name: marker, Parameters: []v1alpha1.TemplateParameter{
			{Name: "required", Required: true}, {Name: "marker", Default: new(marker)},
		},
	}}, set.Templates)
	if apierrors.IsNotFound(err) {
		cluster.Admin.Creates(ctx, set)
	} else {
		Eventually(func(g Gomega) { // A busy API server can exceed its timeout while it writes the largest set.
			stored := &internalv1alpha1.NamespaceInitializerSet{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(set), stored)).To(Succeed())
			set.ResourceVersion = stored.ResourceVersion
			g.Expect(cluster.Admin.Update(ctx, set)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
	}
	// The mutating and the validating policies have separate caches. The latter exempt the operator.
	operator := cluster.Impersonate(operatorUser, "system:masters")
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe").Label(v1alpha1.LabelTemplate, marker)
		g.Expect(cluster.Admin.Create(ctx, probe.Obj(), client.DryRunAll)).To(
			BeDeniedBy(internalv1alpha1.PolicyTemplates, marker, "is required"))
		injected := probe.Obj()
		g.Expect(operator.Create(ctx, injected, client.DryRunAll)).To(Succeed())
		g.Expect(injected.Annotations).To(HaveKeyWithValue(v1alpha1.PrefixParameter+"marker", marker))
	}).WithContext(ctx).Should(Succeed())
}

// publishLater publishes the templates of all specs after the spec or the container.
func publishLater() { DeferCleanup(publish) }

// makePlain creates a namespace without initializers.
func makePlain(ctx context.Context, user *framework.User, prefix string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(framework.Unique(prefix)).Label(plain, "").Obj()
	user.Creates(ctx, namespace)
	return namespace
}

// completeInitialization completes the initialization of a namespace.
func completeInitialization(ctx context.Context, name string) {
	GinkgoHelper()
	for framework.PendingOf(cluster.GetNamespace(Default, ctx, name)) != "" {
		cluster.Finish(ctx, name)
	}
}

// selecting returns a selector for namespaces with one of the values of a label.
func selecting(key string, values ...v1alpha1.LabelValue) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
		{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values},
	}}
}

// allow grants one verb on one resource to a user until the spec ends.
func allow(ctx context.Context, user, verb, group, resource string, names ...string) {
	GinkgoHelper()
	rule := rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names,
	}
	cluster.Bind(ctx, framework.Unique("allow"), []rbacv1.PolicyRule{rule},
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	framework.ExpectAllowed(ctx, cluster.Impersonate(user).Config, rule)
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// tryPatch sets a label or an annotation of a namespace. A nil value removes it.
func tryPatch(ctx context.Context, user client.Client, name, field, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]*string{key: value}}})
	Expect(err).NotTo(HaveOccurred())
	return user.Patch(ctx, &corev1.Namespace{ObjectMeta: metaOf("", name)}, framework.MergePatch(patch))
}
