// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestServerWatch(t *testing.T) {
	const policies = "admissionregistration.k8s.io/v1"
	mutatingServed := &metav1.APIResourceList{GroupVersion: policies, APIResources: []metav1.APIResource{
		{Name: "mutatingadmissionpolicies"}, {Name: "mutatingadmissionpolicybindings"},
	}}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &clienttesting.Fake{Resources: []*metav1.APIResourceList{{GroupVersion: policies}}}
		watch := &ServerWatch{
			Discovery: &fake.FakeDiscovery{Fake: api}, Server: Server{LacksMutatingPolicies: true},
		}
		g.Expect(watch.NeedLeaderElection()).To(BeFalse())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		g.Expect(watch.Start(ctx)).To(Succeed(), "unchanged")
		g.Expect(ctx.Err()).To(HaveOccurred())

		api.Resources = []*metav1.APIResourceList{mutatingServed}
		g.Expect(watch.Start(t.Context())).To(MatchError(HaveSuffix(Server{}.String())))
	})
}
