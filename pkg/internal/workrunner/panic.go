// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"runtime/debug"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// panicError is the error that a recovered panic is converted to.
type panicError struct{ value any }

func (p *panicError) Error() string { return PanicMessage(p.value) }

// logPanic logs a recovered panic in a user's function, and returns it as an error.
func logPanic(logger logr.Logger, value any, namespace *corev1.Namespace) error {
	err := &panicError{value: value}
	logger.Error(err, "Recovered from a panic", "uid", namespace.UID, "stack", string(debug.Stack()))
	return err
}
