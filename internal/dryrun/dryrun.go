// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dryrun permits dry runs. An aggregated API server can ignore the option dryRun and perform the request, so no
// dry run is sent for an object of a type behind an APIService. Every dry run for an object of any type gets its option
// from a [Guard]; a test in test/docs names the exceptions, which are requests for fixed types of kube-apiserver.
package dryrun

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	builtin "k8s.io/client-go/kubernetes/scheme"
)

// UnsupportedError is the error for a dry run that must not be sent.
type UnsupportedError struct {
	GroupVersion schema.GroupVersion
	// Unknown is why the server of the group version is unknown. It is nil if an aggregated API server serves it.
	Unknown error
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	if e.Unknown != nil {
		return fmt.Sprintf("no dry run is sent for objects of %s, because it is unknown which server serves them: %v",
			e.GroupVersion, e.Unknown)
	}
	return fmt.Sprintf("no dry run is sent for objects of %s: an aggregated API server serves them, and could perform "+
		"the request", e.GroupVersion)
}

// Unwrap returns why the server is unknown.
func (e *UnsupportedError) Unwrap() error { return e.Unknown }

// IsUnsupported reports whether an error means that a dry run was not sent.
func IsUnsupported(err error) bool {
	var unsupported *UnsupportedError
	return errors.As(err, &unsupported)
}

// Guard permits the dry runs of requests for objects.
type Guard struct {
	isAggregated func(context.Context, schema.GroupVersion) (bool, error)
}

// New returns a Guard. isAggregated reports whether an aggregated API server serves a group version.
func New(isAggregated func(context.Context, schema.GroupVersion) (bool, error)) *Guard {
	return &Guard{isAggregated}
}

// Option returns the option that makes a request for an object of a group version a dry run, or an UnsupportedError.
func (g *Guard) Option(ctx context.Context, groupVersion schema.GroupVersion) ([]string, error) {
	// Users who cannot read APIServices can test the types of Kubernetes itself.
	if !builtin.Scheme.IsVersionRegistered(groupVersion) {
		isAggregated, err := g.isAggregated(ctx, groupVersion)
		if err != nil || isAggregated {
			return nil, &UnsupportedError{GroupVersion: groupVersion, Unknown: err}
		}
	}
	return []string{metav1.DryRunAll}, nil
}
