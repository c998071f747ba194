// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func convertedBy(namespace string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: "convert"},
			}},
		}
	}
}

func terminating(reason string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.DeletionTimestamp = &metav1.Time{Time: deleted}
		definition.Finalizers = []string{"customresourcecleanup.apiextensions.k8s.io"}
		definition.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: reason,
			Message: "CustomResource deletion is in progress",
		}}
	}
}

func TestFindCRDs(t *testing.T) {
	broken := internalError(`conversion webhook for widgets.example.com/v1, Kind=Widget failed: Post ` +
		`"https://convert.shop.svc:443/?timeout=30s": service "convert" not found`)
	crd := []string{"customresourcedefinitions.apiextensions.k8s.io/widgets.widgets.example.com"}
	backendDeleted := func(facts *diagnosis.Facts) {
		facts.Backends = map[types.NamespacedName]diagnosis.Backend{{Namespace: shop, Name: "convert"}: {}}
	}
	runCases(t, map[string]diagnoseCase{
		"a conversion webhook that was in the namespace": {
			facts: makeTerminating(withContent(failing(widgets, broken)), withDefinition(convertedBy(shop)), backendDeleted, withContentFailure(broken.Error())),
			want:  []want{{diagnosis.CauseConversionWebhookFailing, diagnosis.RankProven, evidenceBackendDeleted, evidenceNoCABundle, crd}},
		},
		"a conversion webhook that only the condition names": {
			facts: makeTerminating(withContentFailure(broken.Error()), withUnread("widgets.widgets.example.com")),
			want:  []want{{diagnosis.CauseConversionWebhookFailing, diagnosis.RankInferred, "kind Widget", "conversion webhook for", nil}},
		},
		"a terminating CustomResourceDefinition whose objects have a finalizer": {
			facts: makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held))), withDefinition(terminating("InstanceDeletionInProgress"))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, held, evidenceCRDWaits, nil}},
		},
		"a terminating CustomResourceDefinition and a policy that denies deletions": {
			facts: makeTerminating(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionFailed")),
				withDryRuns(makeDryRun(diagnosis.VerbDelete, widgets, "a", "", answer(422, metav1.StatusReasonInvalid, policyText))), withPolicy(false, false)),
			want: []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, "", "", nil}},
		},
		"a terminating CustomResourceDefinition whose objects have no finalizers": {
			facts: makeTerminating(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionInProgress"))),
			want:  []want{{diagnosis.CauseCRDTerminating, diagnosis.RankInferred, `"widgets.widgets.example.com"`, "InstanceDeletionInProgress", []string{"widgets.widgets.example.com/a"}}},
		},
		"a terminating CustomResourceDefinition whose objects cannot be deleted": {
			facts: makeTerminating(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionFailed"))),
			want:  []want{{diagnosis.CauseCRDTerminating, diagnosis.RankProven, "", "InstanceDeletionFailed", nil}},
		},
	})
}

func TestFindStorage(t *testing.T) {
	many := contentOf(configMaps, makeObject("a"))
	many.Count = 70000
	unreadable := answer(500, metav1.StatusReasonStoreReadError, `failed to read one or more secrets from the storage: unable to `+
		`transform key "/registry/secrets/shop/a": no matching prefix found`)
	few := withContent(contentOf(configMaps, makeObject("a")))
	runCases(t, map[string]diagnoseCase{
		"stored data that cannot be decrypted": {
			facts: makeTerminating(withContent(failing(configMaps, unreadable)), withContentFailure(unreadable.Error())),
			want:  []want{{diagnosis.CauseStorageUnreadable, diagnosis.RankProven, "configmaps", "unable to transform key", nil}},
		},
		"a failed list request": {
			facts: makeTerminating(withContent(failing(configMaps, internalError("the disk is full")))),
			want:  []want{{diagnosis.CauseStorageUnreadable, diagnosis.RankInferred, "", "the disk is full", nil}},
		},
		"many objects and requests that time out": {
			facts: makeTerminating(withContent(many), withContentFailure("the server was unable to return a response in the time allotted, but may still be processing the request")),
			want:  []want{{diagnosis.CauseTooManyObjects, diagnosis.RankInferred, "70000 objects of type configmaps", "time allotted", nil}},
		},
		"many objects whose number is decreasing": {facts: makeTerminating(withContent(many), withContentFailure("etcdserver: request timed out"), func(facts *diagnosis.Facts) {
			facts.Progress.Deleted = map[schema.GroupResource]int{configMaps.GroupResource(): 69999}
		})},
		"a throttled namespace controller": {
			facts: makeTerminating(few, withContentFailure("the server has received too many requests and has asked us to try again later")),
			want:  []want{{diagnosis.CauseThrottled, diagnosis.RankPublished, literal(messageThrottled), "too many requests", nil}},
		},
		"a throttled diagnosis": {
			facts: makeTerminating(withContent(failing(configMaps, answer(429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")))),
			want:  []want{{diagnosis.CauseThrottled, diagnosis.RankInferred, "", "Too many requests", nil}},
		},
		"a namespace controller without a permission": {
			facts: makeTerminating(few, withContentFailure(`configmaps is forbidden: User "system:serviceaccount:kube-system:namespace-controller" cannot `+
				`deletecollection resource "configmaps" in API group "" in the namespace "shop"`)),
			want: []want{{diagnosis.CauseForbidden, diagnosis.RankPublished, "cannot deletecollection configmaps", "namespace-controller", nil}},
		},
	})
}
