// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Unlimited returns a copy of a configuration without a client-side rate limit and without
// deprecation warnings.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// NewClient returns a client with an Unlimited configuration. Its scheme contains the manager's
// types and the types that the functions add.
func NewClient(config *rest.Config, add ...func(*runtime.Scheme) error) (client.Client, error) {
	types := scheme.New()
	var errs []error
	for _, addToScheme := range add {
		errs = append(errs, addToScheme(types))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("failed to add types to the scheme: %w", err)
	}
	result, err := client.New(Unlimited(config), client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return result, nil
}
