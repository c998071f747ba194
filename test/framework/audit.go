// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/observer"
)

// ManagerUser is the user name of the manager.
const ManagerUser = "system:serviceaccount:" + controlplane.SystemNamespace + ":" + controlplane.ServiceAccount

// AuditLog is the path of an audit log.
type AuditLog string

// NewAuditLog returns an audit log that exists until the end of the suite.
func NewAuditLog() AuditLog { return AuditLog(filepath.Join(GinkgoT().TempDir(), "audit.log")) }

// Options make the API server log all writes.
func (l AuditLog) Options() []controlplane.Option {
	return []controlplane.Option{
		controlplane.WithAPIServerFlag("audit-policy-file",
			filepath.Join(controlplane.Root(), "test", "framework", "testdata", "audit-policy.yaml")),
		controlplane.WithAPIServerFlag("audit-log-path", string(l)),
		// In MiB. The API server would otherwise start another file after 100 MiB.
		controlplane.WithAPIServerFlag("audit-log-maxsize", "10000"),
	}
}

// Flag makes another API server of the cluster use this audit log instead of the first one's.
func (l AuditLog) Flag() string { return "--audit-log-path=" + string(l) }

// Read returns all writes except dry runs, in the order of their responses.
func (l AuditLog) Read() []observer.Event {
	GinkgoHelper()
	events, err := observer.ReadLog(string(l), 0)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(events, func(e observer.Event) bool { return e.IsDryRun() })
}
