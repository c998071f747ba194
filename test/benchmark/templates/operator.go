// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// operator is nslifecycle with a NamespaceTemplate.
type operator struct{}

// install also grants what the administrator of a template grants: the template's ServiceAccount can
// write the objects, and the manager can impersonate it.
func (*operator) install(ctx context.Context, c *cluster) error {
	if err := c.Install(ctx); err != nil {
		return err
	}
	if err := c.AggregateClusterRoles(ctx); err != nil {
		return err
	}
	if err := c.createServiceAccount(ctx, controlplane.SystemNamespace, objectName,
		append(makeRules("create", "patch", "get", "list", "delete"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFurnish},
		})...); err != nil {
		return err
	}
	manager := rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
	}
	return c.grant(ctx, manager, "bench-impersonate", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{objectName},
		Verbs: []string{"impersonate"},
	})
}

func (*operator) start(ctx context.Context, c *cluster) ([]*service, error) {
	binary, err := harness.BuildManager(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.writeKubeconfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	if err != nil {
		return nil, err
	}
	if _, err := c.StartAdmission(ctx); err != nil {
		return nil, err
	}
	started := 0
	s, err := startService(ctx, func(ctx context.Context) (*harness.Process, error) {
		started++
		return harness.StartProcess(ctx, "the manager", filepath.Join(c.Dir, fmt.Sprintf("manager-%d.log", started)), binary,
			"--kubeconfig", kubeconfig, controlplane.WithoutAdmission, "--leader-elect=false",
			"--health-probe-bind-address=0", "--metrics-bind-address=0")
	})
	if err != nil {
		return nil, err
	}
	return []*service{s}, nil
}

// apply repeats the request, since the API server rejects it until the manager has started.
func (*operator) apply(ctx context.Context, c *cluster, pods int, mode v1alpha1.ReadinessMode) error {
	spec, err := makeTemplate(pods, mode)
	if err != nil {
		return err
	}
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	return poll(ctx, "the NamespaceTemplate", func(ctx context.Context) (bool, error) {
		_, err := controllerutil.CreateOrUpdate(ctx, c.admin, template, func() error {
			template.Spec = spec
			return nil
		})
		return err == nil, err
	})
}
