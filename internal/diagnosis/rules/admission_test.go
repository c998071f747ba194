// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

const (
	deadText   = `failed calling webhook "guard.example.com": failed to call webhook: Post "https://guard.guards-system.svc:443/?timeout=10s": service "guard" not found`
	deniedText = `admission webhook "guard.example.com" denied the request: it is precious`
	policyText = `configmaps "a" is forbidden: ValidatingAdmissionPolicy 'precious' with binding 'all' denied request: it is precious`
)

func withWebhook(facts *diagnosis.Facts) {
	service := types.NamespacedName{Namespace: "guards-system", Name: "guard"}
	facts.Webhooks = []diagnosis.Webhook{{
		Name: "guard.example.com", Resource: string(diagnosis.SourceValidatingWebhooks), Configuration: "guards", Service: &service,
	}}
	facts.Backends = map[types.NamespacedName]diagnosis.Backend{service: {}}
}

func withPolicy(dependsOnUser, isGate bool) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.Policies = []diagnosis.Policy{{Name: "precious", DependsOnUser: dependsOnUser, IsGate: isGate}}
	}
}

func TestFindAdmission(t *testing.T) {
	left := withContent(contentOf(configMaps, makeObject("a")))
	object := []string{"configmaps/a"}
	refusedDelete := func(err error) func(*diagnosis.Facts) {
		return withDryRuns(makeDryRun(diagnosis.VerbDelete, configMaps, "a", "", err))
	}
	dead, denied := internalError(deadText), answer(403, metav1.StatusReasonForbidden, deniedText)
	policy := answer(422, metav1.StatusReasonInvalid, policyText)
	heldBack := withContent(contentOf(widgets, makeDeleted("a", held)))
	refusedPatch := func(err error) func(*diagnosis.Facts) {
		return withDryRuns(makeDryRun(diagnosis.VerbPatch, widgets, "a", held, err))
	}
	young := func(facts *diagnosis.Facts) {
		facts.Namespace.DeletionTimestamp.Time = now
		facts.Namespace.Status.Conditions = nil
	}
	runCases(t, map[string]diagnoseCase{
		"a failing webhook": {
			facts: makeTerminating(left, refusedDelete(dead), withWebhook),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankProven, "Service guards-system/guard does not exist", literal(evidenceDryRunDelete), object}},
		},
		"a failing webhook, before the progress deadline": {
			facts: makeTerminating(left, refusedDelete(dead), young),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankProven, "", "failed to call webhook", object}},
		},
		"a failing webhook that only the namespace controller has called": {
			facts: makeTerminating(left, withContentFailure("Failed to delete all resource types, 1 remaining: "+dead.Error()), withWebhook),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankProven, "guard.example.com", "ContentDeletionFailed since", nil}},
		},
		"a failing webhook that only a condition reports": {
			facts: makeTerminating(left, withContentFailure("Failed to delete all resource types, 1 remaining: "+dead.Error())),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankPublished, "guard.example.com", "ContentDeletionFailed since", nil}},
		},
		"a webhook that responds again": {
			facts: makeTerminating(left, refusedDelete(nil), withContentFailure(`deleting configmaps "a": `+dead.Error())),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankInferred, "", "", nil}},
		},
		"a webhook that denies the diagnosis": {
			facts: makeTerminating(left, refusedDelete(denied)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, "guard.example.com", "it is precious", object}},
		},
		"a webhook that denies the diagnosis, before the progress deadline": {facts: makeTerminating(left, refusedDelete(denied), young)},
		"a webhook that denies all users": {
			facts: makeTerminating(left, refusedDelete(denied), withContentFailure(denied.Error())),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, "", "condition NamespaceDeletionContentFailure=True", object}},
		},
		"a policy that denies a deletion": {
			facts: makeTerminating(left, refusedDelete(policy), withPolicy(false, false), young),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, `"precious"`, "it is precious", object}},
		},
		"a policy that depends on the user": {
			facts: makeTerminating(left, refusedDelete(policy), withPolicy(true, false)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, "", "", object}},
		},
		"a policy that cannot be read": {
			facts: makeTerminating(left, refusedDelete(policy), withUnread(diagnosis.SourcePolicies)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, "", "", object}},
		},
		"the gate policy denies requests by the diagnosis but not by the namespace controller": {
			facts: makeTerminating(left, refusedDelete(policy), withPolicy(true, true), young),
		},
		"an admission plugin that denies a deletion": {
			facts: makeTerminating(left, refusedDelete(answer(403, metav1.StatusReasonForbidden, `configmaps "a" is forbidden: not today`))),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, literal(messageServerDenies), "not today", object}},
		},
		"a failing webhook that prevents the removal of a finalizer": {
			facts: makeTerminating(heldBack, refusedPatch(dead), withWorkloads(makeOperator(1))),
			want:  []want{{diagnosis.CauseAdmissionWebhookFailing, diagnosis.RankProven, held, "", []string{"widgets.widgets.example.com/a"}}},
		},
		"an object that is no longer valid": {
			facts: makeTerminating(heldBack, withWorkloads(makeOperator(1)), refusedPatch(answer(422, metav1.StatusReasonInvalid,
				`Widget.widgets.example.com "a" is invalid: spec.size: Required value`))),
			want: []want{{diagnosis.CauseFinalizerRemovalInvalid, diagnosis.RankProven, held, "spec.size: Required value", nil}},
		},
		"an invalid object with two finalizers": {
			facts: makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held, "b.example.org/b"))),
				refusedPatch(answer(422, metav1.StatusReasonInvalid, `Widget.widgets.example.com "a" is invalid: spec.size: Required value`))),
			want: []want{
				{diagnosis.CauseFinalizerRemovalInvalid, diagnosis.RankProven, held, "", nil},
				{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "b.example.org/b", "", nil},
			},
		},
	})
}

func TestAdmissionRemedies(t *testing.T) {
	left := withContent(contentOf(configMaps, makeObject("a")))
	for name, test := range map[string]struct {
		facts *diagnosis.Facts
		want  []string
	}{
		"failing webhook": {
			makeTerminating(left, withContentFailure(deadText), withWebhook),
			[]string{"kubectl delete validatingwebhookconfiguration "},
		},
		"denying policy": {
			makeTerminating(left, withContentFailure(policyText)),
			[]string{
				"kubectl edit validatingadmissionpolicybinding all",
				"kubectl delete validatingadmissionpolicybinding all",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, want := range test.want {
				if !slices.ContainsFunc(Diagnose(test.facts).Findings[0].Remedies, func(remedy diagnosis.Remedy) bool {
					return remedy.Changes && strings.HasPrefix(remedy.Command, want)
				}) {
					t.Errorf("%q not found in %+v", want, Diagnose(test.facts).Findings[0].Remedies)
				}
			}
		})
	}
}
