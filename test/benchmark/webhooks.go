// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const (
	// leaseName is the default of the manager's flag --leader-elect-resource-name.
	leaseName = "nslifecycle.dev"
	// leaseDuration is longer than a run.
	leaseDuration = 24 * time.Hour
)

// injected is a content of the effective set.
type injected struct {
	what         string
	initializers []string
	templates    []v1alpha1.EffectiveTemplate
}

func injectedCases() []injected {
	names := initializerNames()
	return []injected{
		{what: "one initializer", initializers: names[:1]},
		{what: "three initializers", initializers: names},
		{what: "a template with two defaults", initializers: []string{v1alpha1.TemplatesInitializer},
			templates: []v1alpha1.EffectiveTemplate{{
				Name: configurationName, NamespaceSelector: &v1alpha1.NamespaceSelector{}, Access: v1alpha1.AccessOpen,
				Parameters: []v1alpha1.TemplateParameter{
					{Name: "first", Default: ptr.To("1")}, {Name: "second", Default: ptr.To("2")},
				},
			}}},
	}
}

// compareMechanisms compares the creation of namespaces without nslifecycle with that by policies, and with that by
// webhooks. For the latter, it starts another control plane without MutatingAdmissionPolicy, whose webhooks are
// served by a manager that is not the leader, so that only the webhooks use processor time.
func (b *benchmark) compareMechanisms(ctx context.Context) (err error) {
	if !b.mechanisms {
		return nil
	}
	harness.Say("Starting a control plane without MutatingAdmissionPolicy")
	withWebhooks, err := startServer(ctx, b.etcdOption(), controlplane.WithMutatingPolicies(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withWebhooks.Stop()) }()
	standby, err := b.serveWebhooks(ctx, withWebhooks)
	defer func() { err = errors.Join(err, standby.Stop()) }()
	if err != nil {
		return err
	}
	for _, content := range injectedCases() {
		for _, mechanism := range []struct {
			name   string
			server *server
		}{{"policy", b.servers[with]}, {"webhook", withWebhooks}} {
			if err := mechanism.server.setInjected(ctx, content); err != nil {
				return err
			}
			if err := b.compare(ctx, fmt.Sprintf("Namespace create, %s, by %s", content.what, mechanism.name), b.namespaces, 0,
				[2]request{b.servers[without].createNamespace(), mechanism.server.createNamespace()}); err != nil {
				return fmt.Errorf("%w; last output of the manager: %s", err, standby.LastOutput())
			}
			if err := errors.Join(b.removeNamespaces(ctx), withWebhooks.removeNamespaces(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

// serveWebhooks installs nslifecycle, and returns a manager that serves the webhooks and is not the leader.
func (b *benchmark) serveWebhooks(ctx context.Context, server *server) (*harness.Process, error) {
	if _, err := server.Kubectl(ctx, server.Admin, "apply", "-k", b.kustomization); err != nil {
		return nil, err
	}
	hold, err := controlplane.HoldOptions()
	if err != nil {
		return nil, err
	}
	if _, err := server.StartAdmission(ctx, func(o *manager.Options) { o.Hold = hold }); err != nil {
		return nil, err
	}
	leader, err := startManager(ctx, server, b.binary, "--webhook-bind-address", hold.Address)
	if err != nil {
		return nil, err
	}
	err = server.register(ctx)
	if err == nil {
		err = server.waitForInjected(ctx, strings.Join(initializerNames(), ","))
	}
	if err := errors.Join(err, leader.Stop(), server.holdLease(ctx)); err != nil {
		return nil, fmt.Errorf("%w; last output of the manager: %s", err, leader.LastOutput())
	}
	return harness.StartProcess(ctx, "the standby", filepath.Join(server.Dir, "standby.log"), b.binary,
		"--kubeconfig", filepath.Join(server.Dir, managerKubeconfig), "--health-probe-bind-address=0",
		"--metrics-bind-address=0",
		"--leader-elect", controlplane.WithoutAdmission, "--webhook-bind-address", hold.Address)
}

// holdLease prevents managers from becoming the leader.
func (s *server) holdLease(ctx context.Context) error {
	now := metav1.NowMicro()
	_, err := s.admin.CoordinationV1().Leases(controlplane.SystemNamespace).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("benchmark"), LeaseDurationSeconds: ptr.To(int32(leaseDuration.Seconds())),
			AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create Lease %q: %w", leaseName, err)
	}
	return nil
}

// setInjected changes the effective set. No manager that is the leader must be running, because it would restore the
// set.
func (s *server) setInjected(ctx context.Context, content injected) error {
	objects, err := controlplane.NewClient(s.Admin)
	if err != nil {
		return err
	}
	set := &v1alpha1.NamespaceInitializerSet{}
	if err := objects.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set); err != nil {
		return fmt.Errorf("failed to read NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	set.Initializers, set.Templates = nil, content.templates
	for _, name := range content.initializers {
		set.Initializers = append(set.Initializers,
			v1alpha1.EffectiveInitializer{Name: name, Configuration: configurationName})
	}
	if err := objects.Update(ctx, set); err != nil {
		return fmt.Errorf("failed to change NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	return s.waitForInjected(ctx, strings.Join(content.initializers, ","))
}
