// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// allTemplates returns the templates of all specs. Each spec selects its own ones.
func allTemplates() []internalv1alpha1.EffectiveTemplate {
	var long []v1alpha1.TemplateParameter
	for i := range 32 {
		long = append(long, v1alpha1.TemplateParameter{Name: fmt.Sprintf("p%d", i), Pattern: strings.Repeat("a*", 127)})
	}
	var lists []v1alpha1.TemplateParameter
	for i := range 16 {
		lists = append(lists, v1alpha1.TemplateParameter{Name: fmt.Sprintf("list%d", i), Type: v1alpha1.ParameterList, MaxItems: new(int32(1))})
	}
	templates := []internalv1alpha1.EffectiveTemplate{
		restricted("gold", selecting("tier", "gold")),
		restricted("bronze", selecting("tier", "bronze")),
		restricted("silver", nil),
		{Name: "by-name"},
		{Name: "by-label", NamespaceSelector: selecting("by-label", "a")},
		{
			Name: "first", NamespaceSelector: selecting("first", "a"), Parameters: []v1alpha1.TemplateParameter{
				withDefault("size", "first"), withDefault("tier", ""), {Name: "optional"}, {Name: "kind", LabelKey: kind},
			},
		},
		{Name: "second", Parameters: []v1alpha1.TemplateParameter{
			withDefault("size", "second"), withDefault("hostile", "\"'\n\\ ${x} \u2028 é"),
		}},
		{Name: "third", Parameters: []v1alpha1.TemplateParameter{withDefault("other", "x")}},
		{
			Name: "owned", NamespaceSelector: selecting("owned", "a"),
			Parameters: []v1alpha1.TemplateParameter{withDefault("size", "s"), {Name: "owner", Required: true}},
		},
		team(),
		{Name: "other"},
		{Name: "many", Parameters: []v1alpha1.TemplateParameter{{Name: "one", Enum: enum(32, 253)}}},
		{Name: "lists-1", NamespaceSelector: selecting("lists", "few", "many"), Parameters: []v1alpha1.TemplateParameter{
			{Name: "strict", Type: v1alpha1.ParameterList, MaxItems: new(int32(32)), Required: true},
		}},
		{Name: "lists-2", NamespaceSelector: selecting("lists", "many"), Parameters: lists},
		{Name: "long-1", NamespaceSelector: selecting("long", "two", "three"), Parameters: long},
		{Name: "long-2", NamespaceSelector: selecting("long", "two", "three"), Parameters: long},
		{Name: "long-3", NamespaceSelector: selecting("long", "three"), Parameters: long[:3]},
	}
	for i := range 8 {
		templates = append(templates, restricted(fmt.Sprintf("t%d", i), selecting("restricted", "8", "9")))
	}
	return append(templates, restricted("t8", selecting("restricted", "9")))
}

func restricted(name string, selector *v1alpha1.NamespaceSelector) internalv1alpha1.EffectiveTemplate {
	return internalv1alpha1.EffectiveTemplate{Name: name, Access: v1alpha1.AccessRestricted, NamespaceSelector: selector}
}

