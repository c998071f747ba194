// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func withTokens(tokens ...corev1.FinalizerName) func(*Facts) {
	return func(facts *Facts) { facts.Namespace.Spec.Finalizers = tokens }
}

func withRegisteredToken(token string) func(*Facts) {
	return func(facts *Facts) { facts.Tokens = []RegisteredToken{{token, "index.corp.com", "search"}} }
}

func TestFindOnNamespace(t *testing.T) {
	noLeases := func(facts *Facts) { facts.Leases = nil }
	staleLease := func(facts *Facts) {
		facts.Leases = []coordinationv1.Lease{makeLease("kube-system", "kube-controller-manager", "x", now.Add(-time.Hour))}
	}
	silent := func(facts *Facts) { facts.Namespace.Status.Conditions = nil }
	unnoticed := func(facts *Facts) {
		setStatus(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "SomeResourcesRemain",
			"Some resources are remaining: configmaps. has 1 resource instances")
	}
	deletedAgo := func(ago time.Duration) func(*Facts) {
		return func(facts *Facts) { facts.Namespace.DeletionTimestamp.Time = now.Add(-ago) }
	}
	object := []string{"namespaces/shop"}
	left := withContent(contentOf(configMaps, makeObject("a")))
	runCases(t, map[string]diagnoseCase{
		"a leftover token": {
			facts: makeDeath(withTokens("openshift.com/origin")),
			want:  []want{{CauseNamespaceFinalizer, Proven, "openshift.com/origin in its spec.finalizers", "[openshift.com/origin]", object}},
		},
		"a leftover token of an initializer": {
			facts: makeDeath(withTokens("openshift.com/origin"), withRegisteredToken("openshift.com/origin")),
			want: []want{{CauseNamespaceFinalizer, Proven,
				`it comes with initializer index.corp.com of configuration "search", whose agent has to release it`,
				`NamespaceInitializerConfiguration "search" has finalizer openshift.com/origin for initializer index.corp.com`,
				object}},
		},
		"a leftover token of nobody's, while others are registered": {
			facts: makeDeath(withTokens("openshift.com/origin"), withRegisteredToken("example.com/other")),
			want:  []want{{CauseNamespaceFinalizer, Proven, "has not been taken off for 9m55s", "[openshift.com/origin]", object}},
		},
		"a leftover token beside that of the namespace controller": {
			facts: makeDeath(withTokens("kubernetes", "openshift.com/origin")),
			want:  []want{{CauseNamespaceFinalizer, Likely, "", "", object}},
		},
		"an agent that has to wait as well": {
			facts: makeDeath(withTokens("kubernetes", "openshift.com/origin"), withContent(contentOf(configMaps, makeDeleted("a", held)))),
			want:  []want{{CauseFinalizerOwnerGone, Likely, held, "", nil}},
		},
		"an agent that has time": {facts: makeDeath(withTokens("openshift.com/origin"), func(facts *Facts) {
			facts.Namespace.Status.Conditions[3].LastTransitionTime.Time = now.Add(-time.Second)
		})},
		"a leftover finalizer on the Namespace": {
			facts: makeDeath(withTokens(), func(facts *Facts) { facts.Namespace.Finalizers = []string{"controller.cattle.io/namespace-auth"} }),
			want:  []want{{CauseNamespaceMetadataFinalizer, Proven, "controller.cattle.io/namespace-auth in its metadata.finalizers", "", object}},
		},
		"a finalizer on the Namespace whose turn has not come": {
			facts: makeDeath(withTokens("agent.example.com"), func(facts *Facts) { facts.Namespace.Finalizers = []string{"a.example.org/b"} }),
			want:  []want{{CauseNamespaceFinalizer, Proven, "agent.example.com", "", object}},
		},
		"no namespace controller": {
			facts: makeDeath(silent, staleLease, left),
			want:  []want{{CauseNamespaceControllerUnresponsive, Proven, "nobody works on the deletion", "renewed 60m ago", object}},
		},
		"no namespace controller that has a Lease": {
			facts: makeDeath(silent, noLeases, left),
			want:  []want{{CauseNamespaceControllerUnresponsive, Likely, "nobody works on the deletion", "there is no Lease kube-system/kube-controller-manager", object}},
		},
		"no namespace controller for 29 s": {facts: makeDeath(silent, noLeases, left, deletedAgo(29*time.Second))},
		"a namespace controller that is busy, or switched off": {
			facts: makeDeath(silent, left),
			want:  []want{{CauseNamespaceControllerUnresponsive, Likely, "", "renewed 1s ago", object}},
		},
		"a namespace controller of which nothing can be read": {
			facts: makeDeath(silent, noLeases, left, withUnread(SourceLeases)),
			want:  []want{{CauseNamespaceControllerUnresponsive, Likely, "", "could not be read", object}},
		},
		"a namespace controller that has stopped in the middle": {
			facts: makeDeath(left, staleLease),
			want:  []want{{CauseNamespaceControllerUnresponsive, Likely, "nobody goes on", "renewed 60m ago", object}},
		},
		"a namespace controller without a Lease that says why it does not get on": {
			facts: makeDeath(left, noLeases, withContentFailure(`deleting configmaps "a": configmaps "a" is forbidden: `+
				`User "system:serviceaccount:default:x" cannot delete resource "configmaps" in API group "" in the namespace "shop"`)),
			want: []want{{CauseForbidden, Proven, "cannot delete configmaps", "ContentDeletionFailed", nil}},
		},
		"something that nothing explains": {
			facts: makeDeath(left, withContentFailure("it is a bad day")),
			want:  []want{{CauseUnknown, Likely, "1 configmaps is left", "it is a bad day", []string{"configmaps/a"}}},
		},
		"something in a namespace whose token was released by force": {
			facts: makeDeath(left, withTokens("agent.example.com")),
			want: []want{{CauseUnknown, Likely, "1 configmaps is left in the namespace; the token kubernetes", "agent.example.com",
				[]string{"configmaps/a"}}},
		},
		"something that goes away": {facts: makeDeath(left, func(facts *Facts) {
			facts.Movement.Gone = map[schema.GroupResource]int{configMaps.GroupResource(): 1}
		})},
		"nothing that is left, which the namespace controller has not noticed yet": {facts: makeDeath(unnoticed)},
		"nothing that is left, which a namespace controller without a Lease has not noticed yet": {
			facts: makeDeath(unnoticed, noLeases),
		},
		"nothing that is left, which a namespace controller that has stopped does not notice": {
			facts: makeDeath(unnoticed, staleLease),
			want:  []want{{CauseNamespaceControllerUnresponsive, Likely, "nothing is left, which nobody has noticed", "renewed 60m ago", object}},
		},
		"nothing that is left, and nobody says so": {
			facts: makeDeath(),
			want:  []want{{CauseUnknown, Likely, "nothing tells what", "", nil}},
		},
	})
}
