// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestDiagnoseOfNothing(t *testing.T) {
	for name, facts := range map[string]*Facts{
		"no facts": nil, "no namespace": {}, "an empty namespace": {Namespace: &corev1.Namespace{}},
		"an empty one that is being deleted": {Namespace: wrappers.MakeNamespace("").Terminating(time.Time{}).Obj()},
		"an empty one that waits":            {Namespace: wrappers.MakeNamespace("").Pending("a").Obj()},
	} {
		if got := Diagnose(facts); got == nil || got.Summary == "" || got.Stage == "" || got.State == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestDiagnoseOfHealthy(t *testing.T) {
	opened := now.Add(-time.Minute)
	namespace := wrappers.MakeNamespace(shop).Condition(corev1.NamespaceCondition{
		Type: "Initializing", Status: corev1.ConditionFalse, Reason: "Completed", LastTransitionTime: metav1.Time{Time: opened},
	}).Obj()
	got := Diagnose(&Facts{Now: now, Namespace: namespace})
	if got.Stage != StageActive || got.State != Healthy || !got.Since.Equal(opened) {
		t.Errorf("got %+v", got)
	}
}

// TestDiagnoseOfAnything puts together facts as they come, some of which contradict each
// other: nothing may panic, be blamed without a word, or depend on anything but the facts.
func TestDiagnoseOfAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	metrics := inventory.Type{GroupVersionResource: metricsVersion.WithResource("pods")}
	changes := []func(*Facts){
		withAPIService(false), withAPIService(true), withFailed(unavailable, nil), withFailed(unavailable, unavailable),
		withContent(failing(metrics, unavailable)), withContent(contentOf(configMaps, makeObject("a"), makeDeleted("b", held, held, ""))),
		withContent(contentOf(widgets, makeDeleted("a", held, "b.example.org/c", "hold"))), withDefinition(), withDefinition(convertedBy(shop)),
		withDefinition(terminating("")), withContentFailure(deadText), withContentFailure(policyText), withContentFailure(""),
		withTrials(Trial{VerbDelete, configMaps, "a", "", internalError(deadText)}, Trial{VerbPatch, widgets, "a", held, nil}),
		withTrials(Trial{VerbPatch, widgets, "a", held, answer(422, metav1.StatusReasonInvalid, "")}), withWebhook, withPolicy(true, false),
		withPod("web", nil), withPod("", func(pod *corev1.Pod) { pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{} }),
		withNode(corev1.ConditionFalse), withWorkloads(Workload{}, makeOperator(0), makeOperator(1)), withReview(false), withBinding(shop, false),
		withLeases(makeLease("", "", "", time.Time{}), makeLease("shop", "widgets.example.com", "", now)),
		withUnread(SourcePods), withUnread(SourceDiscovery, SourceLeases), withTokens(), withTokens("kubernetes", "a"), withTokens("", "a.b.c/d"),
		withContent(contentOf(services, makeDeleted("s", finalizerLoadBalancer)), contentOf(deployments, makeDeleted("d", finalizerForeground))),
		withContent(contentOf(claims, makeDeleted("data", finalizerClaim)), inventory.Content{Type: pods, Count: 70000, IsAtLeast: true}),
		func(facts *Facts) { facts.Inventory = nil },
		func(facts *Facts) { facts.Namespace.Status.Conditions = nil },
		func(facts *Facts) { facts.Namespace.Finalizers = []string{"", "x.example.com/y"} },
		func(facts *Facts) { facts.Leases = nil },
		func(facts *Facts) {
			facts.Leases[0].Spec.RenewTime, facts.Leases[0].Spec.LeaseDurationSeconds = nil, nil
		},
		func(facts *Facts) { facts.Movement.Released = map[string]int{held: 1} },
		func(facts *Facts) { facts.Complaints = []Complaint{{widgets, "a", "", `x "y" not found`, time.Time{}}} },
	}
	for range 1000 {
		var chosen []func(*Facts)
		for range random.IntN(8) {
			change := changes[random.IntN(len(changes))]
			chosen = append(chosen, func(facts *Facts) {
				if len(facts.Leases) > 0 {
					change(facts)
				}
			})
		}
		facts := makeDeath(chosen...)
		first, second := Diagnose(facts), Diagnose(facts)
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("the same facts give %+v and %+v", first, second)
		}
		expectPublishable(t, facts)
		for _, finding := range first.Findings {
			if finding.Message == "" || len(finding.Remedies) == 0 || finding.Count < len(finding.Objects) || len(finding.Objects) > mostObjects {
				t.Fatalf("finding %+v of %+v", finding, facts)
			}
		}
	}
}

