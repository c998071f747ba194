// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Func deletes the external resources of a Namespace that is being deleted. If it returns a nil
// error, the finalizer is removed. Func must be idempotent: it is called again after an error and
// after a restart. The Namespace is a copy that Func can modify.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result is the outcome of a successful Func. It is published in the condition if the Namespace
// still has other finalizers.
type Result struct {
	// Reason is one word in CamelCase, such as IndexDeleted. The default is "Released".
	Reason string
	// Message is a sentence for users.
	Message string
}

// Add adds a controller to the manager. The controller calls fn for each Namespace that is being
// deleted and that has the finalizer name in spec.finalizers. With leader election, the controller
// runs only in the leader. Add returns an error if the name or an option is invalid, or if another
// controller in this process has the same name.
func Add(mgr manager.Manager, name corev1.FinalizerName, fn Func, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("finalizer.Add(%q): the function is nil", name)
	}
	options, err := engine.NewOptions(name, opts)
	if err != nil {
		return fmt.Errorf("finalizer.Add(%q): %w", name, err)
	}
	if err := workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{
			Handler: engine.NewHandler(c, name, workrunner.NewCall(fn), options), Options: options.Options,
			// Only terminating Namespaces need to be watched. The API server keeps the phase
			// consistent with the deletionTimestamp.
			Selection: workrunner.Selection{
				Field: fields.OneTermEqualSelector("status.phase", string(corev1.NamespaceTerminating)),
			},
			Check: func(ctx context.Context) { logMissingPermissions(ctx, c, name) },
		}
	}); err != nil {
		return err
	}
	if !options.AddsFinalizer {
		return nil
	}
	options.Watches = nil
	return workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{Handler: engine.NewAddHandler(c, name, options.Selects), Options: options.Options}
	})
}
