// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/mutation"
)

// ServesPolicies reports whether an API server serves MutatingAdmissionPolicy v1. Otherwise, the manager must run for
// new namespaces to be admitted.
func ServesPolicies(ctx context.Context, config *rest.Config) bool {
	GinkgoHelper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	serves, err := mutation.ServesPolicies(ctx, client)
	Expect(err).NotTo(HaveOccurred())
	return serves
}

// SkipWithoutPolicies skips a spec that has no meaning if an API server does not serve MutatingAdmissionPolicy v1.
func SkipWithoutPolicies(ctx context.Context, config *rest.Config, reason string) {
	GinkgoHelper()
	if !ServesPolicies(ctx, config) {
		Skip("the API server does not serve MutatingAdmissionPolicy v1: " + reason)
	}
}

// PolicyKinds returns the types of webhook configurations and admission policies that an API server serves, in the
// order in which they must be deleted: without the configuration of the webhooks, the operator does not apply the
// mutating policies again.
func PolicyKinds(ctx context.Context, config *rest.Config) string {
	GinkgoHelper()
	kinds := []string{"mutatingwebhookconfigurations"}
	if ServesPolicies(ctx, config) {
		kinds = append(kinds, "mutatingadmissionpolicybindings", "mutatingadmissionpolicies")
	}
	return strings.Join(append(kinds, "validatingadmissionpolicybindings", "validatingadmissionpolicies"), ",")
}