func restrictedTemplates() {
	forbidden := func(name string) OmegaMatcher {
		return BeForbiddenBy(internalv1alpha1.PolicyTemplates, `is not allowed to use template "`+name+`"`, `verb "use"`)
	}

	It("can be chosen only by holders of the use verb on it", func(ctx context.Context) {
		create := func(key, value string) error {
			namespace := wrappers.MakeNamespace("shop").Label(key, value).Obj()
			return cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)
		}
		initialized := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("relabelled"))
		for _, label := range [][2]string{{"tier", "bronze"}, {v1alpha1.LabelTemplate, "bronze"}} {
			Expect(create(label[0], label[1])).To(forbidden("bronze"))
			Expect(tryPatch(ctx, cluster.Ordinary, initialized.Name, "labels", label[0], &label[1])).To(forbidden("bronze"))
		}
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates", "bronze")
		Eventually(create).WithArguments("tier", "bronze").Should(Succeed())
		Expect(create(v1alpha1.LabelTemplate, "bronze")).To(Succeed())
		Expect(create(v1alpha1.LabelTemplate, "silver")).To(forbidden("silver"))
		Expect(tryPatch(ctx, cluster.Ordinary, initialized.Name, "labels", "tier", new("bronze"))).To(Succeed())
	})

	It("does not affect updates of a namespace that the template selects already", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("gold")).Label("tier", "gold").Obj()
		Expect(cluster.Ordinary.Create(ctx, namespace.DeepCopy(), client.DryRunAll)).To(forbidden("gold"))
		cluster.Admin.Creates(ctx, namespace)
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", "note", new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", v1alpha1.LabelTemplate, new("gold"))).To(Succeed())
	})

	// The API server can know a new template for inject, but not yet for this policy.
	It("is not recorded for a namespace if the policy does not know it yet", func(ctx context.Context) {
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metaOf("", "nslifecycle-inject")}
		cluster.Admin.Deletes(ctx, binding)
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.InstallPolicies(ctx)).To(Succeed())
			publish(ctx)
		})
		send := func(selected string) error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").
				Label(v1alpha1.LabelInitializing, "true").Initializers(v1alpha1.TemplatesInitializer).
				Annotation(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser).
				Annotation(v1alpha1.AnnotationSelectedTemplates, selected).Obj(), client.DryRunAll)
		}
		Eventually(send).WithArguments("gold,absent").WithContext(ctx).
			Should(BeDeniedBy(internalv1alpha1.PolicyTemplates, `NamespaceTemplate "absent"`, "repeat the request"))
		Expect(send("gold")).To(forbidden("gold"), "whatever its labels are")
		Expect(send("by-name")).To(Succeed())
	})

	It("is counted: a request can choose eight", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace("shop").Label("restricted", "8")
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates",
			"t0", "t1", "t2", "t3", "t4", "t5", "t6")
		Eventually(func() error {
			return cluster.Ordinary.Create(ctx, namespace.Obj(), client.DryRunAll)
		}).Should(forbidden("t7"))
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates", "t7", "t8")
		Eventually(func() error { return cluster.Ordinary.Create(ctx, namespace.Obj(), client.DryRunAll) }).Should(Succeed())
		Expect(cluster.Ordinary.Create(ctx, namespace.Label("restricted", "9").Obj())).
			To(BeForbiddenBy(internalv1alpha1.PolicyTemplates, "chooses 9 restricted templates", "at most 8"))
	})
}

// labelWrites returns the ways to write a label of a Namespace.
func labelWrites() map[string]func(ctx context.Context, name, key, value string) error {
	with := func(name, key, value string) *corev1.Namespace {
		return wrappers.MakeNamespace(name).Label(key, value).Obj()
	}
	all := map[string]func(ctx context.Context, name, key, value string) error{
		"create": func(ctx context.Context, _, key, value string) error {
			return cluster.Ordinary.Create(ctx, with(framework.Unique("chosen"), key, value))
		},
		"create with a generated name": func(ctx context.Context, _, key, value string) error {
			namespace := with("", key, value)
			namespace.GenerateName = "chosen-"
			return cluster.Ordinary.Create(ctx, namespace)
		},
		"dry run of a create": func(ctx context.Context, _, key, value string) error {
			return cluster.Ordinary.Create(ctx, with("chosen", key, value), client.DryRunAll)
		},
		"apply that creates": func(ctx context.Context, _, key, value string) error {
			return patchLabel(ctx, framework.Unique("chosen"), "", types.ApplyPatchType, key, value)
		},
		"JSON patch": func(ctx context.Context, name, key, value string) error {
			patch := fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels","value":{%q:%q}}]`, key, value)
			return cluster.Ordinary.Patch(ctx, wrappers.MakeNamespace(name).Obj(), client.RawPatch(types.JSONPatchType, patch))
		},
	}
	for _, subresource := range []string{"", "status"} {
		all["update "+subresource] = func(ctx context.Context, name, key, value string) error {
			return updateLabel(ctx, name, subresource, key, value)
		}
		for _, patchType := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType} {
			all[string(patchType)+" "+subresource] = func(ctx context.Context, name, key, value string) error {
				return patchLabel(ctx, name, subresource, patchType, key, value)
			}
		}
	}
	return all
}

