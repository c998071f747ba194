// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	// cluster is shared by all specs.
	cluster *framework.Cluster
	options *hold.Options
)

func TestHold(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Hold")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.SetDefaults()
	buildHelm(ctx)
	// With many rounds, the default range has too few addresses for all Services.
	cluster = framework.Start(ctx, controlplane.WithAPIServerFlag("service-cluster-ip-range", "10.0.0.0/16"))
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	options = cluster.StartHoldingManager(ctx)
	cluster.StartObserver(ctx, func(o *framework.Observation) {
		// Independent of permissions, which the specs remove.
		o.Rules.MayWrite = func(user authenticationv1.UserInfo, _ string, _ ...string) bool {
			return user.Username != framework.OrdinaryUser && user.Username != otherUser
		}
		o.Resources = append(o.Resources, v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"))
	})
}, NodeTimeout(15*time.Minute))

// restartManager starts the manager again, at another port.
func restartManager(ctx context.Context) {
	GinkgoHelper()
	options = cluster.RestartHoldingManager(ctx)
}
