// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func withNamespaceFinalizers(finalizers ...corev1.FinalizerName) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.Namespace.Spec.Finalizers = finalizers }
}

func withInitializerFinalizer(finalizer string, subjects ...v1alpha1.Subject) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.Initializers = []diagnosis.RegisteredInitializer{{
			Name: "index.corp.com", Finalizer: finalizer, Configuration: "search", Subjects: subjects,
		}}
	}
}

func TestFindNamespaceCauses(t *testing.T) {
	noLeases := func(facts *diagnosis.Facts) { facts.Leases = nil }
	staleLease := func(facts *diagnosis.Facts) {
		facts.Leases = []coordinationv1.Lease{makeLease("kube-system", "kube-controller-manager", "x", now.Add(-time.Hour))}
	}
	silent := func(facts *diagnosis.Facts) { facts.Namespace.Status.Conditions = nil }
	unnoticed := func(facts *diagnosis.Facts) {
		setStatus(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "SomeResourcesRemain",
			"Some resources are remaining: configmaps. has 1 resource instances")
	}
	deletedAgo := func(ago time.Duration) func(*diagnosis.Facts) {
		return func(facts *diagnosis.Facts) { facts.Namespace.DeletionTimestamp.Time = now.Add(-ago) }
	}
	object := []string{"namespaces/shop"}
	writable, policy := withNamespaceWrites(nil), answer(422, metav1.StatusReasonInvalid, policyText)
	left := withContent(contentOf(configMaps, makeObject("a")))
	runCases(t, map[string]diagnoseCase{
		"a remaining namespace finalizer": {
			facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin")),
			want:  []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankProven, "openshift.com/origin in its spec.finalizers", "[openshift.com/origin]", object}},
		},
		"a remaining namespace finalizer of an initializer": {
			facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin"), withInitializerFinalizer("openshift.com/origin")),
			want: []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankProven,
				fmt.Sprintf(messageInitializerFinalizer, "index.corp.com", "search"),
				`NamespaceInitializerConfiguration "search" has finalizer openshift.com/origin for initializer index.corp.com`,
				object}},
		},
		"a reason that the owner of a namespace finalizer published": {
			facts: makeTerminating(withNamespaceFinalizers("corp.example.com/backup"), func(facts *diagnosis.Facts) {
				setStatus(facts, "corp.example.com/backup", corev1.ConditionFalse, "Retrying", "s3: AccessDenied")
			}),
			want: []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankPublished,
				"condition corp.example.com/backup=False, Retrying: s3: AccessDenied", "s3: AccessDenied", object}},
		},
		"a namespace finalizer that no initializer registers": {
			facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin"), withInitializerFinalizer("example.com/other")),
			want:  []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankProven, "9m55s", "[openshift.com/origin]", object}},
		},
		"a namespace finalizer in addition to that of the namespace controller": {
			facts: makeTerminating(withNamespaceFinalizers("kubernetes", "openshift.com/origin")),
			want:  []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankInferred, "", "", object}},
		},
		"a namespace finalizer whose owner waits for the content to be deleted": {
			facts: makeTerminating(withNamespaceFinalizers("kubernetes", "openshift.com/origin"), withContent(contentOf(configMaps, makeDeleted("a", held)))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, held, "", nil}},
		},
		"a namespace finalizer within the progress deadline": {facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin"), func(facts *diagnosis.Facts) {
			facts.Namespace.Status.Conditions[3].LastTransitionTime.Time = now.Add(-time.Second)
		})},
		"a remaining entry of metadata.finalizers of the Namespace": {
			facts: makeTerminating(withNamespaceFinalizers(), func(facts *diagnosis.Facts) {
				facts.Namespace.Finalizers = []string{"controller.cattle.io/namespace-auth"}
			}),
			want: []want{{diagnosis.CauseNamespaceMetadataFinalizer, diagnosis.RankProven, "controller.cattle.io/namespace-auth in its metadata.finalizers", "", object}},
		},
		"an entry of metadata.finalizers while spec.finalizers is not empty": {
			facts: makeTerminating(withNamespaceFinalizers("agent.example.com"), func(facts *diagnosis.Facts) { facts.Namespace.Finalizers = []string{"a.example.org/b"} }),
			want:  []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankProven, "agent.example.com", "", object}},
		},
		"a namespace controller that is not running": {
			facts: makeTerminating(silent, staleLease, left),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, literal(messageNotProcessed), "renewed 60m ago", object}},
		},
		"a namespace controller without a Lease": {
			facts: makeTerminating(silent, noLeases, left, writable),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, literal(messageNotProcessed), fmt.Sprintf(evidenceNoLease, "kube-controller-manager"), object}},
		},
		"no namespace controller before the progress deadline": {facts: makeTerminating(silent, noLeases, left, deletedAgo(29*time.Second))},
		"a namespace controller that is busy or disabled": {
			facts: makeTerminating(silent, left, writable),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, "", "renewed 1s ago", object}},
		},
		"a namespace controller whose Lease cannot be read": {
			facts: makeTerminating(silent, noLeases, left, withUnread(diagnosis.SourceLeases), writable),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, "", evidenceLeasesUnread, object}},
		},
		"a namespace controller whose writes a policy can deny": {
			facts: makeTerminating(silent, left, writable, func(facts *diagnosis.Facts) { facts.UserDependent = []string{`webhook "w"`} }),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, `denied to its user by webhook "w"`, "", object}},
		},
		"a Namespace without conditions, and unknown whether it can be written": {
			facts: makeTerminating(silent, left),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, "1 configmaps still exists", "", nil}},
		},
		"a Namespace without conditions, without a Lease, and unknown whether it can be written": {
			facts: makeTerminating(silent, noLeases, left),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, "1 configmaps still exists", "", nil}},
		},
		"an empty Namespace of which only the status can be written": {
			facts: makeTerminating(silent, noLeases, withDryRuns(makeNamespaceWrite("", nil))),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, messageUnknown, "", nil}},
		},
		"a policy that denies writes to the Namespace": {
			facts: makeTerminating(silent, staleLease, withNamespaceWrites(policy), withPolicy(false, false)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, `finalizer kubernetes cannot be removed from namespaces "shop"`, literal(evidenceDryRunStatus), object}},
		},
		"a policy that denies writes to the status of the Namespace": {
			facts: makeTerminating(silent, noLeases, left, withDryRuns(makeNamespaceWrite("", policy)), withPolicy(true, false)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, literal(rejectedStatus), "it is precious", object}},
		},
		"a policy that denies writes to the Namespace, also to the operator": {
			facts: makeTerminating(silent, withNamespaceWrites(policy), withPolicy(false, false), withRejectedWrite(policyText, now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, "finalizer kubernetes", "Event WriteRejected", object}},
		},
		"a policy that denies writes to the operator, and unknown whether the user can write": {
			facts: makeTerminating(silent, withUnread(diagnosis.SourceDryRuns), withRejectedWrite(policyText, now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankPublished, `"precious" denies requests, so ` + rejectedWrite, "Event WriteRejected", object}},
		},
		"a policy that denies writes only to the operator": {
			facts: makeTerminating(silent, left, writable, withPolicy(true, false), withRejectedWrite(policyText, now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankPublished, `"precious"`, "Event WriteRejected", object}},
		},
		"a write of the operator that was rejected before the last progress": {
			facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin"), withRejectedWrite(policyText, deleted.Add(time.Second))),
			want:  []want{{diagnosis.CauseNamespaceFinalizer, diagnosis.RankProven, "", "", object}},
		},
		"a permission that the operator lacks": {
			facts: makeTerminating(silent, left, withRejectedWrite(`ServiceAccount "manager" cannot patch resource "namespaces/status"`, now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankPublished, "cannot patch resource", "Event WriteRejected", object}},
		},
		"an admission plugin that denies writes to the Namespace, also to the operator": {
			facts: makeTerminating(silent, withNamespaceWrites(answer(403, metav1.StatusReasonForbidden, "not today")), withRejectedWrite("not today", now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankPublished, literal(messageServerDenies), "Event WriteRejected", object}},
		},
		"a webhook that denies writes to the Namespace, also to the operator": {
			facts: makeTerminating(silent, withNamespaceWrites(answer(403, metav1.StatusReasonForbidden, deniedText)), withRejectedWrite(deniedText, now)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, "guard.example.com", "Event WriteRejected", object}},
		},
		"a failing webhook for writes of the operator": {
			facts: makeTerminating(silent, withRejectedWrite(deadText, now)),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankPublished, rejectedWrite, "Event WriteRejected", object}},
		},
		"a webhook that denies writes to the Namespace": {
			facts: makeTerminating(silent, withNamespaceWrites(answer(403, metav1.StatusReasonForbidden, deniedText))),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, "guard.example.com", "it is precious", object}},
		},
		"a failing webhook for writes to the Namespace": {
			facts: makeTerminating(silent, withNamespaceWrites(internalError(deadText))),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankProven, "finalizer kubernetes", "", object}},
		},
		"an unexplained failure of writes to the Namespace": {
			facts: makeTerminating(silent, noLeases, withNamespaceWrites(internalError("the disk is full"))),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, messageUnknown, "the disk is full", nil}},
		},
		"a policy that denies the removal of a namespace finalizer": {
			facts: makeTerminating(withNamespaceFinalizers("openshift.com/origin"), withDryRuns(makeNamespaceWrite("openshift.com/origin", policy)), withPolicy(false, false)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, "finalizer openshift.com/origin", "", object}},
		},
		"a namespace controller that stopped during finalization": {
			facts: makeTerminating(left, staleLease),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, messageObjectsRemain, "renewed 60m ago", object}},
		},
		"a namespace controller without a Lease that reports a failure": {
			facts: makeTerminating(left, noLeases, withContentFailure(`deleting configmaps "a": configmaps "a" is forbidden: `+
				`User "system:serviceaccount:default:x" cannot delete resource "configmaps" in API group "" in the namespace "shop"`)),
			want: []want{{diagnosis.CauseForbidden, diagnosis.RankPublished, "cannot delete configmaps", "ContentDeletionFailed", nil}},
		},
		"an unexplained failure": {
			facts: makeTerminating(left, withContentFailure("the disk is full")),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, "1 configmaps still exists", "the disk is full", []string{"configmaps/a"}}},
		},
		"an object in a namespace whose kubernetes finalizer was removed": {
			facts: makeTerminating(left, withNamespaceFinalizers("agent.example.com")),
			want: []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, "1 configmaps still exists" + literal(messageUnprotected), "agent.example.com",
				[]string{"configmaps/a"}}},
		},
		"an object that is deleted between two lists": {facts: makeTerminating(left, func(facts *diagnosis.Facts) {
			facts.Progress.Deleted = map[schema.GroupResource]int{configMaps.GroupResource(): 1}
		})},
		"an empty namespace that the namespace controller has not observed yet": {facts: makeTerminating(unnoticed)},
		"an empty namespace that a namespace controller without a Lease has not observed yet": {
			facts: makeTerminating(unnoticed, noLeases),
		},
		"an empty namespace that a stopped namespace controller does not observe": {
			facts: makeTerminating(unnoticed, staleLease),
			want:  []want{{diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, messageEmptyUnnoticed, "renewed 60m ago", object}},
		},
		"an empty namespace that makes no progress": {
			facts: makeTerminating(),
			want:  []want{{diagnosis.CauseUnknown, diagnosis.RankInferred, messageUnknown, "", nil}},
		},
	})
}