func patchLabel(ctx context.Context, name, subresource string, patchType types.PatchType, key, value string) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "labels": map[string]string{key: value},
	}})
	if err != nil {
		return err
	}
	options, subresources := metav1.PatchOptions{}, []string{}
	if patchType == types.ApplyPatchType {
		options = metav1.PatchOptions{FieldManager: "attack", Force: new(true)}
	}
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	_, err = cluster.Ordinary.Clientset().CoreV1().Namespaces().Patch(ctx, name, patchType, body, options, subresources...)
	return err
}

func updateLabel(ctx context.Context, name, subresource, key, value string) error {
	namespace := &corev1.Namespace{}
	if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return err
	}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, key, value)
	if subresource != "" {
		return cluster.Ordinary.SubResource(subresource).Update(ctx, namespace)
	}
	return cluster.Ordinary.Update(ctx, namespace)
}

func usersWithoutUse() {
	labels := map[string]string{v1alpha1.LabelTemplate: "gold", "tier": "gold"}
	forbidden := BeForbiddenBy(internalv1alpha1.PolicyTemplates, `is not allowed to use template "gold"`)
	var name string

	BeforeAll(func(ctx context.Context) { name = makePlain(ctx, cluster.Ordinary, "chosen").Name })

	for key, value := range labels {
		for description, write := range labelWrites() {
			It("cannot choose a restricted template with label "+key+": "+description, func(ctx context.Context) {
				Expect(write(ctx, name, key, value)).To(forbidden)
				Expect(cluster.GetNamespace(Default, ctx, name).Labels).NotTo(HaveKey(key))
				Expect(write(ctx, name, key, "")).To(Succeed(), "another value of the label")
				Expect(tryPatch(ctx, cluster.Admin, name, "labels", key, nil)).To(Succeed())
			})
		}
	}

	It("cannot change labels through /finalize", func(ctx context.Context) {
		for key, value := range labels {
			Expect(updateLabel(ctx, name, "finalize", key, value)).To(BeRefusedThroughFinalize())
			Expect(cluster.GetNamespace(Default, ctx, name).Labels).NotTo(HaveKey(key))
		}
	})

	It("cannot choose it again after removing the label", func(ctx context.Context) {
		for key, value := range labels {
			namespace := wrappers.MakeNamespace(framework.Unique("chosen")).Label(key, value).Obj()
			cluster.Admin.Creates(ctx, namespace)
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", "note", new("x"))).To(Succeed())
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", key, nil)).To(Succeed())
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", key, &value)).To(forbidden)
		}
	})
}

const (
	both = v1alpha1.TemplatesInitializer + "," + initializer
	size = v1alpha1.PrefixParameter + "size"
)

func withDefault(name, value string) v1alpha1.TemplateParameter {
	return v1alpha1.TemplateParameter{Name: name, Default: &value}
}

// dryRun creates a namespace as a dry run as the ordinary user, and returns the response.
func dryRun(ctx context.Context, wrapper *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrapper.Obj()
	Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
	return namespace
}

