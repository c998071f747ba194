// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// patience is short, so that the suite is. What may take longer says so itself.
const patience = 2 * time.Second

var (
	plane *controlplane.ControlPlane
	// manager ends the namespaces; it runs with the rights of its own ServiceAccount.
	manager *controlplane.Manager
	// admin is a member of system:masters.
	admin client.Client
	// gatherer reads with the rights of admin.
	gatherer *collect.Collector
)

func TestCauses(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Causes")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	SetDefaultEventuallyTimeout(2 * time.Minute) // Machines that run tests may be busy.
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()

	var err error
	plane, err = controlplane.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	admin, gatherer = newClient(plane.Admin), newGatherer(plane.Admin)
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
	result, err := controlplane.NewClient(config, apiextensionsv1.AddToScheme)
	Expect(err).NotTo(HaveOccurred())
	return result
}

func newGatherer(config *rest.Config) *collect.Collector {
	GinkgoHelper()
	result, err := collect.New(config)
	Expect(err).NotTo(HaveOccurred())
	result.ProgressDeadline = patience
	return result
}
