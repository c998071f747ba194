// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// SecondAPIServer is another kube-apiserver in a Cluster.
type SecondAPIServer struct{ *controlplane.SecondAPIServer }

// StartSecondAPIServer starts another kube-apiserver that uses the same etcd. It is stopped when the
// spec or the container ends.
func (c *Cluster) StartSecondAPIServer(ctx context.Context, flags ...string) *SecondAPIServer {
	GinkgoHelper()
	second, err := c.ControlPlane.StartSecondAPIServer(ctx, flags...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(second.Stop()).To(Succeed()) })
	return &SecondAPIServer{second}
}

// As returns a copy of a user that sends requests to this API server.
func (s *SecondAPIServer) As(user *User) *User {
	GinkgoHelper()
	return NewUser(s.ConfigFor(user.Config))
}
