// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi makes of controller-runtime's fake client one that treats a Namespace as an
// API server with the admission policies does, as far as packages initializer and agent write
// to it. It is for unit tests: what is enforced is tested on a real API server.
package fakeapi

import (
	"context"
	"encoding/json"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// User is who the client is.
const User = "system:serviceaccount:test:test"

// Wrap returns a client for which the fake one stores the objects.
func Wrap(fake client.WithWatch) client.WithWatch {
	return interceptor.NewClient(fake, interceptor.Funcs{
		Create: create, Patch: patch, SubResourcePatch: patchStatus, SubResourceUpdate: updateFinalize,
	})
}

// create answers reviews, which are not stored: everything is allowed.
func create(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
	switch review := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status.Allowed = true
		return nil
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo.Username = User
		return nil
	}
	return c.Create(ctx, object, opts...)
}

// patch refuses a JSON patch in the way of an API server where a test in it fails, and opens
// a Namespace whose list it has emptied, as policy complete does.
func patch(
	ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption,
) error {
	err := c.Patch(ctx, object, p, opts...)
	var status apierrors.APIStatus
	if err != nil && p.Type() == types.JSONPatchType && !errors.As(err, &status) {
		return apierrors.NewInvalid(namespaceKind(), object.GetName(), nil)
	}
	namespace, isNamespace := object.(*corev1.Namespace)
	if err != nil || !isNamespace {
		return err
	}
	if list, isListed := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]; isListed && list == "" {
		delete(namespace.Labels, v1alpha1.LabelInitializing)
		delete(namespace.Annotations, v1alpha1.AnnotationPendingInitializers)
		delete(namespace.Annotations, v1alpha1.AnnotationInitializationResult)
		return c.Update(ctx, namespace)
	}
	return nil
}

// patchStatus refuses a patch that is meant for a Namespace with another UID.
func patchStatus(
	ctx context.Context, c client.Client, subresource string, object client.Object, p client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	data, err := p.Data(object)
	if err != nil {
		return err
	}
	var meant metav1.PartialObjectMetadata
	_, isNamespace := object.(*corev1.Namespace)
	if isNamespace && json.Unmarshal(data, &meant) == nil && meant.UID != "" {
		var current corev1.Namespace
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), &current); err != nil {
			return err
		}
		if current.UID != meant.UID {
			return apierrors.NewInvalid(namespaceKind(), object.GetName(), nil)
		}
	}
	return c.SubResource(subresource).Patch(ctx, object, p, opts...)
}

// updateFinalize does what the fake client does not have: it writes spec.finalizers alone.
func updateFinalize(
	ctx context.Context, c client.Client, subresource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	namespace, isNamespace := object.(*corev1.Namespace)
	if !isNamespace || subresource != "finalize" {
		return c.SubResource(subresource).Update(ctx, object, opts...)
	}
	var current corev1.Namespace
	if err := c.Get(ctx, client.ObjectKeyFromObject(namespace), &current); err != nil {
		return err
	}
	if current.UID != namespace.UID || current.ResourceVersion != namespace.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, errors.New("it has changed"))
	}
	current.Spec.Finalizers = namespace.Spec.Finalizers
	if err := c.Update(ctx, &current); err != nil {
		return err
	}
	*namespace = current
	return nil
}

func namespaceKind() schema.GroupKind {
	return corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
}
