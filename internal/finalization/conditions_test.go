// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

var (
	// before is the time when existing conditions were set.
	before = metav1.NewTime(now.Add(-time.Hour))
	// at is the time when conditions are computed.
	at = metav1.NewTime(now)
)

const (
	yes     = corev1.ConditionTrue
	no      = corev1.ConditionFalse
	unknown = corev1.ConditionUnknown
)

type conditions = []corev1.NamespaceCondition

func condition(
	conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason, message string, since metav1.Time,
) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: since,
	}
}

// allWell returns the conditions of an empty namespace, with exactly the messages of Kubernetes.
func allWell(since metav1.Time) conditions {
	return conditions{
		condition("NamespaceDeletionDiscoveryFailure", no, "ResourcesDiscovered",
			"All resources successfully discovered", since),
		condition("NamespaceDeletionGroupVersionParsingFailure", no, "ParsedGroupVersions",
			"All legacy kube types successfully parsed", since),
		condition("NamespaceDeletionContentFailure", no, "ContentDeleted",
			"All content successfully deleted, may be waiting on finalization", since),
		condition("NamespaceContentRemaining", no, "ContentRemoved", "All content successfully removed", since),
		condition("NamespaceFinalizersRemaining", no, "ContentHasNoFinalizers",
			"All content-preserving finalizers finished", since),
	}
}

// unknownContent returns the conditions of a namespace that could not be listed completely and in which
// no object is known to remain.
func unknownContent(message string) conditions {
	return conditions{
		condition("NamespaceDeletionContentFailure", unknown, "ContentUnknown", message, at),
		condition("NamespaceContentRemaining", unknown, "ContentUnknown", message, at),
		condition("NamespaceFinalizersRemaining", unknown, "ContentUnknown", message, at),
	}
}

const undiscovered = messageUnknownUndiscovered

// healthyExcept returns the conditions of an empty namespace, with the given conditions replaced.
func healthyExcept(others ...corev1.NamespaceCondition) conditions {
	result := allWell(at)
	for _, other := range others {
		for i := range result {
			if result[i].Type == other.Type {
				result[i] = other
			}
		}
	}
	return result
}

