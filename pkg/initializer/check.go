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
	"github.com/nslifecycle/nslifecycle/pkg/initializer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// NotRegisteredError says that no NamespaceInitializerConfiguration names an initializer. That
// is how it begins: an initializer runs before it is registered.
type NotRegisteredError struct {
	// Name is the name of the initializer.
	Name string
}

// Error says what to do.
func (e *NotRegisteredError) Error() string {
	return fmt.Sprintf("no NamespaceInitializerConfiguration names initializer %q, so no new namespace waits for it; "+
		"register it once it runs, by applying one with initializers: [{name: %s}]", e.Name, e.Name)
}

// MissingRightsError says that the identity of an initializer lacks rights that it cannot do
// without.
type MissingRightsError struct {
	// Missing are the rights, each as a verb and a resource: "patch namespaces".
	Missing []string
	// Message says what is missing, and the kubectl commands that give it.
	Message string
}

// Error returns the message.
func (e *MissingRightsError) Error() string { return e.Message }

// Check looks for what keeps an initializer from working: a bad name, a right that its
// identity lacks (a [MissingRightsError]), a name that is registered nowhere (a
// [NotRegisteredError]). The options are those of [Add]. Rights are asked for with regard to
// all Namespaces, so one that is limited to some, by resourceNames, counts as missing. Whether
// the name is registered is left out where the identity may not know.
func Check(ctx context.Context, config *rest.Config, name string, opts ...Option) error {
	options, err := engine.NewOptions(name, opts)
	if err != nil {
		return err
	}
	c, err := workrunner.Connect(config)
	if err != nil {
		return err
	}
	return errors.Join(check(ctx, c, name, options)...)
}

// check returns what it finds; nil stands for what is well.
func check(ctx context.Context, c client.Client, name string, options engine.Options) []error {
	err := workrunner.CheckRights(ctx, c, engine.RoleName(name), engine.Rights(options))
	var missing *workrunner.MissingRights
	if errors.As(err, &missing) {
		err = (*MissingRightsError)(missing)
	}
	return []error{err, checkRegistered(ctx, c, name)}
}

// checkRegistered looks into the set that the operator makes of all configurations. What it
// may not read is no error.
func checkRegistered(ctx context.Context, c client.Client, name string) error {
	var set v1alpha1.NamespaceInitializerSet
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, &set)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return &NotRegisteredError{Name: name}
	case err != nil:
		return fmt.Errorf("reading which initializers are registered: %w", err)
	}
	isName := func(initializer v1alpha1.EffectiveInitializer) bool { return initializer.Name == name }
	if !slices.ContainsFunc(set.Initializers, isName) {
		return &NotRegisteredError{Name: name}
	}
	return nil
}

// report logs what a check finds.
func report(ctx context.Context, log logr.Logger, findings []error) {
	var missing *MissingRightsError
	var unregistered *NotRegisteredError
	for _, err := range findings {
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &missing):
			log.Error(missing, "The initializer lacks rights, and waits until they are given", "missing", missing.Missing)
		case errors.As(err, &unregistered):
			// Not an error: it has to be there before it is registered.
			log.Info("The initializer is not registered yet", "message", unregistered.Error())
		default:
			log.Error(err, "Did not find out whether the initializer can work")
		}
	}
}
