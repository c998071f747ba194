// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policywebhooks tests the webhooks that replace the mutating policies before Kubernetes 1.36, on an API server
// of any version. Their end is described in internal/admission/inject.
package policywebhooks

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// cluster is shared by the specs about API servers without MutatingAdmissionPolicy.
var cluster *framework.Cluster

func TestPolicyWebhooks(t *testing.T) { framework.RunSuite(t, "Policy webhooks") }

var _ = BeforeSuite(framework.ExpectNoLeaks)
