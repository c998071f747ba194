// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Unlimited returns a copy of a configuration without a client-side rate limit and without
// deprecation warnings.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// NewClient returns a client with an Unlimited configuration. Its scheme contains the manager's
// types and the types that the functions add.
func NewClient(config *rest.Config, add ...func(*runtime.Scheme) error) (client.Client, error) {
	types := scheme.New()
	var errs []error
	for _, addToScheme := range add {
		errs = append(errs, addToScheme(types))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("failed to add types to the scheme: %w", err)
	}
	result, err := client.New(Unlimited(config), client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return result, nil
}

const metricsReader = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: metrics-reader
  namespace: ` + SystemNamespace + `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: metrics-reader
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: nslifecycle-metrics-reader
subjects:
- kind: ServiceAccount
  name: metrics-reader
  namespace: ` + SystemNamespace + `
`

// MetricsClient returns a client that managers allow to read their metrics. It accepts their self-signed certificates.
func (c *ControlPlane) MetricsClient(ctx context.Context) (*http.Client, error) {
	if _, err := c.KubectlWithInput(ctx, c.Admin, metricsReader, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	config, err := c.ServiceAccountConfig(ctx, SystemNamespace, "metrics-reader")
	if err != nil {
		return nil, err
	}
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &http.Client{Transport: transport.NewBearerAuthRoundTripper(config.BearerToken, insecure)}, nil
}

// AggregateClusterRoles sets the rules of aggregated ClusterRoles, such as admin and edit. Without
// kube-controller-manager, which updates these rules continuously, the roles are empty.
func (c *ControlPlane) AggregateClusterRoles(ctx context.Context) error {
	clientset, err := kubernetes.NewForConfig(c.Admin)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	roles, err := clientset.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("failed to list ClusterRoles: %w", err)
	}
	for _, role := range roles.Items {
		if role.AggregationRule == nil {
			continue
		}
		if role.Rules, err = collectRules(role, roles.Items, sets.New[string]()); err != nil {
			return err
		}
		if _, err := clientset.RbacV1().ClusterRoles().Update(ctx, &role, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("failed to update the rules of ClusterRole %q: %w", role.Name, err)
		}
	}
	return nil
}

// collectRules returns the rules of a role, or of the roles that it aggregates: admin aggregates
// edit, and edit aggregates view. Each role is included once.
func collectRules(
	role rbacv1.ClusterRole, roles []rbacv1.ClusterRole, seen sets.Set[string],
) ([]rbacv1.PolicyRule, error) {
	seen.Insert(role.Name)
	if role.AggregationRule == nil {
		return role.Rules, nil
	}
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("failed to parse the aggregation rule of ClusterRole %q: %w", role.Name, err)
		}
		for _, part := range roles {
			if seen.Has(part.Name) || !selector.Matches(labels.Set(part.Labels)) {
				continue
			}
			more, err := collectRules(part, roles, seen)
			if err != nil {
				return nil, err
			}
			rules = append(rules, more...)
		}
	}
	return rules, nil
}
