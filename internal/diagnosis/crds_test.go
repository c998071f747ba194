// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
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
		definition.Finalizers = []string{finalizerDefinition}
		definition.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: reason,
			Message: "CustomResource deletion is in progress",
		}}
	}
}

func TestFindDefinitions(t *testing.T) {
	broken := internalError(`conversion webhook for widgets.example.com/v1, Kind=Widget failed: Post ` +
		`"https://convert.shop.svc:443/?timeout=30s": service "convert" not found`)
	crd := []string{"customresourcedefinitions.apiextensions.k8s.io/widgets.widgets.example.com"}
	gone := func(facts *Facts) {
		facts.Backends = map[types.NamespacedName]Backend{{Namespace: shop, Name: "convert"}: {}}
	}
	runCases(t, map[string]diagnoseCase{
		"a conversion webhook that was in the namespace": {
			facts: makeDeath(withContent(failing(widgets, broken)), withDefinition(convertedBy(shop)), gone, withContentFailure(broken.Error())),
			want:  []want{{CauseConversionWebhookFailing, Proven, "was in this namespace and was deleted with it", "no caBundle", crd}},
		},
		"a conversion webhook of which only the condition tells": {
			facts: makeDeath(withContentFailure(broken.Error()), withUnread("widgets.widgets.example.com")),
			want:  []want{{CauseConversionWebhookFailing, Likely, "kind Widget", "conversion webhook for", nil}},
		},
		"a definition that is being deleted leaves the blame to a finalizer": {
			facts: makeDeath(withContent(contentOf(widgets, makeDeleted("a", held))), withDefinition(terminating("InstanceDeletionInProgress"))),
			want:  []want{{CauseFinalizerOwnerGone, Likely, held, "it waits for these objects", nil}},
		},
		"and to a policy": {
			facts: makeDeath(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionFailed")),
				withTrials(Trial{VerbDelete, widgets, "a", "", answer(422, metav1.StatusReasonInvalid, policyText)}), withPolicy(false, false)),
			want: []want{{CauseAdmissionRefused, Proven, "", "", nil}},
		},
		"a definition whose objects nothing else holds": {
			facts: makeDeath(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionInProgress"))),
			want:  []want{{CauseCRDTerminating, Likely, "is being deleted", "InstanceDeletionInProgress", []string{"widgets.widgets.example.com/a"}}},
		},
		"a definition whose objects cannot be deleted": {
			facts: makeDeath(withContent(contentOf(widgets, makeObject("a"))), withDefinition(terminating("InstanceDeletionFailed"))),
			want:  []want{{CauseCRDTerminating, Proven, "", "InstanceDeletionFailed", nil}},
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
			facts: makeDeath(withContent(failing(configMaps, unreadable)), withContentFailure(unreadable.Error())),
			want:  []want{{CauseStorageUnreadable, Proven, "configmaps cannot be read", "unable to transform key", nil}},
		},
		"a list that fails": {
			facts: makeDeath(withContent(failing(configMaps, internalError("it is a bad day")))),
			want:  []want{{CauseStorageUnreadable, Likely, "", "it is a bad day", nil}},
		},
		"time-outs and many objects": {
			facts: makeDeath(withContent(many), withContentFailure("the server was unable to return a response in the time allotted, but may still be processing the request")),
			want:  []want{{CauseTooManyObjects, Likely, "70000 objects of type configmaps", "time allotted", nil}},
		},
		"many objects that become fewer": {facts: makeDeath(withContent(many), withContentFailure("etcdserver: request timed out"), func(facts *Facts) {
			facts.Movement = computeMovement([]inventory.Content{many}, []inventory.Content{contentOf(configMaps)})
		})},
		"throttled": {
			facts: makeDeath(few, withContentFailure("the server has received too many requests and has asked us to try again later")),
			want:  []want{{CauseThrottled, Proven, "puts off", "too many requests", nil}},
		},
		"throttled ourselves": {
			facts: makeDeath(withContent(failing(configMaps, answer(429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")))),
			want:  []want{{CauseThrottled, Likely, "", "Too many requests", nil}},
		},
		"forbidden to the namespace controller": {
			facts: makeDeath(few, withContentFailure(`configmaps is forbidden: User "system:serviceaccount:kube-system:namespace-controller" cannot `+
				`deletecollection resource "configmaps" in API group "" in the namespace "shop"`)),
			want: []want{{CauseForbidden, Proven, "cannot deletecollection configmaps", "namespace-controller", nil}},
		},
	})
}
