// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	owner = v1alpha1.PrefixParameter + "owner"
	kind  = "corp.example.com/kind"
)

// team is a template with all kinds of parameters.
func team() internalv1alpha1.EffectiveTemplate {
	return internalv1alpha1.EffectiveTemplate{
		Name: "team", NamespaceSelector: selecting("team", "a"),
		Parameters: []v1alpha1.TemplateParameter{
			{Name: "size", Enum: []string{"s", "l"}, Default: new("s"), Immutable: true},
			{Name: "owner", Pattern: "^[a-z0-9-]+$", Required: true},
			{Name: "kind", LabelKey: kind, Enum: []string{"web", "db"}, Immutable: true},
			{Name: "note"},
			{Name: "once", Immutable: true},
			{Name: "zones", Type: v1alpha1.ParameterList, MaxItems: new(int32(3)), Enum: []string{"a", "b", "c", "D"}, Pattern: "^[a-z]$"},
			{Name: "teams", Type: v1alpha1.ParameterList, MaxItems: new(int32(32))},
		},
	}
}

// inTeam returns a namespace with valid parameters.
func inTeam(name string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(name).Label(v1alpha1.LabelTemplate, "team").Annotation(owner, "alice")
}

// BeRefused matches a rejection by the templates policy that contains one sentence with the texts.
func BeRefused(texts ...string) OmegaMatcher {
	return And(BeDeniedBy(internalv1alpha1.PolicyTemplates, texts...), Satisfy(apierrors.IsInvalid),
		MatchError(Not(ContainSubstring("failed expression"))), WithTransform(func(err error) int { return len(err.Error()) },
			BeNumerically("<", 2500)))
}

// BeRefusedThroughFinalize succeeds if the guard policy rejects a change of labels or parameters through /finalize.
func BeRefusedThroughFinalize() OmegaMatcher {
	return BeDeniedBy(internalv1alpha1.PolicyGuard, "cannot be changed through /finalize")
}

