// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// Limits admits new Namespaces up to the limits of the templates with which they were created. Only the leader
// decides, and one decision at a time, so the number of Namespaces never exceeds a limit, and a limit that is
// not reached never refuses a Namespace. Later changes of labels, which other users can make, do not matter.
//
// The cache is sufficient: each Namespace that was admitted here was in the cache, so one that is no
// longer there was deleted. What a previous leader has admitted is in the API server, so the first
// decision waits until the cache contains it.
type Limits struct {
	// Namespaces reads Namespaces from the cache, and Live from the API server.
	Namespaces, Live client.Reader

	// mutex is locked during a decision.
	mutex sync.Mutex
	cache nscache.Check
	// admitted has the names of the templates whose limits have admitted Namespaces, by UID.
	admitted map[types.UID]sets.Set[string]
}

// admit returns the result for a new Namespace that is refused; nil if it is admitted. It returns
// template.ErrNotSynced if the cache is stale.
func (l *Limits) admit(
	ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) (*metav1.Status, error) {
	creator := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	if creator == "" || len(plan.LimitsOf(namespace, templates, nil)) == 0 {
		return nil, nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	limited := plan.LimitsOf(namespace, templates, l.admitted[namespace.UID])
	if len(limited) == 0 {
		return nil, nil
	}
	isCurrent, err := l.cache.IsCurrent(ctx, l.Namespaces, l.Live, isAdmitted, &corev1.NamespaceList{})
	if err != nil {
		return nil, err
	}
	if !isCurrent {
		return nil, template.ErrNotSynced
	}
	var namespaces corev1.NamespaceList
	if err := l.Namespaces.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("failed to list namespaces: %w", err)
	}
	if refusal := plan.CheckLimits(limited, creator, namespaces.Items, l.admitted); refusal != nil {
		return refusal, nil
	}
	// What was admitted is forgotten with the Namespace.
	admitted := map[types.UID]sets.Set[string]{namespace.UID: sets.New[string]()}
	for i := range namespaces.Items {
		if uid := namespaces.Items[i].UID; l.admitted[uid] != nil {
			admitted[uid] = l.admitted[uid]
		}
	}
	for _, tmpl := range limited {
		admitted[namespace.UID].Insert(tmpl.Name)
	}
	l.admitted = admitted
	return nil, nil
}

// isAdmitted returns 1 for a Namespace that waits for its templates no longer, and 0 for others.
func isAdmitted(object client.Object) int64 {
	if namespace, ok := object.(*corev1.Namespace); ok && template.AwaitsTemplates(namespace) {
		return 0
	}
	return 1
}
