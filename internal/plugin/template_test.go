// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
)

func TestPrintComparison(t *testing.T) {
	g := NewWithT(t)
	result := &templates.Comparison{
		Template: "team", Revision: "b", Current: "a", Existing: 2, Unselected: 1,
		Namespaces: map[templates.Change]int{templates.Unchanged: 980, templates.Changed: 15, templates.Failed: 1},
		Objects:    map[templates.Change]int{templates.Unchanged: 3920, templates.Changed: 15, templates.Deleted: 15},
		Items: []templates.NamespaceChange{
			{Namespace: "broken", Change: templates.Failed, Message: "the parameter size is required"},
			{Namespace: "shop", Change: templates.Changed, Objects: []templates.ObjectChange{
				{Object: "quota", Kind: "ResourceQuota", Name: "team", Change: templates.Changed, Fields: []templates.FieldChange{
					{Path: "spec.hard.pods", Before: "4", After: "40"},
					{Path: "metadata.annotations[example.com/a-long-key]", After: `"` + strings.Repeat("x", 80) + `"`},
				}},
				{Object: "notes", Kind: "ConfigMap", Name: "notes", Change: templates.Deleted},
			}},
			{Namespace: "zoo", Change: templates.Changed},
		},
	}
	var out strings.Builder
	g.Expect(printComparison(&out, result, result.Examples(1))).To(Succeed())
	g.Expect(out.String()).To(Equal(`Template team: revision b replaces a.

             UNCHANGED   CHANGED   CREATED   DELETED   FAILED
Namespaces   980         15        0         0         1
Objects      3920        15        0         15        0
Not included: 2 selected namespaces to which the template does not extend, because
  existingNamespaces is false.
Not included: 1 namespace no longer selected, whose objects remain.

Namespace broken: failed
  the parameter size is required

Namespace shop: changed
  ~ ResourceQuota team (object quota)
      spec.hard.pods: 4 -> 40
      ...notations[example.com/a-long-key]: <none> -> "xxxxxxxxxxxxxxxxxxxx...
  - ConfigMap notes (object notes)

1 more namespace not shown. Use --all to print all changes.
`))
}

func TestTemplateTable(t *testing.T) {
	g := NewWithT(t)
	table := templateTable([]templateSummary{
		{Name: "plain", Access: v1alpha1.AccessOpen, IsUsable: ptr.To(true)},
		{Name: "team", Access: v1alpha1.AccessRestricted, IsUsable: ptr.To(false), Parameters: []v1alpha1.TemplateParameter{
			{Name: "size", Enum: []string{"s", "l"}, Default: ptr.To("s"), Description: "The size\nof the quota", Immutable: true},
			{Name: "owner", Pattern: "^[a-z]+$", Required: true, Label: "example.com/owner"},
		}},
		{Name: "unknown", Access: v1alpha1.AccessRestricted},
	})
	var out strings.Builder
	g.Expect(printer.PrintTable(&out, table, printer.TableOptions{Columns: printer.MaxTextWidth})).To(Succeed())
	g.Expect(strings.Split(out.String(), "\n")).To(HaveExactElements(
		MatchRegexp(`^NAME +ACCESS +USABLE +PARAMETER +VALUES +DEFAULT +DESCRIPTION$`),
		MatchRegexp(`^plain +Open +yes +<none> *$`),
		MatchRegexp(`^team +Restricted +no +size +s, l +s +The size of the quota\.`),
		MatchRegexp(`^ +Immutable\.$`),
		MatchRegexp(`^ +owner +\^\[a-z]\+\$ +<required> +Set the label$`),
		MatchRegexp(`^ +example.com/owner\.$`),
		MatchRegexp(`^unknown +Restricted +unknown +<none> *$`),
		BeEmpty(),
	))
}

