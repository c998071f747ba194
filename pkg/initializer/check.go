// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// NotRegisteredError is the error that [Check] returns if no NamespaceInitializerConfiguration registers the
// initializer. This error is expected during a rollout, because initializers are registered after they start.
type NotRegisteredError struct {
	// Name is the name of the initializer.
	Name string
}

// Error returns a message that describes how to register the initializer.
func (e *NotRegisteredError) Error() string {
	return fmt.Sprintf("initializer %q is not registered, so no new namespace waits for it; while it is running, "+
		"create a NamespaceInitializerConfiguration with initializers: [{name: %s}]", e.Name, e.Name)
}

// MissingPermissionsError is the error that [Check] returns if the identity of the initializer lacks required
// permissions. Its field Missing lists them, each as a verb and a resource, such as "patch namespaces". Its message
// names them and the kubectl commands that grant them.
type MissingPermissionsError = workrunner.MissingPermissionsError

// Check reports why an initializer cannot run: an invalid name or option, missing permissions
// ([MissingPermissionsError]), or a name that is not registered ([NotRegisteredError]). It joins the errors. Pass the
// same options as to [Add]. Check requires each permission for all Namespaces, so a permission that is limited by
// resourceNames is reported as missing. If the identity is not allowed to list NamespaceInitializerConfigurations,
// Check does not verify the registration.
func Check(ctx context.Context, config *rest.Config, name string, opts ...Option) error {
	options, err := newOptions(name, opts)
	if err != nil {
		return err
	}
	c, err := workrunner.NewClient(config, nil)
	if err != nil {
		return err
	}
	return errors.Join(check(ctx, c, name, options)...)
}

// check returns one entry for each check. The entry is nil if the check succeeds.
func check(ctx context.Context, c client.Client, name string, options options) []error {
	return []error{
		workrunner.CheckPermissions(ctx, c, roleName(name), options.permissions()), checkRegistered(ctx, c, name),
	}
}

// checkRegistered verifies that a NamespaceInitializerConfiguration registers the initializer. It returns nil if the
// identity is not allowed to list the configurations.
func checkRegistered(ctx context.Context, c client.Client, name string) error {
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	err := c.List(ctx, &configurations)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return &NotRegisteredError{Name: name}
	case err != nil:
		return fmt.Errorf("failed to list NamespaceInitializerConfigurations: %w", err)
	}
	for i := range configurations.Items {
		isName := func(initializer v1alpha1.NamespaceInitializer) bool { return initializer.Name == name }
		if slices.ContainsFunc(configurations.Items[i].Initializers, isName) {
			return nil
		}
	}
	return &NotRegisteredError{Name: name}
}

// logFindings logs the errors that check returns.
func logFindings(ctx context.Context, log logr.Logger, findings []error) {
	for _, err := range findings {
		var notRegistered *NotRegisteredError
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &notRegistered):
			// This is not an error, because initializers are registered after they start.
			log.Info("The initializer is not registered yet", "message", err.Error())
		default:
			log.Error(err, "The initializer lacks permissions or cannot be checked")
		}
	}
}
