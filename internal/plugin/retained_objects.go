// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// retainedObjects returns the objects of a template, or of any if its name is empty, that remain in namespaces although
// the template no longer contains them. It ignores types that the user may not list. unread is what could not be listed
// for another reason.
func (s *session) retainedObjects(
	ctx context.Context, templateName string, namespaces ...corev1.Namespace,
) (retained []templates.RetainedObject, unread []string) {
	discoverer, client, err := s.contentClients()
	if err != nil {
		return nil, []string{err.Error()}
	}
	set, err := resourcetypes.Discover(ctx, discoverer)
	if err != nil {
		return nil, []string{err.Error()}
	}
	selector, scope := v1alpha1.LabelManagedByTemplate, ""
	if templateName != "" {
		selector += "=" + templateName
	}
	if len(namespaces) == 1 {
		scope = namespaces[0].Name
	}
	var writable []resourcetypes.Type
	for _, one := range resourcetypes.Distinct(set.Types) {
		if one.Can("list") && one.Can("patch") {
			writable = append(writable, one)
		}
	}
	contents := resourcetypes.ListSelected(ctx, client, scope, writable, selector, resourcetypes.Unlimited)
	for _, content := range contents {
		if content.Err != nil && !apierrors.IsForbidden(content.Err) {
			unread = append(unread, content.Err.Error())
		}
	}
	return templates.Retained(namespaces, contents), unread
}
