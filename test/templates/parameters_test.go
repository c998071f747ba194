// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	owner = v1alpha1.PrefixParameter + "owner"
	kind  = "corp.example.com/kind"
)

// team is a template with all kinds of parameters.
func team() v1alpha1.EffectiveTemplate {
	return v1alpha1.EffectiveTemplate{
		Name: "team", NamespaceSelector: selecting("team", "a"),
		Parameters: []v1alpha1.TemplateParameter{
			{Name: "size", Enum: []string{"s", "l"}, Default: new("s"), Immutable: true},
			{Name: "owner", Pattern: "^[a-z0-9-]+$", Required: true},
			{Name: "kind", Label: kind, Enum: []string{"web", "db"}, Immutable: true},
			{Name: "note"},
			{Name: "once", Immutable: true},
		},
	}
}

// inTeam returns a namespace with valid parameters.
func inTeam(name string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(name).Label(v1alpha1.LabelTemplate, "team").Annotation(owner, "alice")
}

// BeRefused matches a rejection by the templates policy that contains one sentence with the texts.
func BeRefused(texts ...string) OmegaMatcher {
	return And(BeDeniedBy(v1alpha1.PolicyTemplates, texts...), Satisfy(apierrors.IsInvalid),
		MatchError(Not(ContainSubstring("failed expression"))), WithTransform(func(err error) int { return len(err.Error()) },
			BeNumerically("<", 2500)))
}

// BeRefusedThroughFinalize succeeds if the guard policy rejects a change of labels or parameters through /finalize.
func BeRefusedThroughFinalize() OmegaMatcher {
	return BeDeniedBy(v1alpha1.PolicyGuard, "cannot be changed through /finalize")
}

var _ = Describe("The parameters of a new namespace", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		publish(ctx, team(), v1alpha1.EffectiveTemplate{Name: "other"}, v1alpha1.EffectiveTemplate{
			Name: "many", Parameters: []v1alpha1.TemplateParameter{{Name: "one", Enum: enum(32, 253)}},
		})
	}, NodeTimeout(5*time.Minute))

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
		}, SpecTimeout(5*time.Minute))
	}

	It("accept valid values, and all values in namespaces that no template selects", func(ctx context.Context) {
		dryRun(ctx, inTeam("shop").Annotation(size, "l").Label(kind, "db").
			Annotation(v1alpha1.PrefixParameter+"note", strings.Repeat("\"\n", 512)))
		dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(v1alpha1.PrefixParameter+"onwer", "x").Annotation(owner, "A B"))
	}, SpecTimeout(5*time.Minute))

	It("reject more than 128 annotations", func(ctx context.Context) {
		wrapper := inTeam("shop")
		for i := range 1900 {
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, i), "x")
		}
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj())).To(BeRefused("at most 128"))
	}, SpecTimeout(5*time.Minute))

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
	}, SpecTimeout(5*time.Minute))
})

func enum(count, length int) []string {
	var values []string
	for i := range count {
		values = append(values, fmt.Sprintf("%d%s", i, strings.Repeat("v", length-2)))
	}
	return values
}

var _ = Describe("The parameters of an existing namespace", Ordered, func() {
	var chosen, plain *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		publish(ctx, team(), v1alpha1.EffectiveTemplate{Name: "other"})
		chosen = inTeam(framework.Unique("chosen")).Label(kind, "web").Annotation(size, "s").Obj()
		Expect(cluster.Ordinary.Create(ctx, chosen)).To(Succeed())
		plain = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain"))
		for _, namespace := range []*corev1.Namespace{chosen, plain} {
			open(ctx, namespace.Name)
		}
	}, NodeTimeout(5*time.Minute))

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
		}, SpecTimeout(5*time.Minute))
	}

	It("reject a PUT that omits all annotations", func(ctx context.Context) {
		Expect(cluster.Ordinary.Update(ctx, withoutAnnotations(cluster.GetNamespace(Default, ctx, chosen.Name)))).
			To(BeRefused("owner"))
	}, SpecTimeout(5*time.Minute))

	It("accept other changes, also while the template rejects their values", func(ctx context.Context) {
		stricter := team()
		stricter.Parameters[1].Pattern = "^team-"
		stricter.Parameters = append(stricter.Parameters, v1alpha1.TemplateParameter{Name: "added", Required: true})
		publish(ctx, stricter)
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "labels", "note", new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", "note", new("x"))).To(Succeed())
		note := v1alpha1.PrefixParameter + "note"
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", note, new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", note, nil)).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("bob"))).To(BeRefused("owner"))
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("team-bob"))).To(Succeed())
		By("deleting the template")
		publish(ctx)
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "labels", "note", new("y"))).To(Succeed())
		publish(ctx, team())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", owner, new("alice"))).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("accept an immutable value once", func(ctx context.Context) {
		once := v1alpha1.PrefixParameter + "once"
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", once, new("a"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, chosen.Name, "annotations", once, new("b"))).To(BeRefused("immutable"))
	}, SpecTimeout(5*time.Minute))

	It("are checked when an open namespace gets a label that selects it", func(ctx context.Context) {
		for key, value := range map[string]string{"team": "a", v1alpha1.LabelTemplate: "team"} {
			Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "labels", key, &value)).
				To(BeRefused(`"owner" of template "team" is required`))
		}
		changed := cluster.GetNamespace(Default, ctx, plain.Name)
		changed.Labels["team"], changed.Annotations = "a", map[string]string{owner: "A B"}
		Expect(cluster.Ordinary.Update(ctx, changed.DeepCopy())).To(BeRefused("owner"))
		changed.Annotations[owner] = "bob"
		Expect(cluster.Ordinary.Update(ctx, changed)).To(Succeed())
		Expect(changed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		By("setting a value that the default would have set")
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", size, new("l"))).To(BeRefused("immutable"))
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", size, new("s"))).To(Succeed())
		By("removing the label")
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "labels", "team", nil)).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, plain.Name, "annotations", owner, new("A B"))).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})
