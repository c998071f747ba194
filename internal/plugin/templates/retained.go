// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// RetainedObject is an object that a template has contained, and that remains: the operator has adopted it, or the
// template retains it.
type RetainedObject struct {
	Namespace string `json:"namespace"`
	Template  string `json:"template"`
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
}

// String returns the object without its Namespace.
func (o RetainedObject) String() string { return fmt.Sprintf("%s %s", o.Kind, o.Name) }

// Retained returns the objects with the label of a template that their Namespaces do not record, sorted. A Namespace
// that is not initialized does not record its objects yet.
func Retained(namespaces []corev1.Namespace, contents []resourcetypes.Content) []RetainedObject {
	uids, records := map[string]types.UID{}, map[string]template.Record{}
	for i := range namespaces {
		namespace := &namespaces[i]
		state, err := template.ParseRecord(namespace)
		if err == nil && !template.AwaitsTemplates(namespace) && namespace.DeletionTimestamp == nil {
			uids[namespace.Name], records[namespace.Name] = namespace.UID, state
		}
	}
	var retained []RetainedObject
	for _, content := range contents {
		kind := content.Type.GroupVersionKind().GroupKind()
		for i := range content.Objects {
			object := &content.Objects[i]
			uid, ok := uids[object.Namespace]
			isOwn := ok && types.UID(object.Annotations[v1alpha1.AnnotationNamespaceUID]) == uid
			key := template.ObjectKey{Kind: kind, Name: object.Name}
			if !isOwn || object.DeletionTimestamp != nil || records[object.Namespace].Other(key, "") != "" {
				continue
			}
			retained = append(retained, RetainedObject{
				Namespace: object.Namespace, Template: object.Labels[v1alpha1.LabelManagedByTemplate],
				Group: kind.Group, Kind: kind.Kind, Name: object.Name,
			})
		}
	}
	slices.SortFunc(retained, func(a, b RetainedObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name))
	})
	return retained
}
