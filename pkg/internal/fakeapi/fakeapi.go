// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi extends controller-runtime's fake client for unit tests of packages initializer
// and finalizer. It implements the behavior of the API server and the admission policies that these
// packages depend on. The policies themselves are tested with a real API server.
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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// User is the identity of the client.
const User = "system:serviceaccount:test:test"

// Wrap returns a client that stores its objects in the fake client.
func Wrap(fake client.WithWatch) client.WithWatch {
	return interceptor.NewClient(fake, interceptor.Funcs{
		Create: create, Get: get, Patch: patch, SubResourcePatch: patchStatus, SubResourceUpdate: updateFinalize,
	})
}

// placeholder is the finalizer of terminating Namespaces in the fake client, which rejects terminating
// objects without finalizers. Unlike the API server, it does not take spec.finalizers into account.
const placeholder = "fake.nslifecycle.dev/placeholder"

func removePlaceholder(namespace *corev1.Namespace) {
	if controllerutil.RemoveFinalizer(namespace, placeholder) && len(namespace.Finalizers) == 0 {
		namespace.Finalizers = nil
	}
}

func get(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	err := c.Get(ctx, key, object, opts...)
	if namespace, ok := object.(*corev1.Namespace); ok {
		removePlaceholder(namespace)
	}
	return err
}

// create responds to access reviews without storing them. Every request is allowed.
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

// patch returns the same error as an API server if a test operation in a JSON patch fails. Like the
// "complete" policy, it completes the initialization of a Namespace whose pending list is empty.
func patch(
	ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption,
) error {
	err := c.Patch(ctx, object, p, opts...)
	var status apierrors.APIStatus
	if err != nil && p.Type() == types.JSONPatchType && !errors.As(err, &status) {
		return apierrors.NewInvalid(namespaceKind(), object.GetName(), nil)
	}
	namespace, ok := object.(*corev1.Namespace)
	if err != nil || !ok {
		return err
	}
	if list, ok := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]; ok && list == "" {
		delete(namespace.Labels, v1alpha1.LabelInitializing)
		delete(namespace.Annotations, v1alpha1.AnnotationPendingInitializers)
		delete(namespace.Annotations, v1alpha1.AnnotationInitializationResult)
		return c.Update(ctx, namespace)
	}
	return nil
}

// patchStatus rejects a patch whose UID differs from the Namespace's UID.
func patchStatus(
	ctx context.Context, c client.Client, subresource string, object client.Object, p client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	data, err := p.Data(object)
	if err != nil {
		return err
	}
	var patched metav1.PartialObjectMetadata
	_, ok := object.(*corev1.Namespace)
	if ok && json.Unmarshal(data, &patched) == nil && patched.UID != "" {
		var current corev1.Namespace
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), &current); err != nil {
			return err
		}
		if current.UID != patched.UID {
			return apierrors.NewInvalid(namespaceKind(), object.GetName(), nil)
		}
	}
	return c.SubResource(subresource).Patch(ctx, object, p, opts...)
}

// updateFinalize implements the finalize subresource, which the fake client lacks. It updates only
// spec.finalizers.
func updateFinalize(
	ctx context.Context, c client.Client, subresource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	namespace, ok := object.(*corev1.Namespace)
	if !ok || subresource != "finalize" {
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
	removePlaceholder(namespace)
	return nil
}

func namespaceKind() schema.GroupKind {
	return corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
}
