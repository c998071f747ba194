// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis tests the diagnosis against a real API server: it must report the cause that
// blocks a namespace, and no other cause. No namespace controller runs unless a spec starts one, so
// terminating namespaces keep their state.
package diagnosis

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	plane *controlplane.ControlPlane
	// admin and dynamicClient are members of system:masters.
	admin         client.Client
	dynamicClient dynamic.Interface
)

func TestDiagnosis(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Diagnosis")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	SetDefaultConsistentlyDuration(2 * time.Second)

	cluster := framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	var err error
	dynamicClient, err = dynamic.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Install(ctx)).To(Succeed())
})
