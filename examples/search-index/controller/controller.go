// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

const (
	// InitializerName is the name that the configuration registers.
	InitializerName = "search.corp.example.com"
	// Finalizer is in spec.finalizers of each Namespace that might have an index.
	Finalizer corev1.FinalizerName = "search.corp.example.com/index"
)

// Reasons in the conditions of a Namespace.
const (
	reasonReady   = "IndexReady"
	reasonDeleted = "IndexDeleted"
	reasonBusy    = "ServiceBusy"
	// reasonRefused is the reason of a permanent failure.
	reasonRefused metav1.StatusReason = "IndexRefused"
)

// uidLength is the number of characters of the UID in the name of an index, to distinguish
// Namespaces with the same name. The service compares the complete UID.
const uidLength = 8

// Setup adds all controllers to the manager.
func Setup(mgr manager.Manager, indices *indexclient.Client) error {
	c := &controller{indices: indices}
	return errors.Join(
		initializer.Add(mgr, InitializerName, c.create, initializer.WithFinalizer(Finalizer)),
		// Pods write their last logs while they terminate.
		finalizer.Add(mgr, Finalizer, c.delete, finalizer.AfterContent()),
		c.addReadiness(mgr),
	)
}

type controller struct{ indices *indexclient.Client }

// IndexName returns the name of the index of a Namespace.
func IndexName(namespace *corev1.Namespace) string {
	uid := string(namespace.UID)
	return namespace.Name + "-" + uid[:min(uidLength, len(uid))]
}

// create creates the index of a new Namespace.
func (c *controller) create(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
	name := IndexName(namespace)
	_, err := c.indices.Create(ctx, name, indexserver.Owner{Namespace: namespace.Name, UID: string(namespace.UID)})
	if err != nil {
		return initializer.Result{}, createError(name, err)
	}
	return initializer.Result{Reason: reasonReady, Message: fmt.Sprintf("index %s is ready", name)}, nil
}

// createError distinguishes temporary from permanent errors. After a permanent error, the operator
// deletes the Namespace, so createError returns one only if the service itself rejected the
// request.
func createError(name string, err error) error {
	var busy *indexclient.BusyError
	var refused *indexclient.RefusedError
	switch {
	case errors.As(err, &busy) && busy.RetryAfter > 0:
		return initializer.NotYet(busy.RetryAfter, reasonBusy, "creating index %s: %v", name, err)
	// Status 410 means that the index was deleted, so the Namespace is already being deleted.
	case errors.As(err, &refused) && refused.IsFinal() && refused.Status != http.StatusGone:
		return initializer.Failed(reasonRefused, "creating index %s: %v", name, err)
	default:
		return fmt.Errorf("creating index %s: %w", name, err)
	}
}

// delete deletes the index of a terminating Namespace. It succeeds only if the service reports that
// the index does not exist.
func (c *controller) delete(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
	name := IndexName(namespace)
	err := c.indices.Delete(ctx, name, string(namespace.UID))
	var busy *indexclient.BusyError
	var refused *indexclient.RefusedError
	switch {
	case err == nil:
		return finalizer.Result{Reason: reasonDeleted, Message: fmt.Sprintf("index %s was deleted", name)}, nil
	case errors.As(err, &busy) && busy.RetryAfter > 0:
		return finalizer.Result{}, finalizer.NotYet(busy.RetryAfter, reasonBusy, "deleting index %s: %v", name, err)
	// The index belongs to another Namespace, so this Namespace has no index.
	case errors.As(err, &refused) && refused.IsFinal() && refused.Status == http.StatusConflict:
		return finalizer.Result{Reason: reasonDeleted, Message: fmt.Sprintf("there was no index: %v", err)}, nil
	default:
		return finalizer.Result{}, fmt.Errorf("deleting index %s: %w", name, err)
	}
}
