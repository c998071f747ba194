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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// progressDeadline is short to keep the suite fast.
const progressDeadline = 2 * time.Second

var (
	plane *controlplane.ControlPlane
	// manager finalizes the namespaces. It has the permissions of its own ServiceAccount.
	manager *controlplane.Manager
	// admin is a member of system:masters.
	admin client.Client
	// collector has the permissions of admin.
	collector *collect.Collector
)

func TestCauses(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Causes")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)

	cluster := framework.StartControlPlane(ctx)
	plane = cluster.ControlPlane
	admin, collector = framework.NewClient(plane.Admin, apiextensionsv1.AddToScheme), newCollector(plane.Admin)
	Expect(plane.Install(ctx)).To(Succeed())
	var err error
	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(manager.Stop()).To(Succeed()) })
})

func newCollector(config *rest.Config) *collect.Collector {
	GinkgoHelper()
	result, err := collect.New(config)
	Expect(err).NotTo(HaveOccurred())
	result.ProgressDeadline = progressDeadline
	return result
}
