// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

// cluster is shared by all specs that do not modify the installation.
var cluster *framework.Cluster

var (
	HaveCondition = matchers.HaveCondition
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

func TestSecurity(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Security")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	cluster.Install(ctx, "default")
	cluster.StartManager(ctx)
	cluster.ExpectInjected(ctx)
})
