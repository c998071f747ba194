// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme contains the runtime scheme of the operator's clients.
package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// New returns a scheme with the built-in types and the types of nslifecycle.dev and internal.nslifecycle.dev.
func New() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(internalv1alpha1.AddToScheme(scheme))
	return scheme
}
