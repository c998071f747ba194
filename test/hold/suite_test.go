// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// cluster is shared by all specs.
var cluster *framework.Cluster

func TestHold(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Hold")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	cluster.Install(ctx, "default")
	cluster.StartHoldingManager(ctx)
})
