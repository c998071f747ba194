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
	return stopLater(c.ControlPlane.StartSecondAPIServer(ctx, flags...))
}

// StartAPIServerFrom is like StartSecondAPIServer with the kube-apiserver in a directory. It can have another version.
func (c *Cluster) StartAPIServerFrom(ctx context.Context, directory string, flags ...string) *SecondAPIServer {
	GinkgoHelper()
	return stopLater(c.ControlPlane.StartAPIServerFrom(ctx, directory, flags...))
}

func stopLater(second *controlplane.SecondAPIServer, err error) *SecondAPIServer {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = second.Stop() }) // A spec can have stopped it.
	return &SecondAPIServer{second}
}

// As returns a copy of a user that sends requests to this API server.
func (s *SecondAPIServer) As(user *User) *User {
	GinkgoHelper()
	return NewUser(s.ConfigFor(user.Config))
}
