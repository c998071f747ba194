// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
)

var (
	// now is the initial time of the fake clocks.
	now = policytest.Now

	errOutage    = policytest.ErrUnavailable
	errForbidden = policytest.ErrForbidden
	errInUse     = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x",
		errors.New(`admission webhook "usages.example.com" denied the request: in use`))
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x", errors.New("the object has been modified"))
	errNotFound = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x")
	// errRecreated is the error for a patch with the UID of an object that was deleted and created again.
	errRecreated = apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "x", field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "x-uid", "field is immutable"),
	})
)

// newFakeClient returns a fake client with the given objects and interceptors.
func newFakeClient(funcs interceptor.Funcs, objects ...client.Object) client.Client {
	return policytest.NewClient(funcs, objects...)
}
