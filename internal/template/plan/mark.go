// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// A removal requires two records, which different clients write: the one on the Namespace, and the mark of the object
// itself. With only one, a client that can forge it could make the operator delete any object.

const (
	keptNotCreated = "the operator has not created it"
	keptRecreated  = "another client has created it again"
)

// checkMark returns why an object is kept that the Namespace records with a UID; empty if its metadata prove that the
// operator has written it for the template. The managedFields, or the label with the annotation, suffice: users of the
// namespace can remove some of these and fill the object, so that the operator can restore it only by replacing it.
func checkMark(tmpl string, namespace, recorded types.UID, live *metav1.ObjectMeta) string {
	isApplied := slices.ContainsFunc(live.ManagedFields, claimsOf(tmpl))
	isLabeled := live.Labels[v1alpha1.LabelManagedByTemplate] == tmpl &&
		live.Annotations[v1alpha1.AnnotationNamespaceUID] == string(namespace)
	switch {
	case recorded == "":
		return keptNotCreated
	case live.UID != recorded:
		return keptRecreated
	case !isApplied && !isLabeled:
		return fmt.Sprintf("it has neither field manager %q nor label %s=%s with annotation %s",
			template.FieldManager(tmpl), v1alpha1.LabelManagedByTemplate, tmpl, v1alpha1.AnnotationNamespaceUID)
	}
	return ""
}

// checkMetadataMark returns why a label or annotation is kept that the Namespace records; empty if the managedFields
// prove that the operator has set it for the template. The policy inject sets values that have no field manager: for
// them, the evidence is the list of templates that the Namespace has had since its creation, which is immutable.
func checkMetadataMark(
	tmpl *v1alpha1.NamespaceTemplate, recorded template.ObjectState, live *corev1.Namespace,
) string {
	manager, owner := template.FieldManager(tmpl.Name), ""
	for _, entry := range live.ManagedFields {
		if owner != manager && ownsMetadata(entry, recorded.Key()) {
			owner = entry.Manager
		}
	}
	switch {
	case template.MetadataHash(live, recorded.Key()) != recorded.Fields:
		return "another client has changed it"
	case owner == manager, owner == "" && template.HasSelected(tmpl, live):
		return ""
	case owner == "":
		return fmt.Sprintf("its managedFields do not contain %q", manager)
	}
	return fmt.Sprintf("field manager %q has set it", owner)
}

// ownsMetadata reports whether a field manager has set a label or annotation.
func ownsMetadata(entry metav1.ManagedFieldsEntry, key template.ObjectKey) bool {
	var fields struct {
		Metadata struct {
			Labels      map[string]any `json:"f:labels"`
			Annotations map[string]any `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	owned := fields.Metadata.Annotations
	if key.Kind == template.KindLabel {
		owned = fields.Metadata.Labels
	}
	_, ok := owned["f:"+key.Name]
	return ok
}
