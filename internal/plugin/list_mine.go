// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/createdlist"
)

// maxParallelReads is the maximum number of recorded namespaces that are read in parallel.
const maxParallelReads = 8

// listMine returns the Namespaces that the user has created and a label selector selects, sorted by name. If the user
// cannot list namespaces, only recorded ones are known.
func (s *session) listMine(ctx context.Context, selector string) ([]corev1.Namespace, error) {
	user, err := s.userName(ctx)
	if err != nil {
		return nil, err
	}
	// Problems of the record concern only some namespaces.
	var recorded []createdlist.Namespace
	list, err := s.createdList(user)
	if err == nil {
		recorded, err = list.Namespaces()
	}
	if err != nil {
		s.warnf("%v", err)
	}
	var namespaces []corev1.Namespace
	all, err := s.listNamespaces(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case err == nil:
		namespaces = all.Items
	case apierrors.IsForbidden(err):
		printf(s.ErrOut, "User %q cannot list namespaces: only those that %s has created on this computer are known.",
			user, displayName)
		if namespaces, err = s.readRecorded(ctx, list, recorded, selector); err != nil {
			s.warnf("%v", err)
		}
		err = ctx.Err()
	}
	return slices.DeleteFunc(namespaces, func(namespace corev1.Namespace) bool {
		return !isCreatedBy(&namespace, user, recorded)
	}), err
}

// readRecorded returns the recorded Namespaces that a label selector selects. It removes those from the record that no
// longer exist.
func (s *session) readRecorded(
	ctx context.Context, list *createdlist.List, recorded []createdlist.Namespace, selector string,
) ([]corev1.Namespace, error) {
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	client, err := s.namespaces()
	if err != nil {
		return nil, err
	}
	found := make([]*corev1.Namespace, len(recorded))
	errs := make([]error, len(recorded))
	workqueue.ParallelizeUntil(ctx, maxParallelReads, len(recorded), func(i int) {
		namespace, err := client.Get(ctx, recorded[i].Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			errs[i] = list.Remove(recorded[i])
		case err != nil:
			errs[i] = fmt.Errorf("failed to get namespace %q: %w", recorded[i].Name, err)
		case selected.Matches(labels.Set(namespace.Labels)):
			found[i] = namespace
		}
	})
	var namespaces []corev1.Namespace
	for _, namespace := range found {
		if namespace != nil {
			namespaces = append(namespaces, *namespace)
		}
	}
	return namespaces, errors.Join(append(errs, ctx.Err())...)
}

// isCreatedBy reports whether a user has created a Namespace. The record decides if no annotation contains the creator,
// because nslifecycle or initializers and templates did not exist.
func isCreatedBy(namespace *corev1.Namespace, user string, recorded []createdlist.Namespace) bool {
	if creator, ok := namespace.Annotations[v1alpha1.AnnotationRequestedBy]; ok {
		return creator == user
	}
	return slices.Contains(recorded, createdlist.Namespace{Name: namespace.Name, UID: namespace.UID})
}
