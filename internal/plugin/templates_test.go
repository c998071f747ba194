// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
)

// TestCreationTimestampOfTemplateFile verifies that a template from a file is as old as the template in the cluster.
func TestCreationTimestampOfTemplateFile(t *testing.T) {
	created := metav1.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	existing := &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: "team", CreationTimestamp: created},
	}
	invalid := existing.DeepCopy()
	invalid.Spec.Objects = []v1alpha1.TemplateObject{{Name: "settings", IncludeWhen: "("}}
	notFound := apierrors.NewNotFound(templateResource.GroupResource(), "team").ErrStatus
	notFound.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	for name, test := range map[string]struct {
		status   int
		response any
		isNew    bool
	}{
		"existing template":         {status: http.StatusOK, response: existing},
		"invalid existing template": {status: http.StatusOK, response: invalid},
		"new template":              {status: http.StatusNotFound, response: notFound, isNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_ = json.NewEncoder(w).Encode(test.response)
			}))
			t.Cleanup(server.Close)
			t.Setenv("KUBECONFIG", "/dev/null")
			session := newSession(genericiooptions.NewTestIOStreamsDiscard())
			g.Expect(session.flagSet.Set("server", server.URL)).To(Succeed())
			options := &templateDiffOptions{templateSource: templateSource{session: session}}
			_, got, err := options.current(t.Context(), "team")
			g.Expect(err).NotTo(HaveOccurred())
			want := created.Time
			if test.isNew {
				want = time.Now()
			}
			g.Expect(got.Time).To(BeTemporally("~", want, time.Minute))
		})
	}
}

// rolledOut returns a template whose rollout has finished.
func rolledOut() *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Generation: 2},
		Status: v1alpha1.NamespaceTemplateStatus{
			ObservedGeneration: 2, UpdateRevision: "b", CurrentRevision: "b",
			Namespaces: &v1alpha1.TemplateNamespaceCounts{Desired: 10, Updated: 10},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue},
				{Type: v1alpha1.ConditionAuthorized, Status: metav1.ConditionTrue},
				{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUpToDate},
			},
		},
	}
}

func TestRolloutProgress(t *testing.T) {
	const waiting = `Waiting for the rollout of NamespaceTemplate "team" to finish: `
	progressing := func(reason string, counts v1alpha1.TemplateNamespaceCounts) func(*v1alpha1.NamespaceTemplate) {
		return func(object *v1alpha1.NamespaceTemplate) {
			object.Status.CurrentRevision = "a"
			object.Status.Conditions[2].Status, object.Status.Conditions[2].Reason = metav1.ConditionTrue, reason
			object.Status.Namespaces = &counts
		}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NamespaceTemplate)
		text   string
		isDone bool
		err    string
	}{
		"finished": {
			change: func(*v1alpha1.NamespaceTemplate) {},
			text:   `NamespaceTemplate "team" successfully rolled out`, isDone: true,
		},
		"finished, incomplete": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				object.Status.Conditions[2].Reason, object.Status.Conditions[2].Message = v1alpha1.ReasonIncomplete, "0 of 3."
			},
			text: `NamespaceTemplate "team" rolled out: 0 of 3.`, isDone: true,
		},
		"not observed": {
			change: func(object *v1alpha1.NamespaceTemplate) { object.Generation++ },
			text:   `Waiting for the operator to observe the change of NamespaceTemplate "team"...`,
		},
		"never observed": {
			change: func(object *v1alpha1.NamespaceTemplate) { object.Status = v1alpha1.NamespaceTemplateStatus{} },
			text:   `Waiting for the operator to observe the change of NamespaceTemplate "team"...`,
		},
		"in progress": {
			change: progressing(v1alpha1.ReasonFailing,
				v1alpha1.TemplateNamespaceCounts{Desired: 10, Updated: 4, Outdated: 3, Failed: 2, Conflicted: 1}),
			text: waiting + "4 of 10 namespaces updated, 2 failed, 1 conflicted...",
		},
		"paused and unauthorized": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				progressing(v1alpha1.ReasonPaused, v1alpha1.TemplateNamespaceCounts{Desired: 10, Updated: 4})(object)
				object.Status.Conditions[1].Status = metav1.ConditionFalse
			},
			text: waiting + "4 of 10 namespaces updated, paused, unauthorized...",
		},
		"minReadySeconds": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				progressing(v1alpha1.ReasonWaitingForMinReadySeconds, v1alpha1.TemplateNamespaceCounts{Desired: 10, Updated: 4})(object)
				object.Spec.Rollout.MinReadySeconds = 90
				object.Status.CanariesUpdatedTime = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			},
			text: waiting + "4 of 10 namespaces updated, other namespaces follow after 2026-01-01T00:01:30Z...",
		},
		"paused because of failures": {
			change: progressing(v1alpha1.ReasonPausedAfterFailures, v1alpha1.TemplateNamespaceCounts{Desired: 10, Failed: 3}),
			err:    "cannot continue (PausedAfterFailures)",
		},
		"invalid": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				object.Status.Conditions[0].Status, object.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
			},
			err: "cannot continue (Invalid)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := rolledOut()
			test.change(object)
			text, isDone, err := rolloutProgress(object)
			if test.err != "" {
				g.Expect(err).To(And(MatchError(ContainSubstring(test.err)), HaveField("Code", ExitBlocked)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).To(Equal(test.text))
			g.Expect(isDone).To(Equal(test.isDone))
		})
	}
}