// TestOrder makes sure that no cause of a deletion is left out.
func TestOrder(t *testing.T) {
	findings := []Finding{
		{Cause: CauseFinalizerPending, Certainty: Likely, Count: 3}, {Cause: CauseFinalizerPending, Certainty: Likely, Count: 9},
		{Cause: CauseNamespaceControllerUnresponsive, Certainty: Likely}, {Cause: CauseNamespaceFinalizer, Certainty: Proven},
	}
	for i := 1; i < len(findings); i++ {
		if compareFindings(findings[i-1], findings[i]) <= 0 {
			t.Errorf("%+v comes before %+v", findings[i-1], findings[i])
		}
	}
}

func TestMovement(t *testing.T) {
	first := []inventory.Content{contentOf(widgets, makeDeleted("a", held), makeDeleted("b", held, "x")), contentOf(configMaps, makeObject("c"))}
	for name, test := range map[string]struct {
		second   []inventory.Content
		gone     int
		released int
	}{
		"nothing":                     {second: first},
		"a new one":                   {second: []inventory.Content{contentOf(widgets, makeDeleted("a", held), makeDeleted("b", held), makeDeleted("c")), first[1]}},
		"one gone":                    {second: []inventory.Content{contentOf(widgets, makeDeleted("b", held, "x")), first[1]}, gone: 1, released: 1},
		"all gone":                    {second: first[1:], gone: 2, released: 2},
		"a finalizer taken off":       {second: []inventory.Content{contentOf(widgets, makeDeleted("a"), makeDeleted("b", held, "x")), first[1]}, released: 1},
		"a list that fails is no end": {second: []inventory.Content{failing(widgets, unavailable), first[1]}},
	} {
		movement := computeMovement(first, test.second)
		if movement.Gone[widgets.GroupResource()] != test.gone || movement.Released[held] != test.released {
			t.Errorf("%s: got %+v", name, movement)
		}
	}
	many, fewer := contentOf(configMaps, makeObject("a")), contentOf(configMaps, makeObject("b"))
	many.Count, fewer.Count = 9000, 8000
	if got := computeMovement([]inventory.Content{many}, []inventory.Content{fewer}); got.Gone[configMaps.GroupResource()] != 1 {
		t.Errorf("of many: got %+v", got)
	}
	fewer.Count = 9000
	if got := computeMovement([]inventory.Content{many}, []inventory.Content{fewer}); got.IsSeen() {
		t.Errorf("of as many: got %+v", got)
	}
}

func TestWhatConditionsProve(t *testing.T) {
	facts := makeDeath(withContent(contentOf(configMaps, makeObject("a"))))
	setStatus(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "SomeResourcesRemain",
		"Some resources are remaining: configmaps. has 3 resource instances, widgets.widgets.example.com has 1 resource instances")
	written := func(ago time.Duration, fields string) {
		facts.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Subresource: "status", Time: &metav1.Time{Time: now.Add(-ago)},
			FieldsV1: metav1.NewFieldsV1(fields),
		}}
	}
	const own = `{"f:status":{"f:conditions":{"k:{\"type\":\"NamespaceContentRemaining\"}":{}}}}`
	written(10*time.Second, own)
	if got := whatConditionsProve(facts); got != "10s ago 3 objects of configmaps were left, and now 1" {
		t.Errorf("got %q", got)
	}
	written(time.Minute, own)
	if got := whatConditionsProve(facts); got != "" {
		t.Errorf("of an old condition: got %q", got)
	}
	setStatus(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "SomeResourcesRemain",
		"Some resources are remaining: configmaps. has 1 resource instances")
	written(10*time.Second, own)
	if got := whatConditionsProve(facts); got != "10s ago what is left was counted anew, and was not what it had been" {
		t.Errorf("of a count that has changed: got %q", got)
	}
	setStatus(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, "FinalizerOwnerGone", "")
	if got := whatConditionsProve(facts); got != "" {
		t.Errorf("of a namespace that stands still: got %q", got)
	}
	setStatus(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionFalse, "", "")
	setStatus(facts, "NamespaceDeletionContentFailure", corev1.ConditionTrue, "ContentDeletionFailed", "port 4711")
	if got := whatConditionsProve(facts); got != "" {
		t.Errorf("of an error that is another one each time: got %q", got)
	}
	written(10*time.Second, `{"f:status":{"f:conditions":{"k:{\"type\":\"Other\"}":{}}}}`)
	if got := whatConditionsProve(facts); got != "" {
		t.Errorf("of another condition: got %q", got)
	}
}
