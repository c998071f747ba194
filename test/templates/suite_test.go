// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	furnisherUser = "furnisher@corp.example.com"
	operatorUser  = "operator@corp.example.com"
	initializer   = "a.test.example.com"
)

// cluster is shared by all specs.
var cluster *framework.Cluster

// furnisher has every verb of the ordinary user, and "furnish".
var furnisher *framework.User

var (
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

func TestTemplates(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Templates")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "this suite runs no manager, which would answer the webhooks")
	cluster.StartObserver(ctx)
	install(ctx)
	furnisher = cluster.AddUser(ctx, furnisherUser,
		append([]string{v1alpha1.VerbFurnish}, framework.VerbsButInitialize...))
	publish(ctx)
}, NodeTimeout(5*time.Minute))

// install installs all policies: there is no manager, which would replace the effective set.
func install(ctx context.Context) {
	GinkgoHelper()
	cluster.Install(ctx, "default")
	Expect(cluster.InstallMutating(ctx)).To(Succeed())
}

// publish replaces the effective set by one with two initializers, that of the templates and another
// one, and the given templates. It waits until all policies use the set.
func publish(ctx context.Context, templates ...v1alpha1.EffectiveTemplate) {
	GinkgoHelper()
	publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) { set.Templates = templates })
}

func publishSet(ctx context.Context, change func(*v1alpha1.NamespaceInitializerSet)) {
	GinkgoHelper()
	marker := framework.Unique("marker")
	set := &v1alpha1.NamespaceInitializerSet{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.EffectiveSetName}}
	err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(set), set)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	set.Initializers = []v1alpha1.EffectiveInitializer{{Name: v1alpha1.TemplatesInitializer}, {Name: initializer}}
	set.Templates, set.SystemNamespace, set.Operator = nil, controlplane.SystemNamespace, operatorUser
	change(set)
	// The policies report the first template that rejects a namespace.
	set.Templates = slices.Concat([]v1alpha1.EffectiveTemplate{{
		Name: marker, Parameters: []v1alpha1.TemplateParameter{
			{Name: "required", Required: true}, {Name: "marker", Default: new(marker)},
		},
	}}, set.Templates)
	if apierrors.IsNotFound(err) {
		Expect(cluster.Admin.Create(ctx, set)).To(Succeed())
	} else {
		Expect(cluster.Admin.Update(ctx, set)).To(Succeed())
	}
	// The mutating and the validating policies have separate caches. The latter exempt the operator.
	operator := cluster.Impersonate(operatorUser, "system:masters")
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe").Label(v1alpha1.LabelTemplate, marker)
		g.Expect(cluster.Admin.Create(ctx, probe.Obj(), client.DryRunAll)).To(
			BeDeniedBy(v1alpha1.PolicyTemplates, marker, "is required"))
		injected := probe.Obj()
		g.Expect(operator.Create(ctx, injected, client.DryRunAll)).To(Succeed())
		g.Expect(injected.Annotations).To(HaveKeyWithValue(v1alpha1.PrefixParameter+"marker", marker))
	}).WithContext(ctx).Should(Succeed())
}

// open completes the initialization of a namespace.
func open(ctx context.Context, name string) {
	GinkgoHelper()
	for framework.PendingOf(cluster.GetNamespace(Default, ctx, name)) != "" {
		cluster.Finish(ctx, name)
	}
}

// selecting returns a selector for one label.
func selecting(key, value string) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}}
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

func metaOf(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// mergePatch returns a patch that sets one key in metadata.labels or metadata.annotations.
func mergePatch(field, key string, value *string) (client.Patch, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]*string{key: value}}})
	return client.RawPatch(types.MergePatchType, patch), err
}