func newParameters() {
	for name, test := range map[string]struct {
		change func(*wrappers.NamespaceWrapper)
		texts  []string
	}{
		"a template that does not exist": {
			func(w *wrappers.NamespaceWrapper) { w.Label(v1alpha1.LabelTemplate, "taem") },
			[]string{`NamespaceTemplate "taem" does not exist`},
		},
		"a missing parameter": {
			func(w *wrappers.NamespaceWrapper) { delete(w.Annotations, owner) },
			[]string{`parameter "owner" of template "team" is required`, "set annotation " + owner},
		},
		"a value that is not in the enum": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(size, "xl") },
			[]string{`the value "xl" of parameter "size" of template "team"`, `one of "s", "l"`},
		},
		"a value that does not match the pattern": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, "A B") },
			[]string{`the value "A B" of parameter "owner"`, `match "^[a-z0-9-]+$"`},
		},
		"an empty value": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, "") },
			[]string{`value "" of parameter "owner"`},
		},
		"quotes and a newline": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, "a\"'\n${x}\\") },
			[]string{`\"`, `\n`, "owner"},
		},
		"a control character": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, "\x00\u2028\u0085") },
			[]string{"owner"},
		},
		"1025 characters": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, strings.Repeat("a", 1025)) },
			[]string{"aaa...", "1024"},
		},
		"10 KiB": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(owner, strings.Repeat("é\n", 5120)) },
			[]string{"owner"},
		},
		"10 KiB without a rule": {func(w *wrappers.NamespaceWrapper) {
			w.Annotation(v1alpha1.PrefixParameter+"note", strings.Repeat("x", 10240))
		}, []string{`"note"`, "1024"}},
		"a label": {
			func(w *wrappers.NamespaceWrapper) { w.Label(kind, "mail") },
			[]string{`the value "mail" of parameter "kind"`, `"web", "db"`},
		},
		"a parameter that is not declared": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(v1alpha1.PrefixParameter+"onwer", "x") },
			[]string{"annotation parameter.nslifecycle.dev/onwer", `template "team" does not declare this parameter`},
		},
		"a parameter that is a label": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(v1alpha1.PrefixParameter+"kind", "web") },
			[]string{"annotation parameter.nslifecycle.dev/kind"},
		},
		"a parameter that no template declares": {
			func(w *wrappers.NamespaceWrapper) {
				w.Label("team", "a").Label(v1alpha1.LabelTemplate, "other").Annotation(v1alpha1.PrefixParameter+"x", "x")
			},
			[]string{"annotation parameter.nslifecycle.dev/x", "no template that selects the namespace declares"},
		},
		"a parameter of a template that the labels select": {
			func(w *wrappers.NamespaceWrapper) {
				w.Label("team", "a").Label(v1alpha1.LabelTemplate, "other").Annotation(size, "m")
			},
			[]string{`parameter "size" of template "team"`},
		},
		"a list with too many elements": {
			func(w *wrappers.NamespaceWrapper) { w.Annotation(v1alpha1.PrefixParameter+"zones", "a,b,c,d") },
			[]string{`the value "a,b,c,d" of parameter "zones"`, "at most 3 elements, separated by commas", `one of "a", "b"`},
		},
		"an enum that is longer than a message": {
			func(w *wrappers.NamespaceWrapper) {
				delete(w.Annotations, owner)
				w.Label(v1alpha1.LabelTemplate, "many").Annotation(v1alpha1.PrefixParameter+"one", "x")
			},
			[]string{`the value "x" of parameter "one" of template "many"`, "..."},
		},
	} {
		It("reject "+name, func(ctx context.Context) {
			wrapper := inTeam(framework.Unique("refused"))
			test.change(wrapper)
			Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).To(BeRefused(test.texts...))
			Expect(cluster.Ordinary.Create(ctx, wrapper.Obj())).To(BeRefused(test.texts...))
		})
	}

	It("accept valid values, and all values in namespaces that no template selects", func(ctx context.Context) {
		dryRun(ctx, inTeam("shop").Annotation(size, "l").Label(kind, "db").
			Annotation(v1alpha1.PrefixParameter+"note", strings.Repeat("\"\n", 512)))
		dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(v1alpha1.PrefixParameter+"onwer", "x").Annotation(owner, "A B"))
	})

	It("are lists with the same values as in templates", func(ctx context.Context) {
		parameters := team().Parameters
		zones, teams := parameters[len(parameters)-2], parameters[len(parameters)-1]
		strict := teams
		strict.Name, strict.Required = "strict", true
		for _, test := range []struct {
			parameter v1alpha1.TemplateParameter
			value     string
			isValid   bool
		}{
			{zones, "", true}, {zones, "a", true}, {zones, "c,b,a", true},
			{zones, "a,b,c,a", false}, {zones, "a,b,a", false}, {zones, "a,x", false}, {zones, "a,D", false}, {zones, "a, b", false},
			{teams, elements(32), true}, {teams, elements(33), false}, {teams, strings.Repeat("世", 1024), true},
			{teams, strings.Repeat("世", 1025), false}, {teams, ",", false}, {teams, "a,,b", false}, {teams, "a,", false},
			{teams, ",a", false}, {teams, "a,ab,abc", true}, {teams, "A B,${ns.name},\n", true}, {teams, strings.Repeat(",", 1024), false},
			{strict, "", false}, {strict, "a", true},
		} {
			By(fmt.Sprintf("%s = %.20q", test.parameter.Name, test.value))
			Expect(templateset.CheckValue(&test.parameter, test.value) == nil).To(Equal(test.isValid))
			wrapper := inTeam("shop").Annotation(v1alpha1.PrefixParameter+test.parameter.Name, test.value)
			if test.parameter.Required {
				wrapper.Label("lists", "few")
			}
			if test.isValid {
				dryRun(ctx, wrapper)
			} else {
				Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).
					To(BeRefused(fmt.Sprintf("of parameter %q", test.parameter.Name)))
			}
		}
	})

	It("cannot contain more than 16 lists", func(ctx context.Context) {
		dryRun(ctx, wrappers.MakeNamespace("shop").Label("lists", "few").Annotation(v1alpha1.PrefixParameter+"strict", "a"))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").Label("lists", "many").Obj(), client.DryRunAll)).
			To(BeRefused("more than 16 parameters that are lists"))
	})

	It("reject long values for long patterns", func(ctx context.Context) {
		wrapper := wrappers.MakeNamespace("shop").Label("long", "two")
		for i := range 32 {
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, i), strings.Repeat("a", 1024))
		}
		dryRun(ctx, wrapper)
		Expect(cluster.Ordinary.Create(ctx, wrapper.Label("long", "three").Obj())).
			To(BeRefused("longer than 16384 characters"))
	})

	It("reject more than 128 annotations", func(ctx context.Context) {
		wrapper := inTeam("shop")
		for i := range 1900 {
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, i), "x")
		}
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj())).To(BeRefused("at most 128"))
	})

	It("are checked by server-side and client-side apply", func(ctx context.Context) {
		manifest := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"applied-team",
			"labels":{"nslifecycle.dev/template":"team"},"annotations":{"parameter.nslifecycle.dev/owner":"alice"}}}`
		for _, command := range [][]string{{"apply", "-f", "-"}, {"apply", "--server-side", "--force-conflicts", "-f", "-"}} {
			invalid := strings.Replace(manifest, "alice", "A", 1)
			_, err := cluster.KubectlWithInput(ctx, cluster.Ordinary.Config, invalid, command...)
			Expect(err).To(MatchError(ContainSubstring(`the value "A" of parameter "owner" of template "team"`)))
			_, err = cluster.KubectlWithInput(ctx, cluster.Ordinary.Config, manifest, command...)
			Expect(err).NotTo(HaveOccurred())
		}
	})
}

// elements returns a list of different elements.
func elements(count int) string {
	values := make([]string, 0, count)
	for i := range count {
		values = append(values, strings.Repeat("a", i+1))
	}
	return strings.Join(values, ",")
}

func enum(count, length int) []string {
	var values []string
	for i := range count {
		values = append(values, fmt.Sprintf("%d%s", i, strings.Repeat("v", length-2)))
	}
	return values
}

func existingParameters() {
	var chosen, plain *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		chosen = inTeam(framework.Unique("chosen")).Label(kind, "web").Annotation(size, "s").Obj()
		cluster.Ordinary.Creates(ctx, chosen)
		plain = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain"))
		for _, namespace := range []*corev1.Namespace{chosen, plain} {
			completeInitialization(ctx, namespace.Name)
		}
	})

	for name, test := range map[string]struct {
		field, key string
		value      *string
		texts      []string
	}{
		"a change of an immutable value": {
			"annotations", size, new("l"),
			[]string{`parameter "size" of template "team" is immutable`, `its value is "s"`},
		},
		"the removal of an immutable value": {
			"annotations", size, nil,
			[]string{`parameter "size" of template "team" is immutable`},
		},
		"a change of an immutable label": {
			"labels", kind, new("db"),
			[]string{`parameter "kind" of template "team" is immutable`, `"web"`},
		},
		"the removal of an immutable label": {
			"labels", kind, nil,
			[]string{`parameter "kind" of template "team" is immutable`},
		},
		"the removal of a required value": {
			"annotations", owner, nil,
			[]string{`parameter "owner" of template "team" is required`},
		},
		"an invalid value": {
			"annotations", owner, new("A\nB"),
			[]string{`the value "A\nB" of parameter "owner"`},
		},
		"another template that does not exist": {
			"labels", v1alpha1.LabelTemplate, new("none"),
			[]string{`NamespaceTemplate "none" does not exist`},
		},
		"a value with more than 1024 characters": {
			"annotations", v1alpha1.PrefixParameter + "note", new(strings.Repeat("x", 1025)),
			[]string{`"note"`},
		},
	} {
		It("reject "+name, func(ctx context.Context) {
			for _, user := range []*framework.User{cluster.Ordinary, cluster.Admin} {
				Expect(tryPatch(ctx, user, chosen.Name, test.field, test.key, test.value)).To(BeRefused(test.texts...))
			}
			changed := cluster.GetNamespace(Default, ctx, chosen.Name)
			target := changed.Annotations
			if test.field == "labels" {
				target = changed.Labels
			}
			delete(target, test.key)
			if test.value != nil {
				target[test.key] = *test.value
			}
			Expect(cluster.Ordinary.Update(ctx, changed.DeepCopy())).To(BeRefused(test.texts...))
			Expect(cluster.Ordinary.SubResource("status").Update(ctx, changed.DeepCopy())).To(BeRefused(test.texts...))
			Expect(cluster.Ordinary.SubResource("finalize").Update(ctx, changed.DeepCopy())).To(BeRefusedThroughFinalize())
		})
	}

	It("reject a PUT that omits all annotations", func(ctx context.Context) {
		Expect(cluster.Ordinary.Update(ctx, withoutAnnotations(cluster.GetNamespace(Default, ctx, chosen.Name)))).
			To(BeRefused("owner"))
	})

	It("accept other changes, also while the template rejects their values", func(ctx context.Context) {
		stricter := team()
		stricter.Parameters[1].Pattern = "^team-"
		stricter.Parameters = append(stricter.Parameters, v1alpha1.TemplateParameter{Name: "added", Required: true})
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) {
			set.Templates = []internalv1alpha1.EffectiveTemplate{stricter}
		})
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "labels", "note", new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", "note", new("x"))).To(Succeed())
		note := v1alpha1.PrefixParameter + "note"
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", note, new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", note, nil)).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("bob"))).To(BeRefused("owner"))
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("team-bob"))).To(Succeed())
		By("deleting the template")
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) { set.Templates = nil })
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "labels", "note", new("y"))).To(Succeed())
		publish(ctx)
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("alice"))).To(Succeed())
	})

	It("accept an immutable value once", func(ctx context.Context) {
		once := v1alpha1.PrefixParameter + "once"
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", once, new("a"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", once, new("b"))).To(BeRefused("immutable"))
	})

	It("are checked when an initialized namespace gets a label that selects it", func(ctx context.Context) {
		for key, value := range map[string]string{"team": "a", v1alpha1.LabelTemplate: "team"} {
			Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "labels", key, &value)).
				To(BeRefused(`"owner" of template "team" is required`))
		}
		changed := cluster.GetNamespace(Default, ctx, plain.Name)
		changed.Labels["team"], changed.Annotations = "a", map[string]string{owner: "A B"}
		Expect(cluster.Ordinary.Update(ctx, changed.DeepCopy())).To(BeRefused("owner"))
		changed.Annotations[owner] = "bob"
		cluster.Ordinary.Updates(ctx, changed)
		Expect(changed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		By("setting a value that the default would have set")
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", size, new("l"))).To(BeRefused("immutable"))
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", size, new("s"))).To(Succeed())
		By("removing the label")
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "labels", "team", nil)).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", owner, new("A B"))).To(Succeed())
	})
}

// largeSelector returns a selector that has the maximum size.
func largeSelector() *v1alpha1.NamespaceSelector {
	selector := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
	for i := range 16 {
		key, value := fmt.Sprintf("l%d", i), v1alpha1.LabelValue(fmt.Sprintf("v%d", i))
		selector.MatchLabels[key] = value
		requirement := v1alpha1.NamespaceSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn}
		for j := range 8 {
			requirement.Values = append(requirement.Values, v1alpha1.LabelValue(fmt.Sprint(j)))
		}
		requirement.Values = append(requirement.Values, value)
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

// While failurePolicy is Ignore, a policy that exceeds its budget admits the request. These specs take
// longer than others because the API server stores and evaluates the largest objects.
func celBudgets() {
	const templates, parameters = internalv1alpha1.MaxTemplates - 1, 8 // One template is the marker.

	large := func() *wrappers.NamespaceWrapper {
		wrapper := wrappers.MakeNamespace("large")
		for i := range 900 {
			wrapper.Label(fmt.Sprintf("l%d", i), fmt.Sprintf("v%d", i))
		}
		return wrapper
	}

	BeforeAll(func(ctx context.Context) {
		publishLater()
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) {
			set.Initializers, set.Templates = []internalv1alpha1.EffectiveInitializer{
				{Name: v1alpha1.TemplatesInitializer, InitializerSettings: v1alpha1.DefaultInitializerSettings()},
				{Name: initializer, InitializerSettings: v1alpha1.DefaultInitializerSettings()},
			}, nil
			for i := range internalv1alpha1.MaxInitializers - 2 {
				set.Initializers = append(set.Initializers, internalv1alpha1.EffectiveInitializer{
					Name: fmt.Sprintf("n%d.%s.example.com", i, strings.Repeat("x", 60)),
					InitializerSettings: v1alpha1.InitializerSettings{
						NamespaceSelector: largeSelector(), NamespaceFinalizer: fmt.Sprintf("%s.example.com/%d", strings.Repeat("x", 60), i),
					},
				})
			}
			for i := range templates {
				template := internalv1alpha1.EffectiveTemplate{
					Name: fmt.Sprintf("large-%d", i), Access: v1alpha1.AccessOpen, NamespaceSelector: largeSelector(),
				}
				if i < internalv1alpha1.MaxTemplates/16 {
					template.Access = v1alpha1.AccessRestricted
				}
				for j := range parameters {
					parameter := v1alpha1.TemplateParameter{
						Name: fmt.Sprintf("p%d", j), Pattern: "^[a,]*[a,]*a*a*$", Immutable: true, Default: new(strings.Repeat("a", 64)),
					}
					if i < 2 {
						parameter.Type, parameter.MaxItems = v1alpha1.ParameterList, new(int32(32))
					}
					template.Parameters = append(template.Parameters, parameter, v1alpha1.TemplateParameter{
						Name: fmt.Sprintf("q%d", i%8*8+j), Enum: enum(8, 8), Default: new(enum(8, 8)[7]),
					})
				}
				set.Templates = append(set.Templates, template)
			}
		})
		allow(ctx, framework.OrdinaryUser, v1alpha1.VerbUse, v1alpha1.GroupVersion.Group, "namespacetemplates")
	})

	It("suffice for the largest set and namespace", func(ctx context.Context) {
		wrapper := large()
		for i := range 900 {
			wrapper.Annotation(fmt.Sprintf("nslifecycle.dev/a%d", i), "")
		}
		for j := range parameters {
			value := elements(31)
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, j), value+","+strings.Repeat("a", 1023-len(value)))
		}
		namespace := dryRun(ctx, wrapper)
		Expect(initialization.SplitNames(framework.PendingOf(namespace))).To(HaveLen(internalv1alpha1.MaxInitializers))
		Expect(namespace.Annotations).To(HaveLen(4 + 9*8))

		By("rejecting an invalid value")
		wrapper.Annotation(v1alpha1.PrefixParameter+"p7", strings.Repeat("a", 1023)+"b")
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).To(BeRefused(`"p7" of template "large-0"`))
		By("rejecting a parameter that is not declared")
		wrapper = large()
		for i := range 64 {
			wrapper.Annotation(fmt.Sprintf("%sq%d", v1alpha1.PrefixParameter, i), enum(8, 8)[0])
		}
		for i := range 56 {
			wrapper.Annotation(fmt.Sprintf("%sx%d", v1alpha1.PrefixParameter, i), "x")
		}
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).To(BeRefused("no template that selects"))
	})

	It("suffice for the largest number of namespace finalizers", func(ctx context.Context) {
		create := func(finalizers int) (*corev1.Namespace, error) {
			namespace := large().Obj()
			for i := range finalizers {
				namespace.Spec.Finalizers = append(namespace.Spec.Finalizers,
					corev1.FinalizerName(fmt.Sprintf("%s.example.com/sent-%d", strings.Repeat("x", 60), i)))
			}
			return namespace, cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)
		}
		// The initializers have all but two; one entry is "kubernetes".
		const most = 1000 - (internalv1alpha1.MaxInitializers - 2) - 1
		namespace, err := create(most)
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace.Spec.Finalizers).To(HaveLen(1000))
		_, err = create(most + 1)
		Expect(err).To(BeDeniedBy("guard", "at most 1000 entries in spec.finalizers"))
		_, err = create(20000)
		Expect(err).To(MatchError(ContainSubstring("nslifecycle-")))
	})

	It("suffice for updates of a namespace with many annotations", func(ctx context.Context) {
		name := framework.Unique("annotated")
		namespace := wrappers.MakeNamespace(name).Annotation(v1alpha1.PrefixParameter+"p0", "a").Obj()
		cluster.Admin.Creates(ctx, namespace)
		for namespace.Labels[v1alpha1.LabelInitializing] != "" {
			namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = ""
			cluster.Admin.Updates(ctx, namespace)
		}
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		for i := range 5000 {
			key := []byte{letters[i/62/62%62], letters[i/62%62], letters[i%62]}
			namespace.Annotations[string(key)] = ""
		}
		cluster.Admin.Updates(ctx, namespace)
		namespace.Labels = large().Labels
		cluster.Ordinary.Updates(ctx, namespace)
		Expect(tryPatch(ctx, cluster.Ordinary, name, "annotations", v1alpha1.PrefixParameter+"p0", new("aa"))).
			To(BeRefused(`"p0" of template "large-0" is immutable`))
		Expect(tryPatch(ctx, cluster.Ordinary, name, "annotations", v1alpha1.PrefixParameter+"p0", nil)).
			To(BeRefused(`"p0" of template "large-0" is immutable`))
		Expect(tryPatch(ctx, cluster.Ordinary, name, "labels", v1alpha1.LabelTemplate, new("none"))).
			To(BeRefused(`"none" does not exist`))
	})
}

func unusedParameters() {
	It("is reported to the user, and has no other effect", func(ctx context.Context) {
		var warnings []string
		config := rest.CopyConfig(cluster.Ordinary.Config)
		config.WarningHandler = nil
		config.WarningHandlerWithContext = collectWarnings(func(text string) { warnings = append(warnings, text) })
		user, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		expectWarning := func(texts ...string) {
			GinkgoHelper()
			matchers := make([]any, 0, len(texts))
			for _, text := range texts {
				matchers = append(matchers, ContainSubstring("annotation %s%s: no template that selects the namespace has this parameter",
					v1alpha1.PrefixParameter, text))
			}
			Expect(warnings).To(HaveExactElements(matchers...))
			warnings = nil
		}
		namespace := wrappers.MakeNamespace(framework.Unique("unused")).Annotation(size, "s").Obj()
		Expect(user.Create(ctx, namespace)).To(Succeed())
		expectWarning("size")
		for _, step := range []struct {
			patch string
			texts []string
		}{
			{`{"metadata":{"annotations":{"%ssize":"l"}}}`, nil},
			{`{"metadata":{"annotations":{"%sother":"l"}}}`, []string{"other"}},
			{`{"metadata":{"labels":{"x":"y"}}}`, nil},
			{`{"metadata":{"labels":{"team":"a"},"annotations":{"%sowner":"alice","%snote":"x"}}}`, nil},
			{`{"metadata":{"annotations":{"%skind":"web"}}}`, []string{"kind"}}, // It is the label.
		} {
			patch := strings.ReplaceAll(step.patch, "%s", v1alpha1.PrefixParameter)
			Expect(user.Patch(ctx, namespace, framework.MergePatch(patch))).To(Succeed(), patch)
			expectWarning(step.texts...)
		}
		Expect(user.Create(ctx, inTeam(framework.Unique("used")).Obj(), client.DryRunAll)).To(Succeed())
		expectWarning()
	})
}

// collectWarnings is a handler of warnings.
type collectWarnings func(text string)

func (c collectWarnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	c(text)
}
