// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	deadText   = `failed calling webhook "guard.example.com": failed to call webhook: Post "https://guard.guards-system.svc:443/?timeout=10s": service "guard" not found`
	deniedText = `admission webhook "guard.example.com" denied the request: it is precious`
	policyText = `configmaps "a" is forbidden: ValidatingAdmissionPolicy 'precious' with binding 'all' denied request: it is precious`
)

func withWebhook(facts *Facts) {
	service := types.NamespacedName{Namespace: "guards-system", Name: "guard"}
	facts.Webhooks = []Webhook{{
		Name: "guard.example.com", Resource: string(SourceValidating), Configuration: "guards", Service: &service,
	}}
	facts.Backends = map[types.NamespacedName]Backend{service: {}}
}

func withPolicy(isPersonal, isGate bool) func(*Facts) {
	return func(facts *Facts) { facts.Policies = []Policy{{"precious", isPersonal, isGate}} }
}

func TestFindAdmission(t *testing.T) {
	left := withContent(contentOf(configMaps, makeObject("a")))
	object := []string{"configmaps/a"}
	refusedDelete := func(err error) func(*Facts) {
		return withTrials(Trial{VerbDelete, configMaps, "a", "", err})
	}
	dead, denied := internalError(deadText), answer(403, metav1.StatusReasonForbidden, deniedText)
	policy := answer(422, metav1.StatusReasonInvalid, policyText)
	heldBack := withContent(contentOf(widgets, makeDeleted("a", held)))
	refusedPatch := func(err error) func(*Facts) {
		return withTrials(Trial{VerbPatch, widgets, "a", held, err})
	}
	young := func(facts *Facts) {
		facts.Namespace.DeletionTimestamp.Time = now
		facts.Namespace.Status.Conditions = nil
	}
	runCases(t, map[string]diagnoseCase{
		"a dead webhook": {
			facts: makeDeath(left, refusedDelete(dead), withWebhook),
			want:  []want{{CauseAdmissionWebhookFailing, Proven, "Service guards-system/guard does not exist", "a dry run of the deletion", object}},
		},
		"a dead webhook, at once": {
			facts: makeDeath(left, refusedDelete(dead), young),
			want:  []want{{CauseAdmissionWebhookFailing, Proven, "does not answer", "failed to call webhook", object}},
		},
		"a dead webhook that only the namespace controller has met": {
			facts: makeDeath(left, withContentFailure("Failed to delete all resource types, 1 remaining: "+dead.Error()), withWebhook),
			want:  []want{{CauseAdmissionWebhookFailing, Proven, "guard.example.com", "ContentDeletionFailed since", nil}},
		},
		"a webhook that answers by now": {
			facts: makeDeath(left, refusedDelete(nil), withContentFailure(`deleting configmaps "a": `+dead.Error())),
			want:  []want{{CauseAdmissionWebhookFailing, Likely, "", "", nil}},
		},
		"a webhook that refuses us": {
			facts: makeDeath(left, refusedDelete(denied)),
			want:  []want{{CauseAdmissionRefused, Likely, "guard.example.com", "it is precious", object}},
		},
		"a webhook that refuses us, at once": {facts: makeDeath(left, refusedDelete(denied), young)},
		"a webhook that refuses everybody": {
			facts: makeDeath(left, refusedDelete(denied), withContentFailure(denied.Error())),
			want:  []want{{CauseAdmissionRefused, Proven, "", "condition NamespaceDeletionContentFailure=True", object}},
		},
		"a policy": {
			facts: makeDeath(left, refusedDelete(policy), withPolicy(false, false), young),
			want:  []want{{CauseAdmissionRefused, Proven, `"precious" refuses`, "it is precious", object}},
		},
		"a policy that asks who it is": {
			facts: makeDeath(left, refusedDelete(policy), withPolicy(true, false)),
			want:  []want{{CauseAdmissionRefused, Likely, "", "", object}},
		},
		"a policy that may not be read": {
			facts: makeDeath(left, refusedDelete(policy), withUnread(SourcePolicies)),
			want:  []want{{CauseAdmissionRefused, Likely, "", "", object}},
		},
		"the gate of this project keeps us out, and not the namespace controller": {
			facts: makeDeath(left, refusedDelete(policy), withPolicy(true, true), young),
		},
		"an admission plug-in": {
			facts: makeDeath(left, refusedDelete(answer(403, metav1.StatusReasonForbidden, `configmaps "a" is forbidden: not today`))),
			want:  []want{{CauseAdmissionRefused, Likely, "the API server refuses", "not today", object}},
		},
		"a webhook that does not let a finalizer go": {
			facts: makeDeath(heldBack, refusedPatch(dead), withWorkloads(makeOperator(1))),
			want:  []want{{CauseAdmissionWebhookFailing, Proven, "finalizer " + held + " cannot be taken off", "", []string{"widgets.widgets.example.com/a"}}},
		},
		"an object that is not valid any more": {
			facts: makeDeath(heldBack, withWorkloads(makeOperator(1)), refusedPatch(answer(422, metav1.StatusReasonInvalid,
				`Widget.widgets.example.com "a" is invalid: spec.size: Required value`))),
			want: []want{{CauseFinalizerRemovalInvalid, Proven, "not valid any more", "spec.size: Required value", nil}},
		},
		"another finalizer of the same object": {
			facts: makeDeath(withContent(contentOf(widgets, makeDeleted("a", held, "b.example.org/b"))),
				refusedPatch(answer(422, metav1.StatusReasonInvalid, `Widget.widgets.example.com "a" is invalid: spec.size: Required value`))),
			want: []want{
				{CauseFinalizerRemovalInvalid, Proven, held, "", nil},
				{CauseFinalizerOwnerGone, Likely, "b.example.org/b", "", nil},
			},
		},
	})
}

func TestIsPersonal(t *testing.T) {
	for expression, personal := range map[string]bool{
		`request.userInfo.username == "x"`: true, `request . userInfo.groups`: true, `authorizer.group("")`: true,
		`request.name != "x"`: false,
	} {
		conditions := []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
		if got := isPersonal(conditions); got != personal {
			t.Errorf("%q is personal: %t, want %t", expression, got, personal)
		}
	}
}
