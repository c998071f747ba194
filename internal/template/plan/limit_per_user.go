// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// LimitsOf returns the templates whose limits a new Namespace could exceed, sorted by name. Those that have admitted it
// are given by name.
func LimitsOf(
	namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate, admitted sets.Set[string],
) []*v1alpha1.NamespaceTemplate {
	var limited []*v1alpha1.NamespaceTemplate
	for i := range templates {
		tmpl := &templates[i]
		if tmpl.Spec.MaxNamespacesPerUser != nil && tmpl.DeletionTimestamp == nil &&
			template.HasSelected(tmpl, namespace) && !admitted.Has(tmpl.Name) {
			limited = append(limited, tmpl)
		}
	}
	slices.SortFunc(limited, func(a, b *v1alpha1.NamespaceTemplate) int { return cmp.Compare(a.Name, b.Name) })
	return limited
}

// CheckLimits returns the result for a new Namespace of a user that would exceed the limit of a template; nil if it
// exceeds none. The names of the templates that have admitted a Namespace are given by its UID.
func CheckLimits(
	limited []*v1alpha1.NamespaceTemplate, creator string, namespaces []corev1.Namespace,
	admitted map[types.UID]sets.Set[string],
) *metav1.Status {
	for _, tmpl := range limited {
		if used := usageOf(tmpl, creator, namespaces, admitted); used.Total >= *tmpl.Spec.MaxNamespacesPerUser {
			return &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: used.Refusal(tmpl, creator),
			}
		}
	}
	return nil
}

// Usage is the number of Namespaces that a user has created with a template.
type Usage struct {
	Total int32
	// Terminating are being deleted: their Pods can still run.
	Terminating int32
	// Protected have failed, but are protected from deletion.
	Protected int32
}

// usageOf counts the Namespaces that a user has created with a template. Those that were initialized count until
// they no longer exist. The others, to which the user could never write, count while they wait for initializers,
// after they are admitted, and if they have failed but are not deleted.
func usageOf(
	tmpl *v1alpha1.NamespaceTemplate, creator string, namespaces []corev1.Namespace,
	admitted map[types.UID]sets.Set[string],
) Usage {
	var used Usage
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.Annotations[v1alpha1.AnnotationRequestedBy] != creator || !template.HasSelected(tmpl, namespace) {
			continue
		}
		isTerminating := namespace.DeletionTimestamp != nil
		switch phase := initialization.ParseState(namespace).Phase; {
		case phase == initialization.PhaseInitialized && isTerminating:
			used.Terminating++
		case phase == initialization.PhaseInitialized:
		case isTerminating:
			continue
		case phase == initialization.PhaseFailed && nsobject.IsProtected(namespace):
			used.Protected++
		case phase == initialization.PhaseFailed:
			continue
		case template.AwaitsTemplates(namespace) && !admitted[namespace.UID].Has(tmpl.Name):
			continue
		}
		used.Total++
	}
	return used
}

// Refusal returns the message for a Namespace that exceeds the limit of a template.
func (u Usage) Refusal(tmpl *v1alpha1.NamespaceTemplate, creator string) string {
	message := fmt.Sprintf("user %q has %d namespaces with template %q, which permits %d for each user",
		creator, u.Total, tmpl.Name, *tmpl.Spec.MaxNamespacesPerUser)
	if u.Protected > 0 {
		message += fmt.Sprintf(", %d of them failed and protected from deletion", u.Protected)
	}
	if u.Terminating > 0 {
		return message + fmt.Sprintf(", %d of them being deleted: wait for the deletion before you create another one",
			u.Terminating)
	}
	return message + ": delete a namespace before you create another one"
}
