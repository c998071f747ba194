// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// MissingPermissionsError is the error that [Check] returns if the identity of the program lacks permissions. Its
// field Missing lists them, such as "update namespaces/finalize". Its message names them and the kubectl commands
// that grant them.
type MissingPermissionsError = workrunner.MissingPermissionsError

// requiredPermissions are the permissions that are required to remove a namespace finalizer.
var requiredPermissions = []string{
	"get namespaces", "list namespaces", "watch namespaces", "update namespaces/finalize",
}

// Check returns an error if name is not a valid namespace finalizer, and a *MissingPermissionsError if the identity
// in the configuration lacks permissions. The same check runs when the controller of [Add] starts, and its result is
// logged.
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
	role := "finalizer:" + strings.ReplaceAll(string(name), "/", ":")
	return workrunner.CheckPermissions(ctx, c, role, requiredPermissions)
}
