// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization tests finalization against a real API server, where nothing
// but the manager under test ends them.
package finalization

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

var (
	plane *controlplane.ControlPlane
	// manager ends namespaces for all specs but those that stop it; it runs with the
	// rights of its own ServiceAccount.
	manager *controlplane.Manager
	// admin is a member of system:masters, as is metadataClient.
	admin          client.Client
	metadataClient metadata.Interface
)

func TestFinalization(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Finalization")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()

	var err error
	plane, err = controlplane.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	admin = newClient(plane.Admin)
	metadataClient, err = metadata.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Install(ctx)).To(Succeed())
	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	if manager != nil {
		Expect(manager.Stop()).To(Succeed())
	}
	if plane != nil {
		Expect(plane.Stop()).To(Succeed())
	}
})

func newClient(config *rest.Config) client.Client {
	GinkgoHelper()
	result, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())
	return result
}
