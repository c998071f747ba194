// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// ManagerUser is the user name of the manager.
const ManagerUser = "system:serviceaccount:" + controlplane.SystemNamespace + ":" + controlplane.ServiceAccount

// AuditLog is the path of an audit log.
type AuditLog string

// NewAuditLog creates an audit log that exists until the node that called it ends. Several API servers can
// use it, because each of them appends to an existing file.
func NewAuditLog() AuditLog {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "audit.log")
	Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
	return AuditLog(path)
}

// options make the API server log all writes.
func (l AuditLog) options() []controlplane.Option {
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

// Observation determines what an observer records and checks.
type Observation struct {
	// Servers are the API servers with an audit log of their own. The observer watches through the first one.
	Servers []observer.Server
	// Resources are the types of the objects that are watched.
	Resources []schema.GroupVersionResource
	// Rules are the rules of the invariants. Without MayWrite, the API server decides which users may write.
	Rules observer.Rules

	running *observer.Observer
}

const stopObserverTimeout = 3 * time.Minute

// observations are those of all clusters.
var observations []*Observation

// In every suite, the invariants are checked after each spec, while the users of the spec have their permissions.
var _ = AfterEach(func(ctx context.Context) {
	for _, o := range observations {
		Expect(o.CollectViolations(ctx)).To(BeEmpty())
	}
}, NodeTimeout(stopObserverTimeout))

// StartObserver checks the invariants of package observer until the spec, the container or the suite ends. Call it
// after the users have been added whose permissions are removed then.
func (c *Cluster) StartObserver(ctx context.Context, changes ...func(*Observation)) {
	GinkgoHelper()
	o := &Observation{
		Servers: []observer.Server{{Config: c.Admin.Config, Log: string(c.AuditLog)}},
		Resources: []schema.GroupVersionResource{
			corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("limitranges"),
			corev1.SchemeGroupVersion.WithResource("resourcequotas"), rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
		},
		Rules: observer.Rules{
			Managers:        map[string][]corev1.FinalizerName{ManagerUser: {corev1.FinalizerKubernetes}},
			SystemNamespace: controlplane.SystemNamespace,
		},
	}
	for _, change := range changes {
		change(o)
	}
	c.Observation, observations = o, append(observations, o)
	o.running = o.start(ctx)
	DeferCleanup(func(ctx context.Context) {
		observations = slices.DeleteFunc(observations, func(other *Observation) bool { return other == o })
		Expect(o.stop(ctx, o.running)).To(BeEmpty())
	}, NodeTimeout(stopObserverTimeout))
}

// CollectViolations returns the violations since the last call. A spec that demonstrates a limit compares them
// with those that it expects; all others make the spec fail.
func (o *Observation) CollectViolations(ctx context.Context) []observer.Violation {
	GinkgoHelper()
	previous := o.running
	o.running = o.start(ctx) // Before the previous one stops, so that nothing is missed.
	return o.stop(ctx, previous)
}

func (o *Observation) start(ctx context.Context) *observer.Observer {
	GinkgoHelper()
	started, err := observer.Start(ctx, o.Servers, o.Resources...)
	Expect(err).NotTo(HaveOccurred())
	return started
}

func (o *Observation) stop(ctx context.Context, running *observer.Observer) []observer.Violation {
	GinkgoHelper()
	rules := o.Rules
	var err error
	if rules.MayWrite == nil {
		rules.MayWrite, err = observer.Authorizer(ctx, o.Servers[0].Config)
		Expect(err).NotTo(HaveOccurred())
	}
	violations, err := running.Stop(ctx, rules)
	Expect(err).NotTo(HaveOccurred())
	return violations
}
