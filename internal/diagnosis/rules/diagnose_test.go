// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestDiagnoseEmptyNamespace(t *testing.T) {
	for name, facts := range map[string]*diagnosis.Facts{
		"an initialized namespace":  {Namespace: &corev1.Namespace{}},
		"a terminating namespace":   {Namespace: wrappers.MakeNamespace("").Terminating(time.Time{}).Obj()},
		"an initializing namespace": {Namespace: wrappers.MakeNamespace("").Pending("a").Obj()},
	} {
		if got := Diagnose(facts); got == nil || got.Summary == "" || got.State == "" || got.Result == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestDiagnoseInitializedNamespace(t *testing.T) {
	initialized := now.Add(-time.Minute)
	namespace := wrappers.MakeNamespace(shop).Initializers("a").Pending().Condition(corev1.NamespaceCondition{
		Type: "Initializing", Status: corev1.ConditionFalse, Reason: "Initialized", LastTransitionTime: metav1.Time{Time: initialized},
	}).Obj()
	got := Diagnose(&diagnosis.Facts{Now: now, Namespace: namespace})
	if got.State != diagnosis.StateInitialized || got.Result != diagnosis.Healthy || !got.Since.Equal(initialized) {
		t.Errorf("got %+v", got)
	}
}

func TestState(t *testing.T) {
	unread := withContent(failing(configMaps, unavailable))
	young := func(facts *diagnosis.Facts) { facts.ProgressDeadline = time.Hour }
	for name, test := range map[string]struct {
		facts *diagnosis.Facts
		want  diagnosis.Health
	}{
		"everything was read":                 {makeTerminating(young), diagnosis.Progressing},
		"some content is unread":              {makeTerminating(young, unread), diagnosis.Unknown},
		"no resource types are known":         {makeTerminating(young, withUnread(diagnosis.SourceDiscovery)), diagnosis.Unknown},
		"other unread objects are irrelevant": {makeTerminating(young, withUnread(diagnosis.SourceNodes)), diagnosis.Progressing},
		"the deadline has passed":             {makeTerminating(withUnread(diagnosis.SourceNodes)), diagnosis.Unknown},
		"objects remain for an unknown reason, and everything was read": {
			makeTerminating(withContent(contentOf(configMaps, makeObject("a")))), diagnosis.Blocked,
		},
		"objects remain, and some are unread": {
			makeTerminating(withContent(contentOf(configMaps, makeObject("a"))), withUnread(diagnosis.SourceNodes)), diagnosis.Unknown,
		},
		"a cause is known": {
			makeTerminating(withUnread(diagnosis.SourceNodes), withContentFailure(deadText)), diagnosis.Blocked,
		},
	} {
		if got := Diagnose(test.facts); got.Result != test.want {
			t.Errorf("%s: got %s, want %s: %+v", name, got.Result, test.want, got)
		}
	}
}

// TestDiagnoseArbitraryFacts combines arbitrary, even contradictory facts. Rules must not panic,
// return a finding without a message, or depend on anything except the facts.
func TestDiagnoseArbitraryFacts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changes := []func(*diagnosis.Facts){
		withAPIService(false), withAPIService(true), withFailed(unavailable, nil), withFailed(unavailable, unavailable),
		withContent(failing(metrics, unavailable)), withContent(contentOf(configMaps, makeObject("a"), makeDeleted("b", held, held, ""))),
		withContent(contentOf(widgets, makeDeleted("a", held, "b.example.org/c", "hold"))), withDefinition(), withDefinition(convertedBy(shop)),
		withDefinition(terminating("")), withContentFailure(deadText), withContentFailure(policyText), withContentFailure(""),
		withDryRuns(makeDryRun(diagnosis.VerbDelete, configMaps, "a", "", internalError(deadText)), makeDryRun(diagnosis.VerbPatch, widgets, "a", held, nil)),
		withDryRuns(makeDryRun(diagnosis.VerbPatch, widgets, "a", held, answer(422, metav1.StatusReasonInvalid, ""))), withWebhook, withPolicy(true, false),
		withPod("web", nil), withPod("", func(pod *corev1.Pod) { pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{} }),
		withNode(corev1.ConditionFalse), withWorkloads(diagnosis.Workload{}, makeOperator(0), makeOperator(1)), withReview("patch"), withNamespaceWrites(nil), withNamespaceWrites(internalError(deadText)), withAPIService(true), withOwnDenial(tierText, true), withBinding(shop, false),
		withLeases(makeLease("", "", "", time.Time{}), makeLease("shop", "widgets.example.com", "", now)),
		withUnread(diagnosis.SourcePods), withUnread(diagnosis.SourceDiscovery, diagnosis.SourceLeases), withNamespaceFinalizers(), withNamespaceFinalizers("kubernetes", "a"), withNamespaceFinalizers("", "a.b.c/d"),
		withContent(contentOf(services, makeDeleted("s", owners.FinalizerLoadBalancer)), contentOf(deployments, makeDeleted("d", owners.FinalizerForeground))),
		withContent(contentOf(claims, makeDeleted("data", owners.FinalizerPVC)), resourcetypes.Content{Type: pods, Count: 70000, IsAtLeast: true}),
		func(facts *diagnosis.Facts) { facts.ResourceTypes = nil },
		func(facts *diagnosis.Facts) { facts.Namespace.Status.Conditions = nil },
		func(facts *diagnosis.Facts) { facts.Namespace.Finalizers = []string{"", "x.example.com/y"} },
		func(facts *diagnosis.Facts) { facts.Leases = nil },
		func(facts *diagnosis.Facts) {
			facts.Leases[0].Spec.RenewTime, facts.Leases[0].Spec.LeaseDurationSeconds = nil, nil
		},
		func(facts *diagnosis.Facts) { facts.Progress.Released = map[string]int{held: 1} },
		func(facts *diagnosis.Facts) {
			facts.Reports = []diagnosis.Report{makeReport("Ready", "False", `x "y" not found`)}
		},
	}
	for range 1000 {
		var chosen []func(*diagnosis.Facts)
		for range random.IntN(8) {
			change := changes[random.IntN(len(changes))]
			chosen = append(chosen, func(facts *diagnosis.Facts) {
				if len(facts.Leases) > 0 {
					change(facts)
				}
			})
		}
		facts := makeTerminating(chosen...)
		first, second := Diagnose(facts), Diagnose(facts)
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("the same facts result in %+v and %+v", first, second)
		}
		expectPublishable(t, facts)
		for _, finding := range first.Findings {
			if finding.Message == "" || len(finding.Remedies) == 0 || finding.Count < len(finding.Objects) || len(finding.Objects) > diagnosis.MaxObjects {
				t.Fatalf("invalid finding %+v for the facts %+v", finding, facts)
			}
			expectParameters(t, finding)
		}
	}
}

// The findings are in the reverse of the expected order.
func TestCompareFindings(t *testing.T) {
	findings := []diagnosis.Finding{
		{Cause: diagnosis.CauseFinalizerPending, Rank: diagnosis.RankInferred, Count: 3}, {Cause: diagnosis.CauseFinalizerPending, Rank: diagnosis.RankInferred, Count: 9},
		{Cause: diagnosis.CauseNamespaceControllerUnresponsive, Rank: diagnosis.RankInferred}, {Cause: diagnosis.CauseNamespaceFinalizer, Rank: diagnosis.RankProven},
	}
	for i := 1; i < len(findings); i++ {
		if compareFindings(findings[i-1], findings[i]) <= 0 {
			t.Errorf("%+v is sorted before %+v", findings[i-1], findings[i])
		}
	}
}
