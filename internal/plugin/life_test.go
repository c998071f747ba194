// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var (
	testStart = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	testEnd   = metav1.NewTime(testStart.Add(time.Hour))
)

func makeTerminating(conditions ...corev1.NamespaceCondition) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: testStart, DeletionTimestamp: &testEnd},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Conditions: conditions},
	}
}

func makeInitializing(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: testStart, Annotations: annotations},
	}
}

func isTrue(conditionType corev1.NamespaceConditionType, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionTrue, Message: message, Reason: "Why"}
}

func TestDescribeLife(t *testing.T) {
	const all, pending = v1alpha1.AnnotationInitializers, v1alpha1.AnnotationPendingInitializers
	withTokens := makeTerminating()
	withTokens.Spec.Finalizers = append(withTokens.Spec.Finalizers, "corp.example.com/agent")
	withTokens.Finalizers = []string{"corp.example.com/own"}
	completed := makeInitializing(map[string]string{all: "a.b.c"})
	completed.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
		Reason: v1alpha1.ReasonCompleted, LastTransitionTime: testEnd,
	}}
	notTrue := isTrue(corev1.NamespaceDeletionContentFailure, "all well")
	notTrue.Status = corev1.ConditionFalse
	blockedBirth := makeInitializing(map[string]string{pending: "a.b.c"})
	blockedBirth.Status.Conditions = []corev1.NamespaceCondition{isTrue(v1alpha1.ConditionInitializationBlocked, "nobody serves it")}

	tests := map[string]struct {
		namespace *corev1.Namespace
		stage     diagnosis.Stage
		since     metav1.Time
		waitsFor  []string
		cause     string
		isBlocked bool
	}{
		"active":    {namespace: makeInitializing(nil), stage: diagnosis.StageActive, since: testStart},
		"completed": {namespace: completed, stage: diagnosis.StageActive, since: testEnd},
		"initializing": {
			namespace: makeInitializing(map[string]string{all: "a.b.c,d.e.f,g.h.i", pending: "d.e.f,g.h.i"}),
			stage:     diagnosis.StageInitializing, since: testStart, waitsFor: []string{"d.e.f (2 of 3)"},
		},
		"failed": {
			namespace: makeInitializing(map[string]string{
				pending: "a.b.c", v1alpha1.AnnotationInitializationResult: `{"status":"Failure","message":"no budget"}`,
			}),
			stage: diagnosis.StageInitializing, since: testStart, isBlocked: true,
			waitsFor: []string{"its deletion, since it failed: no budget"},
		},
		"blocked in its initialization": {
			namespace: blockedBirth, stage: diagnosis.StageInitializing, since: testStart, isBlocked: true, cause: "Why",
			waitsFor: []string{"a.b.c (1 of 1)", "nobody serves it"},
		},
		"nothing is said of its end": {
			namespace: makeTerminating(notTrue), stage: diagnosis.StageTerminating, since: testEnd,
			waitsFor: []string{"the namespace controller"},
		},
		"the cause first, then errors, finalizers, and what is left": {
			namespace: makeTerminating(
				isTrue(corev1.NamespaceContentRemaining, "Some resources are remaining: "+
					"configmaps. has 3 resource instances, foos.example.com has 1 resource instances"),
				isTrue(corev1.NamespaceFinalizersRemaining, "Some content in the namespace has finalizers remaining: "+
					"example.com/x in 3 resource instances, y in 1 resource instances"),
				isTrue(corev1.NamespaceDeletionDiscoveryFailure, "Discovery failed for some groups"),
				isTrue(v1alpha1.ConditionDeletionBlocked, "the owner is gone")),
			stage: diagnosis.StageTerminating, since: testEnd, isBlocked: true, cause: "Why",
			waitsFor: []string{
				"the owner is gone", "Discovery failed for some groups",
				"finalizer example.com/x on 3, finalizer y on 1", "3 configmaps, 1 foos.example.com",
			},
		},
		"messages of another form stay as they are": {
			namespace: makeTerminating(isTrue(corev1.NamespaceContentRemaining, "much"),
				isTrue(corev1.NamespaceFinalizersRemaining, "several")),
			stage: diagnosis.StageTerminating, since: testEnd, waitsFor: []string{"several", "much"},
		},
		"tokens and finalizers of the Namespace": {
			namespace: withTokens, stage: diagnosis.StageTerminating, since: testEnd,
			waitsFor: []string{"token corp.example.com/agent", "finalizer corp.example.com/own of the Namespace"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			described := describeLife(test.namespace)
			g.Expect(described.Stage).To(Equal(test.stage))
			g.Expect(described.Since).To(Equal(test.since))
			g.Expect(described.WaitsFor).To(Equal(test.waitsFor))
			g.Expect(described.IsBlocked).To(Equal(test.isBlocked))
			g.Expect(described.Cause).To(Equal(test.cause))
		})
	}
}

