// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// selection selects the objects of a backup.
type selection struct {
	// uids are the UIDs of all objects that were found.
	uids sets.Set[types.UID]
	// services are the names of Services whose Endpoints the cluster creates.
	services sets.Set[string]
	// notListed are kinds that were not listed. An object whose controller is of such a kind is
	// treated as controlled.
	notListed sets.Set[schema.GroupKind]
}

func newSelection(found []*unstructured.Unstructured, listed, known []resourcetypes.Type) *selection {
	s := &selection{
		uids: sets.New[types.UID](), services: sets.New[string](), notListed: sets.New[schema.GroupKind](),
	}
	for _, object := range found {
		s.uids.Insert(object.GetUID())
		if groupKind(object).String() == "Service" && len(mapAt(object.Object, "spec", "selector")) > 0 {
			s.services.Insert(object.GetName())
		}
	}
	for _, one := range known {
		s.notListed.Insert(one.GroupVersionKind().GroupKind())
	}
	for _, one := range listed {
		s.notListed.Delete(one.GroupVersionKind().GroupKind())
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

// isControlled reports whether the controller of an object is also in the namespace. If the
// controller no longer exists or could not be read, the backup includes the object.
func (s *selection) isControlled(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	if groupKind(object).String() == "PersistentVolumeClaim" && owner.Kind != "Pod" {
		// Users change the size and the labels of the claims of a StatefulSet, which adopts a restored claim. A Pod rejects a
		// restored claim for its ephemeral volume.
		return false
	}
	return s.uids.Has(owner.UID) ||
		s.notListed.Has(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
}

// isGenerated reports whether the cluster creates an object by itself.
func (s *selection) isGenerated(object *unstructured.Unstructured) bool {
	switch groupKind(object).String() {
	case "Event", "Event.events.k8s.io", "Lease.coordination.k8s.io", "PodCertificateRequest.certificates.k8s.io":
		return true
	case "ConfigMap":
		return object.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return object.GetName() == "default" && isUnmodified(object)
	case "Endpoints":
		return s.services.Has(object.GetName())
	}
	return false
}

// isUnmodified reports whether a ServiceAccount has not been changed since the cluster created it.
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
	switch groupKind(object).String() {
	case "Pod":
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed"
	case "Job.batch":
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return (fields["type"] == "Complete" || fields["type"] == "Failed") && fields["status"] == "True"
		})
	}
	return false
}
