// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// selection selects the objects of a backup.
type selection struct {
	// uids are the UIDs of all objects that were found.
	uids map[types.UID]bool
	// services are the names of Services whose Endpoints the cluster creates.
	services map[string]bool
	// notListed are kinds that were not listed. The objects that they control count as controlled.
	notListed map[schema.GroupKind]bool
}

func newSelection(found []*unstructured.Unstructured, listed, known []resourcetypes.Type) *selection {
	s := &selection{
		uids: map[types.UID]bool{}, services: map[string]bool{}, notListed: map[schema.GroupKind]bool{},
	}
	for _, object := range found {
		s.uids[object.GetUID()] = true
		selector, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
		if groupKind(object) == kindService && len(selector) > 0 {
			s.services[object.GetName()] = true
		}
	}
	for _, one := range known {
		isListed := slices.ContainsFunc(listed, func(other resourcetypes.Type) bool {
			return other.GroupVersionResource == one.GroupVersionResource
		})
		if !isListed {
			s.notListed[one.GroupVersionKind().GroupKind()] = true
		}
	}
	return s
}

// skipReason returns why an object is not in the backup, or "" if it is.
func (s *selection) skipReason(object *unstructured.Unstructured) Reason {
	switch {
	case s.isControlled(object):
		return ReasonControlled
	case s.isGenerated(object):
		return ReasonGenerated
	case isCompleted(object):
		return ReasonCompleted
	}
	return ""
}

// isControlled reports whether the controller of an object is in the namespace too. An object is
// kept if its controller no longer exists or could not be read.
func (s *selection) isControlled(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	groupVersion, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	return s.uids[owner.UID] || s.notListed[groupVersion.WithKind(owner.Kind).GroupKind()]
}

// isGenerated reports whether the cluster creates an object.
func (s *selection) isGenerated(object *unstructured.Unstructured) bool {
	switch groupKind(object) {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"},
		schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}:
		return true
	case kindConfigMap:
		return object.GetName() == "kube-root-ca.crt"
	case kindServiceAccount:
		return object.GetName() == "default" && isUnmodified(object)
	case kindEndpoints:
		return s.services[object.GetName()]
	}
	return false
}

// isUnmodified reports whether a ServiceAccount is unchanged since the cluster created it.
func isUnmodified(account *unstructured.Unstructured) bool {
	for _, field := range []string{"imagePullSecrets", "secrets", "automountServiceAccountToken"} {
		if _, ok := account.Object[field]; ok {
			return false
		}
	}
	return len(account.GetLabels()) == 0 && len(account.GetAnnotations()) == 0
}

// isCompleted reports whether an object is a Job or a Pod that has completed.
func isCompleted(object *unstructured.Unstructured) bool {
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