func TestPrintTemplateStatus(t *testing.T) {
	g := NewWithT(t)
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	object := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.NamespaceTemplateSpec{Access: v1alpha1.AccessRestricted, ServiceAccountName: "furnisher"},
	}
	status := &templateStatus{Outdated: []string{"a", "b", "c", "d", "e", "f"}, NamespaceTemplateStatus: v1alpha1.NamespaceTemplateStatus{
		Revision: "1a2b", CurrentRevision: "0f0f",
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Message: "The template is valid."},
			{Type: v1alpha1.ConditionAuthorized, Status: metav1.ConditionFalse, Message: "Missing rules:\n- apiGroups: [\"\"]\n  verbs: [patch]"},
		},
		Namespaces: &v1alpha1.TemplateNamespaceCounts{Selected: 10, Ready: 4, Pending: 5, Failed: 1},
		Failures:   []v1alpha1.TemplateFailure{{Namespace: "a", Object: "quota", Reason: "Forbidden", Message: "no permission"}},
	}}
	options := &templateStatusOptions{session: newSession(streams)}
	g.Expect(options.print(object, status)).To(Succeed())
	g.Expect(out.String()).To(Equal(`NamespaceTemplate team, revision 1a2b, access Restricted, ServiceAccount furnisher
New namespaces get revision 0f0f until the rollout has completed.

Valid          True   The template is valid.
Authorized     False  Missing rules:
                        - apiGroups: [""]
                          verbs: [patch]

Namespaces: 10 selected, 4 ready, 5 pending, 1 failed, 0 conflicted.
Without this revision: a, b, c, d, e, and 1 more

NAMESPACE   OBJECT   REASON      MESSAGE
a           quota    Forbidden   no permission
`))
	g.Expect(isBlocked(status)).To(BeTrue())
}

func TestChooseTemplate(t *testing.T) {
	for name, test := range map[string]struct {
		options createOptions
		err     string
	}{
		"template and parameters": {options: createOptions{template: "team", parameters: []string{"size=l"}}},
		"invalid name":            {options: createOptions{template: "Team"}, err: "invalid template name"},
		"invalid parameter":       {options: createOptions{template: "team", parameters: []string{"size"}}, err: "invalid parameter"},
		"template twice": {
			options: createOptions{template: "team", labels: map[string]string{v1alpha1.LabelTemplate: "team"}},
			err:     "mutually exclusive",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: test.options.labels}}
			err := test.options.chooseTemplate(namespace)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(namespace.Labels).To(Equal(map[string]string{"nslifecycle.dev/template": "team"}))
			g.Expect(namespace.Annotations).To(Equal(map[string]string{"parameter.nslifecycle.dev/size": "l"}))
		})
	}
}

func TestTemplateArguments(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		err       string
	}{
		"no template":        {[]string{"render", "--namespace=shop"}, "either the name of a NamespaceTemplate or --filename"},
		"name and file":      {[]string{"diff", "team", "-f=team.yaml"}, "either the name of a NamespaceTemplate or --filename"},
		"two names":          {[]string{"diff", "a", "b"}, "exactly one NamespaceTemplate"},
		"no namespace":       {[]string{"render", "-f=team.yaml"}, errNamespaceOrFile.Error()},
		"two namespaces":     {[]string{"render", "-f=team.yaml", "-n=a", "--namespace-file=b"}, errNamespaceOrFile.Error()},
		"invalid parameter":  {[]string{"render", "-f=team.yaml", "-n=a", "-p=x"}, "invalid parameter"},
		"no test":            {[]string{"test"}, "at least one file or directory"},
		"negative revision":  {[]string{"rollout", "undo", "team", "--to-revision=-1"}, "must be a positive number"},
		"invalid dry run":    {[]string{"rollout", "undo", "team", "--dry-run=x"}, "invalid --dry-run value"},
		"no rollout":         {[]string{"rollout", "status"}, "exactly one NamespaceTemplate"},
		"unknown subcommand": {[]string{"remove"}, "accepts no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			root := New(genericiooptions.NewTestIOStreamsDiscard())
			root.SetArgs(append([]string{"template"}, test.arguments...))
			err := root.Execute()
			if exit := (&StatusError{}); errors.As(err, &exit) {
				t.Errorf("got exit status %d", exit.Code)
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}
