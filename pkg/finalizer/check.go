// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// MissingPermissionsError is the error that [Check] returns if the identity of the program lacks
// permissions.
type MissingPermissionsError struct {
	// Missing lists the missing permissions, such as "update namespaces/finalize".
	Missing []string
	// Message names the missing permissions and the kubectl commands that grant them.
	Message string
}

// Error returns the message.
func (e *MissingPermissionsError) Error() string { return e.Message }

// requiredPermissions are the permissions that are required to remove a namespace finalizer.
var requiredPermissions = []workrunner.Permission{
	{Verb: "get"}, {Verb: "list"}, {Verb: "watch"}, {Verb: "update", Subresource: "finalize"},
}

// Check returns an error if name is not a valid namespace finalizer, and a *MissingPermissionsError
// if the identity in the configuration lacks permissions. The same check runs when a manager with
// [Add] starts, and its result is logged.
func Check(ctx context.Context, config *rest.Config, name corev1.FinalizerName) error {
	if err := workrunner.ValidateFinalizer(name); err != nil {
		return err
	}
	c, err := workrunner.NewClient(config, nil)
	if err != nil {
		return err
	}
	return checkPermissions(ctx, c, name)
}

func checkPermissions(ctx context.Context, c client.Client, name corev1.FinalizerName) error {
	err := workrunner.CheckPermissions(ctx, c, roleName(name), requiredPermissions)
	var missing *workrunner.MissingPermissions
	if errors.As(err, &missing) {
		return (*MissingPermissionsError)(missing)
	}
	return err
}

// logMissingPermissions logs missing permissions. They are not fatal, because an administrator can
// grant them later.
func logMissingPermissions(ctx context.Context, c client.Client, name corev1.FinalizerName) {
	if err := checkPermissions(ctx, c, name); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).WithName(engine.LoggerName).
			Error(err, "Cannot remove the namespace finalizer", "finalizer", name)
	}
}

// roleName returns the name of the ClusterRole in the suggested commands.
func roleName(name corev1.FinalizerName) string {
	return "finalizer:" + strings.ReplaceAll(string(name), "/", ":")
}
