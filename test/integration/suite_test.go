// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

const preExistingName = "pre-existing"

// cluster is shared by all specs.
var cluster *framework.Cluster

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Integration")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	// This namespace is older than the installation of this project.
	framework.CreateNamespace(ctx, cluster.Admin, preExistingName)
	cluster.Install(ctx, "default")
	cluster.StartManager(ctx)
	cluster.ExpectInjected(ctx)
})