func TestComputeConditionsOfAReport(t *testing.T) {
	groupsFailed := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "metrics.k8s.io", Version: "v1beta1"}: errors.New("the server is currently unable to handle the request"),
	}}
	daemonSets, deployments := resourceType("apps.k8s.io", "v1", "daemonsets"), resourceType("apps.k8s.io", "v1", "deployments")

	tests := map[string]struct {
		report Report
		want   conditions
	}{
		"no remaining objects": {want: allWell(at)},
		"discovery failed for some groups": {
			report: Report{Resources: &ResourceSet{DiscoveryError: groupsFailed}},
			want: healthyExcept(append(unknownContent(undiscovered), condition("NamespaceDeletionDiscoveryFailure", yes, "DiscoveryFailed",
				"Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "+
					"metrics.k8s.io/v1beta1: the server is currently unable to handle the request", at))...),
		},
		"discovery failed for some groups, with a wrapped error": {
			report: Report{Resources: &ResourceSet{DiscoveryError: fmt.Errorf("failed: %w", groupsFailed)}},
			want: healthyExcept(append(unknownContent(undiscovered), condition("NamespaceDeletionDiscoveryFailure", yes, "DiscoveryFailed",
				"Discovery failed for some groups, 1 failing: failed: unable to retrieve the complete list of server APIs: "+
					"metrics.k8s.io/v1beta1: the server is currently unable to handle the request", at))...),
		},
		"discovery failed": {
			report: Report{Resources: &ResourceSet{DiscoveryError: errOutage}},
			want: healthyExcept(append(unknownContent(undiscovered), condition("NamespaceDeletionDiscoveryFailure", yes, "DiscoveryFailed",
				errOutage.Error(), at))...),
		},
		"a group version cannot be parsed": {
			report: Report{Resources: &ResourceSet{ParseError: errOutage}},
			want: healthyExcept(append(unknownContent(undiscovered), condition("NamespaceDeletionGroupVersionParsingFailure", yes, "GroupVersionParsingFailed",
				errOutage.Error(), at))...),
		},
		"some types could not be listed": {
			report: Report{
				Errors:  []error{errOutage},
				Unknown: []schema.GroupResource{deployments.GroupResource(), daemonSets.GroupResource()},
			},
			want: healthyExcept(append(
				unknownContent(fmt.Sprintf(messageUnknownUnlisted, "deployments.apps.k8s.io, daemonsets.apps.k8s.io")),
				condition("NamespaceDeletionContentFailure", yes, "ContentDeletionFailed",
					"Failed to delete all resource types, 1 remaining: "+errOutage.Error(), at))...),
		},
		"failed lists and remaining objects": {
			report: Report{
				Errors: []error{errOutage}, Unknown: []schema.GroupResource{deployments.GroupResource()},
				Remaining: []Remaining{{Type: podsType, Count: 1, Listed: 1, Finalizers: map[string]int{"kubedb": 1}}},
			},
			want: healthyExcept(
				condition("NamespaceDeletionContentFailure", yes, "ContentDeletionFailed",
					"Failed to delete all resource types, 1 remaining: "+errOutage.Error(), at),
				condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
					"Some resources are remaining: pods. has 1 resource instances", at),
				condition("NamespaceFinalizersRemaining", yes, "SomeFinalizersRemain",
					"Some content in the namespace has finalizers remaining: kubedb in 1 resource instances", at)),
		},
		"failures have priority over waiting": {
			report: Report{Errors: []error{errors.New("b"), errors.New("a")}, WaitReason: "later", Incomplete: true},
			want: healthyExcept(condition("NamespaceDeletionContentFailure", yes, "ContentDeletionFailed",
				"Failed to delete all resource types, 2 remaining: a, b", at)),
		},
		"waiting for pods": {
			report: Report{WaitReason: waitForPods, Incomplete: true},
			want: healthyExcept(condition("NamespaceDeletionContentFailure", no, "ContentDeletionOrdered",
				fmt.Sprintf(messageDeletionOrdered, waitForPods), at)),
		},
		"an incomplete pass": {
			report: Report{Incomplete: true},
			want: healthyExcept(condition("NamespaceDeletionContentFailure", no, "ContentDeletionOrdered",
				messageDeletionInProgress, at)),
		},
		"remaining objects": {
			report: Report{Remaining: []Remaining{{Type: deployments, Count: 5, Listed: 5}, {Type: daemonSets, Count: 5, Listed: 5}}},
			want: healthyExcept(condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
				"Some resources are remaining: daemonsets.apps.k8s.io has 5 resource instances, "+
					"deployments.apps.k8s.io has 5 resource instances", at)),
		},
		"remaining objects in the core group": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, Listed: 1}}},
			want: healthyExcept(condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
				"Some resources are remaining: pods. has 1 resource instances", at)),
		},
		"remaining objects with finalizers": {
			report: Report{Remaining: []Remaining{
				{Type: daemonSets, Count: 5, Listed: 5, Finalizers: map[string]int{"service-cache": 4, "kubedb": 5}},
				{Type: deployments, Count: 5, Listed: 5, Finalizers: map[string]int{"service-cache": 2}},
			}},
			want: healthyExcept(
				condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
					"Some resources are remaining: daemonsets.apps.k8s.io has 5 resource instances, "+
						"deployments.apps.k8s.io has 5 resource instances", at),
				condition("NamespaceFinalizersRemaining", yes, "SomeFinalizersRemain",
					"Some content in the namespace has finalizers remaining: kubedb in 5 resource instances, "+
						"service-cache in 6 resource instances", at)),
		},
		"not all objects were listed": {
			report: Report{Remaining: []Remaining{
				{Type: daemonSets, Count: 1000, Listed: 500, Finalizers: map[string]int{"kubedb": 500}},
				{Type: deployments, Count: 5, Listed: 5},
			}},
			want: healthyExcept(
				condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
					"Some resources are remaining: daemonsets.apps.k8s.io has 1000 resource instances, "+
						"deployments.apps.k8s.io has 5 resource instances", at),
				condition("NamespaceFinalizersRemaining", yes, "SomeFinalizersRemain",
					"Some content in the namespace has finalizers remaining: kubedb in 500 resource instances"+
						fmt.Sprintf(messageFinalizersOfSome, 505, 1005), at)),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.report.Resources == nil {
				test.report.Resources = &ResourceSet{}
			}
			NewWithT(t).Expect(ComputeConditions(terminating(), &test.report, at)).To(Equal(test.want))
		})
	}
}

