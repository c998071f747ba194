// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

// serve runs an initializer until the spec ends.
func serve(ctx context.Context, config *rest.Config, name string, work initializers.Work) {
	GinkgoHelper()
	running, err := initializers.Start(ctx, config, name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(running.Stop)
}

var (
	HaveCondition = matchers.HaveCondition
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

// BeInitializing matches a namespace whose Initializing condition has the given status and reason.
func BeInitializing(status corev1.ConditionStatus, reason string) types.GomegaMatcher {
	return HaveCondition(v1alpha1.ConditionInitializing, status, reason)
}

// NotBeDenied matches every result of a request, except a denial by a policy of this project.
func NotBeDenied() types.GomegaMatcher {
	return Or(Not(HaveOccurred()), Not(MatchError(ContainSubstring("nslifecycle-"))))
}
