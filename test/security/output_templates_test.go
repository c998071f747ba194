// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	// hostileUser is the name of a user who creates namespaces.
	hostileUser = "PWN\u202e\u009b2J\ufeff"
	// lineBreaks are characters that JSON permits within strings, and YAML replaces.
	lineBreaks = "\u0085\u2028\u2029\x7f\u0080a"
)

// makeHostileTemplate returns a template whose objects contain text of its author and of the creators of
// namespaces.
func makeHostileTemplate(name, account string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	object := func(name string, manifest map[string]any) v1alpha1.TemplateObject {
		return v1alpha1.TemplateObject{Name: name, Template: &runtime.RawExtension{Raw: mustEncode(manifest)}}
	}
	return &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": hostileText}},
		Spec: v1alpha1.NamespaceTemplateSpec{
			ServiceAccountName: account,
			Parameters: []v1alpha1.TemplateParameter{
				{Name: "name", Description: hostileText, Default: new(hostileNames[0])},
				{Name: "size", Enum: []string{"PWN\u202e", "s"}, Default: new("s")},
				{Name: "config", Default: new("config"), Description: "PWN: kubectl touch PWN"},
			},
			Objects: []v1alpha1.TemplateObject{
				object("binding", map[string]any{
					"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
					"metadata": map[string]any{"name": "${params.name}"},
					"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "PWN"},
					"subjects": []any{"${subject(requestedBy)}"},
				}),
				object("config", map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap",
					"metadata": map[string]any{"name": "${params.config}", "annotations": map[string]any{"a": "${params.name}"}},
					"data":     map[string]any{"text": hostileText + lineBreaks, "user": "${requestedBy}"},
				}),
			},
		},
	}
}

// hostileTemplates runs the commands for templates in a cluster with hostile templates and namespaces.
func hostileTemplates(ctx context.Context, attacked *framework.Cluster, run func(context.Context, ...string) string) {
	GinkgoHelper()
	template := makeHostileTemplate(framework.Unique("hostile"), "hostile-furnisher")
	attacked.AddTemplateAccount(ctx, template.Spec.ServiceAccountName)
	Eventually(func() error { return attacked.Admin.Create(ctx, template.DeepCopy()) }).WithContext(ctx).Should(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(attacked.Admin.Delete(ctx, template)).To(Succeed()) })
	creator := attacked.Impersonate(hostileUser, "system:masters")
	Eventually(func() error {
		return creator.Create(ctx, wrappers.MakeNamespace("probe").Label(v1alpha1.LabelTemplate, template.Name).Obj(),
			client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	open := ""
	for _, name := range hostileNames {
		open = framework.Unique("hostile")
		Expect(creator.Create(ctx, wrappers.MakeNamespace(open).Label(v1alpha1.LabelTemplate, template.Name).
			Annotation(v1alpha1.PrefixParameter+"name", name).Obj())).To(Succeed())
	}
	invalid := framework.Unique("hostile")
	Expect(creator.Create(ctx, wrappers.MakeNamespace(invalid).Label(v1alpha1.LabelTemplate, template.Name).
		Annotation(v1alpha1.PrefixParameter+"config", hostileText).Obj())).To(Succeed())
	Eventually(func(g Gomega) {
		now := &v1alpha1.NamespaceTemplate{}
		g.Expect(attacked.Admin.Get(ctx, client.ObjectKeyFromObject(template), now)).To(Succeed())
		g.Expect(now.Status.Failures).NotTo(BeEmpty())
		g.Expect(now.Status.Failures[0].Message).To(And(ContainSubstring("PWN"), beOneLine()))
		for _, condition := range now.Status.Conditions {
			g.Expect(strings.ReplaceAll(condition.Message, "\n", "")).To(beOneLine(), condition.Type)
		}
		waiting := attacked.GetNamespace(g, ctx, invalid)
		g.Expect(framework.ConditionMessage(waiting, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)).
			To(And(ContainSubstring("PWN"), beOneLine()))
		g.Expect(eventsAbout(g, ctx, attacked.Admin, waiting)).To(ContainElement(And(ContainSubstring("PWN"), beOneLine())))
		g.Expect(attacked.GetNamespace(g, ctx, open).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	}).WithContext(ctx).Should(Succeed())

	By("applying the exact text")
	config := &corev1.ConfigMap{}
	Expect(attacked.Admin.Get(ctx, client.ObjectKey{Namespace: open, Name: "config"}, config)).To(Succeed())
	Expect(config.Data).To(Equal(map[string]string{"text": hostileText + lineBreaks, "user": hostileUser}))

	directory := writeHostileSuite(template)
	file := filepath.Join(directory, "template.yaml")
	for _, command := range [][]string{
		{"template", "list"}, {"template", "list", "-o", "yaml"}, {"template", "list", template.Name},
		{"template", "status", template.Name}, {"template", "status", template.Name, "-o", "json"},
		{"template", "render", template.Name, "--namespace=" + open},
		{"template", "render", template.Name, "--namespace=" + invalid},
		{"template", "render", "-f", file, "--namespace=new", "--requested-by=" + hostileUser,
			"-p", "name=" + hostileNames[3]},
		{"template", "render", "-f", file, "--namespace=new", "-p", "size=" + hostileText},
		{"template", "diff", template.Name, "--all"}, {"template", "diff", "-f", file, "--all"},
		{"template", "diff", "-f", file, "--all", "-o", "yaml"},
		{"template", "test", directory}, {"template", "test", directory, "--update"},
		{"template", "rollout", "status", template.Name, "--watch=false"},
		{"template", "rollout", "history", template.Name}, {"template", "rollout", "history", template.Name, "--revision=1"},
		{"template", "rollout", "undo", template.Name}, {"template", "status", hostileText},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "size=" + hostileText},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "name=" + hostileNames[5], "-o", "yaml"},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "config=" + hostileText,
			"--wait", "--timeout=2s"},
		{"create", framework.Unique("hostile"), "--template=" + hostileText},
		{"list", "-o", "wide"}, {"explain", invalid, "--progress-deadline=1s"},
	} {
		expectHarmless(run(ctx, command...), strings.Join(command, " "))
	}
	Expect(run(ctx, "template", "status", template.Name)).To(ContainSubstring("PWN"))
}

// writeHostileSuite writes a golden test whose files and directories contain hostile text, and returns its
// directory. The template has another revision than the one in the cluster.
func writeHostileSuite(template *v1alpha1.NamespaceTemplate) string {
	GinkgoHelper()
	changed := template.DeepCopy()
	changed.Spec.Parameters[2].Default = new("changed")
	namespace := &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "case", Labels: map[string]string{v1alpha1.LabelTemplate: template.Name},
			Annotations: map[string]string{v1alpha1.AnnotationRequestedBy: hostileUser},
		},
	}
	directory := filepath.Join(GinkgoT().TempDir(), "suite")
	failing, invalid := filepath.Join(directory, "a\x1b]0;PWN\x07"), filepath.Join(directory, "b\u202e")
	for _, path := range []string{failing, invalid} {
		Expect(os.MkdirAll(path, 0o700)).To(Succeed())
	}
	for path, content := range map[string]string{
		filepath.Join(directory, "template.yaml"): string(mustEncode(changed)),
		filepath.Join(failing, "namespace.yaml"):  string(mustEncode(namespace)),
		filepath.Join(failing, "expected.yaml"):   hostileText + "\x1b[2J\n",
		filepath.Join(invalid, "namespace.yaml"):  "kind: " + hostileText,
	} {
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	return directory
}