func TestComputeConditionsOfANamespace(t *testing.T) {
	left := &Report{Resources: &ResourceSet{}, Remaining: []Remaining{{Type: podsType, Count: 1, Listed: 1}}}
	podLeft := func(since metav1.Time) corev1.NamespaceCondition {
		return condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
			"Some resources are remaining: pods. has 1 resource instances", since)
	}
	with := func(index int, replaced corev1.NamespaceCondition) conditions {
		result := allWell(before)
		result[index] = replaced
		return result
	}

	tests := map[string]struct {
		have   conditions
		report *Report
		want   conditions
	}{
		"no conditions":       {want: allWell(at)},
		"nothing has changed": {have: allWell(before)},
		"a new condition":     {have: allWell(before)[:4], want: conditions{allWell(at)[4]}},
		"unchanged, with a condition of another controller": {have: append(conditions{condition("corp.com/Ready", yes, "Up", "", before)}, allWell(before)...)},
		"new, with a condition of another controller":       {have: conditions{condition("corp.com/Ready", yes, "Up", "", before)}, want: allWell(at)},
		"existing conditions in another order":              {have: conditions{allWell(before)[3], allWell(before)[1], allWell(before)[0], allWell(before)[4], allWell(before)[2]}},
		"one condition turns True": {
			have: allWell(before), report: left, want: conditions{podLeft(at)},
		},
		"one condition turns False": {
			have: with(3, podLeft(before)), want: conditions{allWell(at)[3]},
		},
		"a changed message keeps the transition time": {
			have: with(3, condition("NamespaceContentRemaining", yes, "SomeResourcesRemain",
				"Some resources are remaining: pods. has 2 resource instances", before)),
			report: left, want: conditions{podLeft(before)},
		},
		"a changed reason keeps the transition time": {
			have: with(2, condition("NamespaceDeletionContentFailure", no, "ContentDeletionOrdered",
				"All content successfully deleted, may be waiting on finalization", before)),
			want: conditions{allWell(before)[2]},
		},
		"one condition is Unknown": {
			have: with(0, condition("NamespaceDeletionDiscoveryFailure", corev1.ConditionUnknown, "ResourcesDiscovered",
				"All resources successfully discovered", before)),
			want: conditions{allWell(at)[0]},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := terminating()
			namespace.Status.Conditions = test.have
			unchanged := namespace.DeepCopy()
			if test.report == nil {
				test.report = &Report{Resources: &ResourceSet{}}
			}
			g.Expect(ComputeConditions(namespace, test.report, at)).To(Equal(test.want))
			g.Expect(namespace).To(Equal(unchanged))
		})
	}
}

func TestComputeRefusal(t *testing.T) {
	g := NewWithT(t)
	namespace := terminating()
	refused := condition("NamespaceDeletionContentFailure", yes, "ContentDeletionFailed",
		fmt.Sprintf(messageDeletionRefused, "it is needed"), at)
	g.Expect(ComputeRefusal(namespace, "it is needed", at)).To(Equal(conditions{refused}))

	namespace.Status.Conditions = conditions{refused}
	g.Expect(ComputeRefusal(namespace, "it is needed", metav1.NewTime(now.Add(time.Hour)))).To(BeEmpty())
}

func TestTerminatingReasonOf(t *testing.T) {
	const agent = "example.com/agent"
	isTrue := func(conditionTypes ...corev1.NamespaceConditionType) []corev1.NamespaceCondition {
		var conditions []corev1.NamespaceCondition
		for _, conditionType := range conditionTypes {
			conditions = append(conditions, corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionTrue})
		}
		return conditions
	}
	isFalse := isTrue(corev1.NamespaceContentRemaining, corev1.NamespaceDeletionContentFailure)
	for i := range isFalse {
		isFalse[i].Status = corev1.ConditionFalse
	}
	own := []corev1.FinalizerName{agent, corev1.FinalizerKubernetes}
	tests := map[string]struct {
		finalizers []corev1.FinalizerName
		conditions []corev1.NamespaceCondition
		want       TerminatingReason
	}{
		"no conditions":                    {finalizers: own, want: TerminatingDeleting},
		"no remaining objects":             {finalizers: own, conditions: isFalse, want: TerminatingDeleting},
		"objects remain":                   {finalizers: own, conditions: isTrue(corev1.NamespaceContentRemaining), want: TerminatingObjectsRemain},
		"finalizers remain":                {finalizers: own, conditions: isTrue(corev1.NamespaceFinalizersRemaining), want: TerminatingObjectsRemain},
		"discovery fails":                  {finalizers: own, conditions: isTrue(corev1.NamespaceDeletionDiscoveryFailure), want: TerminatingFailing},
		"a group version cannot be parsed": {finalizers: own, conditions: isTrue(corev1.NamespaceDeletionGVParsingFailure), want: TerminatingFailing},
		"a deletion fails and objects remain": {
			finalizers: own,
			conditions: isTrue(corev1.NamespaceContentRemaining, corev1.NamespaceDeletionContentFailure), want: TerminatingFailing,
		},
		"only finalizers of other controllers": {
			finalizers: []corev1.FinalizerName{agent}, conditions: isTrue(corev1.NamespaceContentRemaining), want: TerminatingFinalizersRemain,
		},
		"no finalizers": {want: TerminatingFinalizersRemain},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{}
			namespace.Spec.Finalizers, namespace.Status.Conditions = test.finalizers, test.conditions
			g.Expect(TerminatingReasonOf(namespace, corev1.FinalizerKubernetes)).To(Equal(test.want))
			g.Expect(TerminatingReasons()).To(ContainElement(test.want))
		})
	}
}