func TestPrintComparison(t *testing.T) {
	g := NewWithT(t)
	result := &templates.Comparison{
		Template: "team", Revision: "b", Current: "a", Existing: 2, Unselected: 1, Tried: 1,
		Namespaces: map[templates.Change]int{templates.Unchanged: 980, templates.Changed: 15, templates.Failed: 1, templates.LikelyFailed: 4},
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

             UNCHANGED   CHANGED   REPLACED   CREATED   ADOPTED   DELETED   FAILED
Namespaces   980         15        0          0         0         0         1
Objects      3920        15        0          0         0         15        0
Tried 1 of 3 namespaces by dry run. The result for the rest is inferred from records.
Likely to fail, not tried: 4 namespaces with an object that fails wherever it was tried.
Not included: 2 selected namespaces not created with the template, whose scope is NewNamespaces.
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
			{Name: "owner", Pattern: "^[a-z]+$", Required: true, LabelKey: "example.com/owner"},
		}},
		{Name: "unknown", Access: v1alpha1.AccessRestricted},
	})
	var out strings.Builder
	g.Expect(printer.NewTablePrinter(&out, false, false).Print(table)).To(Succeed())
	g.Expect(strings.Split(out.String(), "\n")).To(HaveExactElements(
		MatchRegexp(`^NAME +ACCESS +USABLE +PARAMETER +VALUES +DEFAULT +DESCRIPTION$`),
		MatchRegexp(`^plain +Open +yes +<none> *$`),
		MatchRegexp(`^team +Restricted +no +size +s, l +s +The size of the quota\. Immutable\.$`),
		MatchRegexp(`^ +owner +\^\[a-z]\+\$ +<required> +Set the label example.com/owner\.$`),
		MatchRegexp(`^unknown +Restricted +unknown +<none> *$`),
		BeEmpty(),
	))
}

func TestPrintTemplateStatus(t *testing.T) {
	g := NewWithT(t)
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	object := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.NamespaceTemplateSpec{Access: v1alpha1.AccessRestricted, ServiceAccountName: "provisioner"},
	}
	status := &templateStatus{Outdated: []string{"a", "b", "c", "d", "e", "f"}, NamespaceTemplateStatus: v1alpha1.NamespaceTemplateStatus{
		UpdateRevision: "1a2b", CurrentRevision: "0f0f",
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Message: "The template is valid."},
			{Type: v1alpha1.ConditionAuthorized, Status: metav1.ConditionFalse, Message: "Missing rules:\n- apiGroups: [\"\"]\n  verbs: [patch]"},
		},
		Namespaces: &v1alpha1.TemplateNamespaceCounts{Desired: 10, Updated: 4, Outdated: 5, Failed: 1},
		Failures: []v1alpha1.TemplateFailure{{Namespace: "a", Object: "quota", Reason: "Forbidden", Message: strings.Repeat("word ", 40) + "reason."},
			{Namespace: "b", Reason: "ApplyFailed", Message: "no response"}},
	}}
	options := &templateStatusOptions{session: newSession(streams)}
	g.Expect(options.print(object, status)).To(Succeed())
	g.Expect(out.String()).To(Equal(`NamespaceTemplate team, revision 1a2b, access Restricted, ServiceAccount provisioner
New namespaces get revision 0f0f until the rollout has completed.

Valid          True   The template is valid.
Authorized     False  Missing rules:
                        - apiGroups: [""]
                          verbs: [patch]

Namespaces: 10 desired, 4 updated, 5 outdated, 1 failed, 0 conflicted.
Without this revision: a, b, c, d, e, and 1 more

namespace/a, object quota: Forbidden: word word word word word word word word word word word word
  word word word word word word word word word word word word word word word word word word word
  word word word word word word word word word reason. To fix it, grant the ServiceAccount of the
  template what is missing, or change the policy or webhook that denies the object.

namespace/b: ApplyFailed: no response
`))
	g.Expect(isBlocked(status)).To(BeTrue())
}
