// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// limits admits new Namespaces up to the limits of the templates with which they were created. Only the leader
// decides, and one decision at a time, so the number of Namespaces never exceeds a limit, and a limit that is
// not reached never refuses a Namespace. Later changes of labels, which other users can make, do not matter.
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
	templates []v1alpha1.NamespaceTemplate,
) (string, error) {
	creator := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	l.mutex.Lock()
	defer l.mutex.Unlock()
	limited := l.limited(namespace, templates)
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
		if used := l.count(template, creator, namespaces.Items); used.total >= *template.Spec.MaxNamespacesPerUser {
			return used.refusal(template, creator), nil
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

// limited returns the templates whose limits a new Namespace could exceed, sorted by name.
func (l *limits) limited(
	namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) []*v1alpha1.NamespaceTemplate {
	var limited []*v1alpha1.NamespaceTemplate
	for i := range templates {
		template := &templates[i]
		if template.Spec.MaxNamespacesPerUser != nil && template.DeletionTimestamp == nil &&
			hasSelected(template, namespace) && !l.admitted[namespace.UID][template.Name] {
			limited = append(limited, template)
		}
	}
	slices.SortFunc(limited, func(a, b *v1alpha1.NamespaceTemplate) int { return cmp.Compare(a.Name, b.Name) })
	return limited
}

// usage is the number of Namespaces that a user has created with a template.
type usage struct {
	total int32
	// terminating are being deleted: their Pods can still run.
	terminating int32
	// protected have failed, but are protected from deletion.
	protected int32
}

// count counts the Namespaces that a user has created with a template. Those that were initialized count until
// they no longer exist. The others, to which the user could never write, count while they wait for initializers,
// after they are admitted, and if they have failed but are not deleted.
func (l *limits) count(template *v1alpha1.NamespaceTemplate, creator string, namespaces []corev1.Namespace) usage {
	var used usage
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.Annotations[v1alpha1.AnnotationRequestedBy] != creator || !hasSelected(template, namespace) {
			continue
		}
		isTerminating := namespace.DeletionTimestamp != nil
		switch phase := initialization.ParseState(namespace).Phase; {
		case phase == initialization.PhaseCompleted && isTerminating:
			used.terminating++
		case phase == initialization.PhaseCompleted:
		case isTerminating:
			continue
		case phase == initialization.PhaseFailed && protection.IsProtected(namespace):
			used.protected++
		case phase == initialization.PhaseFailed || IsInitializedHere(namespace) && !l.admitted[namespace.UID][template.Name]:
			continue
		}
		used.total++
	}
	return used
}

// refusal returns the message for a Namespace that exceeds the limit of a template.
func (u usage) refusal(template *v1alpha1.NamespaceTemplate, creator string) string {
	message := fmt.Sprintf("user %q has %d namespaces with template %q, which permits %d for each user",
		creator, u.total, template.Name, *template.Spec.MaxNamespacesPerUser)
	if u.protected > 0 {
		message += fmt.Sprintf(", %d of them failed and protected from deletion", u.protected)
	}
	if u.terminating > 0 {
		return message + fmt.Sprintf(", %d of them being deleted: wait for the deletion before you create another one",
			u.terminating)
	}
	return message + ": delete a namespace before you create another one"
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