func injectionWithTemplates() {
	It("adds the initializer of the templates only if a template selects the namespace", func(ctx context.Context) {
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop")))).To(Equal(initializer))
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop").Label("by-label", "b")))).To(Equal(initializer))
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop").Label("by-label", "a")))).To(Equal(both))
		for _, name := range []string{"by-name", "by-label"} {
			namespace := dryRun(ctx, wrappers.MakeNamespace("shop").Label(v1alpha1.LabelTemplate, name))
			Expect(framework.PendingOf(namespace)).To(Equal(both))
			Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelTemplate, name))
		}
		generated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "shop-", Labels: map[string]string{v1alpha1.LabelTemplate: "by-name"},
		}}
		cluster.Ordinary.Creates(ctx, generated)
		Expect(framework.PendingOf(generated)).To(Equal(both))
	})

	It("adds the defaults of the selected templates", func(ctx context.Context) {
		chosen := func() *wrappers.NamespaceWrapper {
			return wrappers.MakeNamespace("shop").Label("first", "a").Label(v1alpha1.LabelTemplate, "second")
		}
		injected := map[string]string{
			size: "first", v1alpha1.PrefixParameter + "tier": "", v1alpha1.PrefixParameter + "hostile": "\"'\n\\ ${x} \u2028 é",
			v1alpha1.AnnotationPendingInitializers: both, v1alpha1.AnnotationInitializers: both,
			v1alpha1.AnnotationRequestedBy: framework.OrdinaryUser, v1alpha1.AnnotationSelectedTemplates: "first,second",
		}
		By("sending no annotations")
		Expect(dryRun(ctx, chosen()).Annotations).To(Equal(injected))
		By("sending other annotations, and records")
		namespace := dryRun(ctx, chosen().Annotation("note", "x").Annotation(v1alpha1.AnnotationAppliedTemplates, record).
			Annotation(v1alpha1.AnnotationSelectedTemplates, "third"))
		injected["note"] = "x"
		Expect(namespace.Annotations).To(Equal(injected))
		By("sending values")
		namespace = dryRun(ctx, chosen().Annotation("note", "x").Annotation(size, "sent"))
		injected[size] = "sent"
		Expect(namespace.Annotations).To(Equal(injected))
		By("not selecting a template")
		Expect(dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(size, "sent")).Annotations).
			To(And(HaveKeyWithValue(size, "sent"), Not(HaveKey(v1alpha1.PrefixParameter+"tier"))))
	})

	It("adds nothing to exempt namespaces, and removes keys in a cluster without initializers", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").Label("owned", "a").Obj(), client.DryRunAll)).
			To(BeDeniedBy(internalv1alpha1.PolicyTemplates, "owner"))
		system := cluster.GetNamespace(Default, ctx, metav1.NamespaceDefault)
		system.Labels["owned"], system.Labels["note"] = "a", framework.Unique("x")
		cluster.Ordinary.Updates(ctx, system)

		publishLater()
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) { set.Initializers, set.Templates = nil, nil })
		namespace := dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationAppliedTemplates, record).
			Annotation(v1alpha1.AnnotationSelectedTemplates, "all").Label("nslifecycle.dev/templat", "x").Label(v1alpha1.LabelDeletionProtection, ""))
		Expect(namespace.Annotations).To(BeEmpty())
		Expect(namespace.Labels).To(And(HaveKey(v1alpha1.LabelDeletionProtection), Not(HaveKey("nslifecycle.dev/templat"))))
	})
}

const record = `{"team":{"revision":"1","objects":{"ConfigMap":{"a":"8Ks-Up3ZSpuKbw1rbzqMEZEi2iFUs7kNZzSt8g"}}}}`