func TestLifeTable(t *testing.T) {
	g := NewWithT(t)
	lives := []life{
		{Metadata: lifeMetadata{Name: "active", CreationTimestamp: testStart}, Stage: diagnosis.StageActive, Since: testEnd},
		{Metadata: lifeMetadata{Name: "b", CreationTimestamp: testStart}, Stage: diagnosis.StageTerminating, Since: testEnd,
			WaitsFor: []string{"this", "that", "more"}, IsBlocked: true, RequestedBy: "me",
			IsProtected: true, ExpiresAt: &metav1.Time{Time: testEnd.Add(3 * time.Hour)}},
	}
	now := testEnd.Add(time.Minute)
	var narrow, wide, bare bytes.Buffer
	g.Expect(printTable(&narrow, lifeTable(lives, now, false), false, false)).To(Succeed())
	g.Expect(narrow.String()).To(Equal("NAME     STAGE         AGE   WAITS FOR\n" +
		"active   Active        61m   \nb        Terminating   61m   this\n"))
	g.Expect(printTable(&wide, lifeTable(lives, now, true), true, false)).To(Succeed())
	g.Expect(wide.String()).To(MatchRegexp(`PROTECTED +EXPIRES +WAITS FOR +AND\n`))
	g.Expect(wide.String()).To(MatchRegexp(`active +Active +61m +60s +<none> +no +<never> `))
	g.Expect(wide.String()).To(ContainSubstring("b        Terminating   61m   60s     me             yes         in 179m   this        that; more\n"))

	g.Expect(printTable(&bare, lifeTable(lives, now, false), false, true)).To(Succeed())
	for _, table := range []*bytes.Buffer{&narrow, &bare} {
		coloured := shown(string(colourLives(table.Bytes(), lives, palette{})))
		g.Expect(coloured).To(ContainSubstring("active   \x1b[32mActive\x1b[0m "))
		g.Expect(coloured).To(ContainSubstring("b        \x1b[31mTerminating\x1b[0m "))
		g.Expect(colourLives(table.Bytes(), lives, palette{isPlain: true})).To(Equal(table.Bytes()))
	}
}

func TestLifeTellsProtectionAndExpiry(t *testing.T) {
	tests := map[string]struct {
		namespace   *wrappers.NamespaceWrapper
		isProtected bool
		expires     *metav1.Time
	}{
		"neither":   {namespace: wrappers.MakeNamespace("shop")},
		"protected": {namespace: wrappers.MakeNamespace("shop").Label(v1alpha1.LabelDeletionProtection, ""), isProtected: true},
		"a time": {
			namespace: wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationExpiresAt, "2026-12-24T18:00:00Z"),
			expires:   &metav1.Time{Time: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)},
		},
		"no clear time": {namespace: wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationTTL, "soon")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			described := describeLife(test.namespace.Obj())
			g.Expect(described.IsProtected).To(Equal(test.isProtected))
			g.Expect(described.ExpiresAt).To(Equal(test.expires))
		})
	}
	g := NewWithT(t)
	now := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	g.Expect(expiresIn(nil, now)).To(Equal("<never>"))
	g.Expect(expiresIn(&metav1.Time{Time: now}, now)).To(Equal("expired"))
	g.Expect(expiresIn(&metav1.Time{Time: now.Add(48 * time.Hour)}, now)).To(Equal("in 2d"))
}

func TestParseStage(t *testing.T) {
	g := NewWithT(t)
	for text, stage := range map[string]diagnosis.Stage{"": "", "terminating": diagnosis.StageTerminating, "Active": "Active"} {
		g.Expect(parseStage(text)).To(Equal(stage))
	}
	_, err := parseStage("Dead")
	g.Expect(err).To(MatchError(`unknown stage "Dead"; use one of Initializing, Active, Terminating`))
}
