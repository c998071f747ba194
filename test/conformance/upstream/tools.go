// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package upstream pins the version of Kubernetes whose conformance specs are run.
package upstream

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e"
)
