// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// Reason is why objects are not in a backup, as a phrase that follows "objects that".
type Reason string

const (
	// ReasonControlled is for what its controller makes anew, such as the Pods of a ReplicaSet.
	ReasonControlled Reason = "others control and make anew"
	// ReasonMade is for what the cluster makes in every namespace, or keeps for itself.
	ReasonMade Reason = "the cluster makes by itself"
	// ReasonEnded is for what has run to its end.
	ReasonEnded Reason = "have ended and would run again"
	// ReasonSecret is for Secrets, which are in a backup only on request.
	ReasonSecret Reason = "are Secrets"
)

// selection knows what is needed to tell which objects do not belong into a backup.
type selection struct {
	// uids are those of all objects that were found.
	uids map[types.UID]bool
	// services are the names of those whose endpoints the cluster looks after.
	services map[string]bool
	// unasked are kinds that nobody has asked for: what they control is made by them.
	unasked map[schema.GroupKind]bool
}

func newSelection(found []*unstructured.Unstructured, listed, known []inventory.Type) *selection {
	s := &selection{
		uids: map[types.UID]bool{}, services: map[string]bool{}, unasked: map[schema.GroupKind]bool{},
	}
	for _, object := range found {
		s.uids[object.GetUID()] = true
		selector, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
		if groupKind(object) == kindService && len(selector) > 0 {
			s.services[object.GetName()] = true
		}
	}
	for _, one := range known {
		isListed := slices.ContainsFunc(listed, func(other inventory.Type) bool {
			return other.GroupVersionResource == one.GroupVersionResource
		})
		if !isListed {
			s.unasked[one.GroupVersionKind().GroupKind()] = true
		}
	}
	return s
}

// whyLeftOut returns the reason for which an object does not belong into a backup, or "".
func (s *selection) whyLeftOut(object *unstructured.Unstructured) Reason {
	switch {
	case s.isControlled(object):
		return ReasonControlled
	case s.isMade(object):
		return ReasonMade
	case hasEnded(object):
		return ReasonEnded
	}
	return ""
}

// isControlled tells whether the controller of an object is in the namespace too. An
// object whose controller is elsewhere, or gone, or could not be read, stays.
func (s *selection) isControlled(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	groupVersion, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	return s.uids[owner.UID] || s.unasked[groupVersion.WithKind(owner.Kind).GroupKind()]
}

// isMade tells whether the cluster itself makes an object.
func (s *selection) isMade(object *unstructured.Unstructured) bool {
	switch groupKind(object) {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"},
		schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}:
		return true
	case kindConfigMap:
		return object.GetName() == "kube-root-ca.crt"
	case kindServiceAccount:
		return object.GetName() == "default" && isUntouched(object)
	case kindEndpoints:
		return s.services[object.GetName()]
	}
	return false
}

// isUntouched tells whether a ServiceAccount is as the cluster has made it.
func isUntouched(account *unstructured.Unstructured) bool {
	for _, field := range []string{"imagePullSecrets", "secrets", "automountServiceAccountToken"} {
		if _, isSet := account.Object[field]; isSet {
			return false
		}
	}
	return len(account.GetLabels()) == 0 && len(account.GetAnnotations()) == 0
}

// hasEnded tells whether an object is a Job or a Pod that has run to its end.
func hasEnded(object *unstructured.Unstructured) bool {
	switch groupKind(object) {
	case kindPod:
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed"
	case kindJob:
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return (fields["type"] == "Complete" || fields["type"] == "Failed") && fields["status"] == "True"
		})
	}
	return false
}
