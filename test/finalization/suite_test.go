// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization tests the finalization controller against a real API server. No other
// controller finalizes namespaces, unless a spec starts one.
package finalization

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	// cluster contains plane, or the control plane of the spec.
	cluster *framework.Cluster
	plane   *controlplane.ControlPlane
	// manager finalizes namespaces with the permissions of its own ServiceAccount, except in specs
	// that stop it.
	manager *controlplane.Manager
	// admin and metadataClient send requests as a member of system:masters.
	admin          client.Client
	metadataClient metadata.Interface
)

func TestFinalization(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Finalization")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.SetDefaults()
	SetDefaultConsistentlyDuration(2 * time.Second)

	cluster = framework.StartControlPlane(ctx)
	cluster.StartObserver(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	var err error
	metadataClient, err = metadata.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Install(ctx)).To(Succeed())
	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(manager.Stop()).To(Succeed()) })
})
