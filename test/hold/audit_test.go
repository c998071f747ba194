// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/observer"
)

// rules do not depend on the permissions of other users, which the specs remove.
var rules = observer.Rules{
	Manager: framework.ManagerUser, SystemNamespace: controlplane.SystemNamespace,
	MayWrite: func(user authenticationv1.UserInfo, _ string, _ ...string) bool {
		return user.Username != framework.OrdinaryUser && user.Username != otherUser
	},
}

// No user without the verb has ever written to an initializing namespace.
var _ = AfterSuite(func() {
	events := auditLog.Read()
	Expect(events).NotTo(BeEmpty())
	Expect(observer.Check(observer.Evidence{Events: events}, rules)).To(BeEmpty())
})
