// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// accounts is the namespace with the ServiceAccounts of the initializers. It is created before any
// initializer is registered. Otherwise, it would wait for the initializers.
const accounts = "initializers"

var (
	plane   *controlplane.ControlPlane
	manager *controlplane.Manager
	// admin is a client with the permissions of system:masters.
	admin    client.WithWatch
	auditLog framework.AuditLog
)

func TestInitializer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Initializer")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster := framework.StartControlPlane(ctx)
	plane, auditLog = cluster.ControlPlane, cluster.AuditLog
	var err error
	admin, err = client.NewWithWatch(controlplane.Unlimited(plane.Admin), client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())

	Expect(plane.Install(ctx)).To(Succeed())
	Expect(admin.Create(ctx, wrappers.MakeNamespace(accounts).Obj())).To(Succeed())
	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(manager.Stop()).To(Succeed()) })
}, NodeTimeout(15*time.Minute))
