// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
)

// limits admits new Namespaces up to the limits of their templates. Only the leader decides, and one
// decision at a time, so the number of Namespaces never exceeds a limit, and a limit that is not reached
// never refuses a Namespace.
//
// The cache is sufficient: each Namespace that was admitted here was in the cache, so one that is no
// longer there was deleted. What a previous leader has admitted is in the API server, so the first
// decision waits until the cache contains it.
type limits struct {
	mutex sync.Mutex
	// isCurrent is true after the cache contained what the API server returned.
	isCurrent bool
	// admitted has the names of the templates by Namespace.
	admitted map[types.UID]map[string]bool
}

// admit returns why a new Namespace is refused; empty if it is admitted. It returns errNotSynced if the
// cache is stale.
func (l *limits) admit(
	ctx context.Context, cached, live client.Reader, namespace *corev1.Namespace,
	templates []*v1alpha1.NamespaceTemplate,
) (string, error) {
	creator := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var limited []*v1alpha1.NamespaceTemplate
	for _, template := range templates {
		if template.Spec.MaxNamespacesPerUser != nil && !l.admitted[namespace.UID][template.Name] {
			limited = append(limited, template)
		}
	}
	if creator == "" || len(limited) == 0 {
		return "", nil
	}
	if err := l.waitForCache(ctx, cached, live); err != nil {
		return "", err
	}
	var namespaces corev1.NamespaceList
	if err := cached.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("failed to list namespaces: %w", err)
	}
	for _, template := range limited {
		limit := *template.Spec.MaxNamespacesPerUser
		if count := l.count(template, creator, namespaces.Items); count >= limit {
			return fmt.Sprintf("user %q has %d namespaces with template %q, which permits %d for each user: "+
				"delete a namespace before you create another one", creator, count, template.Name, limit), nil
		}
	}
	if l.admitted == nil {
		l.admitted = map[types.UID]map[string]bool{}
	}
	if l.admitted[namespace.UID] == nil {
		l.admitted[namespace.UID] = map[string]bool{}
	}
	for _, template := range limited {
		l.admitted[namespace.UID][template.Name] = true
	}
	return "", nil
}

// count returns the number of Namespaces of a user that a template selects: those that are admitted, and
// those that wait for their templates no longer.
func (l *limits) count(template *v1alpha1.NamespaceTemplate, creator string, namespaces []corev1.Namespace) int32 {
	var count int32
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.Annotations[v1alpha1.AnnotationRequestedBy] != creator || namespace.DeletionTimestamp != nil ||
			!Selects(template, namespace) {
			continue
		}
		isAdmitted := l.admitted[namespace.UID][template.Name] || !IsInitializedHere(namespace)
		if isAdmitted && initialization.ParseState(namespace).Phase != initialization.PhaseFailed {
			count++
		}
	}
	return count
}

// waitForCache returns errNotSynced until the cache contains all Namespaces that the API server returns
// and that wait for their templates no longer.
func (l *limits) waitForCache(ctx context.Context, cached, live client.Reader) error {
	if l.isCurrent {
		return nil
	}
	// The order matters: the cache must be at least as recent as the response.
	isWaitingLive := map[types.UID]bool{}
	if err := nscache.ListLive(ctx, live, func(namespace *corev1.Namespace) {
		isWaitingLive[namespace.UID] = IsInitializedHere(namespace)
	}); err != nil {
		return err
	}
	var got corev1.NamespaceList
	if err := cached.List(ctx, &got, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("failed to list namespaces: %w", err)
	}
	waiting := map[types.UID]bool{}
	for i := range got.Items {
		waiting[got.Items[i].UID] = IsInitializedHere(&got.Items[i])
	}
	for uid, isWaitingNow := range isWaitingLive {
		if isWaiting, ok := waiting[uid]; (!ok || isWaiting) && !isWaitingNow {
			return errNotSynced
		}
	}
	l.isCurrent = true
	return nil
}

func (l *limits) forget(namespace types.UID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.admitted, namespace)
}