func provisioners() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = wrappers.MakeNamespace(framework.Unique("provision")).Label(v1alpha1.LabelTemplate, "by-name").Obj()
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		patchNamespace(ctx, cluster.Admin, namespace.Name, v1alpha1.AnnotationAppliedTemplates, new(record))
	})

	It("can write to an initializing namespace", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "object"))).To(BeForbiddenBy("gate"))
		object := wrappers.MakeConfigMap(namespace.Name, "object")
		provisioner.Creates(ctx, object)
		provisioner.Deletes(ctx, object)
	})

	for key, values := range map[string][]string{
		v1alpha1.AnnotationPendingInitializers:  {"", v1alpha1.TemplatesInitializer, "x.test.example.com"},
		v1alpha1.AnnotationInitializationResult: {"{}", `{"status":"Failure"}`},
		v1alpha1.AnnotationAppliedTemplates:     {"", "{}"},
		v1alpha1.AnnotationInitializers:         {"", initializer},
		v1alpha1.AnnotationRequestedBy:          {"", provisionerUser},
		v1alpha1.AnnotationSelectedTemplates:    {"", "by-name,other"},
	} {
		It("cannot change annotation "+key, func(ctx context.Context) {
			for _, value := range values {
				Expect(tryPatch(ctx, provisioner, namespace.Name, "annotations", key, &value)).To(BeDeniedBy("guard"), value)
			}
		})
	}

	It("cannot complete the initialization by its label or with a PUT that omits the state", func(ctx context.Context) {
		Expect(tryPatch(ctx, provisioner, namespace.Name, "labels", v1alpha1.LabelInitializing, new("false"))).
			To(BeDeniedBy("guard"))
		before := cluster.GetNamespace(Default, ctx, namespace.Name)
		omitting := before.DeepCopy()
		omitting.Labels, omitting.Annotations = nil, nil
		provisioner.Updates(ctx, omitting)
		Expect(omitting.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		Expect(omitting.Annotations).To(Equal(before.Annotations))
	})
}

func recordsOfTemplates() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("record"))
		completeInitialization(ctx, namespace.Name)
		patchNamespace(ctx, cluster.Admin, namespace.Name, v1alpha1.AnnotationAppliedTemplates, new(record))
	})

	It("is restored in an initialized namespace if a write omits it", func(ctx context.Context) {
		for _, user := range []*framework.User{cluster.Ordinary, cluster.Initializer} {
			omitting := cluster.GetNamespace(Default, ctx, namespace.Name)
			omitting.Annotations = nil
			user.Updates(ctx, omitting)
			Expect(omitting.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationAppliedTemplates, record))
			Expect(user.SubResource("status").Update(ctx, withoutAnnotations(omitting))).To(Succeed())
			Expect(tryPatch(ctx, user, namespace.Name, "annotations", v1alpha1.AnnotationAppliedTemplates, nil)).To(Succeed())
			Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).
				To(HaveKeyWithValue(v1alpha1.AnnotationAppliedTemplates, record))
		}
	})

	It("can be changed and removed only with the record verb", func(ctx context.Context) {
		for _, value := range []string{"", "{}"} {
			for _, user := range []*framework.User{cluster.Ordinary, provisioner} { // As a stale copy.
				Expect(tryPatch(ctx, user, namespace.Name, "annotations", v1alpha1.AnnotationAppliedTemplates, &value)).To(Succeed())
				Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).
					To(HaveKeyWithValue(v1alpha1.AnnotationAppliedTemplates, record))
			}
			Expect(tryPatch(ctx, cluster.Initializer, namespace.Name, "annotations", v1alpha1.AnnotationAppliedTemplates, &value)).
				To(BeForbiddenBy("guard", "annotation nslifecycle.dev/applied-templates", `verb "record"`))
		}
		patchNamespace(ctx, cluster.Admin, namespace.Name, v1alpha1.AnnotationAppliedTemplates, new(""))
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationAppliedTemplates]).To(BeEmpty())
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "annotations", v1alpha1.AnnotationAppliedTemplates, new("{}"))).To(Succeed())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationAppliedTemplates]).To(BeEmpty())
	})

	It("is removed from new namespaces, or rejects them", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("record")).
			Annotation(v1alpha1.AnnotationAppliedTemplates, record).Obj()
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationAppliedTemplates))
	})
}

func withoutAnnotations(namespace *corev1.Namespace) *corev1.Namespace {
	changed := namespace.DeepCopy()
	changed.Annotations = nil
	return changed
}

// patchNamespace sets an annotation of a namespace.
func patchNamespace(ctx context.Context, user client.Client, name, key string, value *string) {
	GinkgoHelper()
	Expect(tryPatch(ctx, user, name, "annotations", key, value)).To(Succeed())
}
