// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// maxInitializerPods is the maximum number of running pods of a ServiceAccount that are read.
const maxInitializerPods = 10

func (c *collection) readClusterRoles(ctx context.Context) {
	list := &rbacv1.ClusterRoleList{}
	if c.list(ctx, diagnosis.SourceClusterRoles, list) {
		c.update(func(facts *diagnosis.Facts) { facts.ClusterRoles = list.Items })
	}
}

func (c *collection) readInitializers(ctx context.Context) {
	list := &v1alpha1.NamespaceInitializerConfigurationList{}
	if c.list(ctx, diagnosis.SourceConfigurations, list) {
		c.update(func(facts *diagnosis.Facts) {
			facts.Initializers = initializersOf(list)
			for i := range list.Items {
				facts.WaitingSubjects = append(facts.WaitingSubjects, list.Items[i].WaitingSubjects...)
			}
		})
	}
}

// readInitializersOfFinalizers reads the initializers if the Namespace has a namespace finalizer that
// can belong to one of them.
func (c *collection) readInitializersOfFinalizers(ctx context.Context) {
	if len(c.facts.ExternalNamespaceFinalizers()) > 0 {
		c.readInitializers(ctx)
	}
}

// initializersOf returns the initializers, sorted by the names of their configurations.
func initializersOf(list *v1alpha1.NamespaceInitializerConfigurationList) []diagnosis.RegisteredInitializer {
	var initializers []diagnosis.RegisteredInitializer
	for _, configuration := range list.Items {
		for _, initializer := range configuration.Initializers {
			initializers = append(initializers,
				diagnosis.RegisteredInitializer{
					Name: initializer.Name, Finalizer: initializer.Finalizer, Configuration: configuration.Name,
					Subjects: initializer.Subjects,
				})
		}
	}
	slices.SortStableFunc(initializers, func(a, b diagnosis.RegisteredInitializer) int {
		return cmp.Compare(a.Configuration, b.Configuration)
	})
	return initializers
}

// readInitializerPods reads the ServiceAccounts that may initialize the namespace, and their pods.
func (c *collection) readInitializerPods(ctx context.Context) {
	accounts := owners.InitializerAccounts(c.facts)
	inParallel(accounts[:min(len(accounts), owners.MaxChecked)], func(account types.NamespacedName) {
		c.readServiceAccount(ctx, account)
		c.readPodsOfServiceAccount(ctx, account)
	})
}

// readPodsOfServiceAccount reads the running pods of a ServiceAccount.
func (c *collection) readPodsOfServiceAccount(ctx context.Context, account types.NamespacedName) {
	list := &corev1.PodList{}
	running := client.MatchingFieldsSelector{Selector: fields.SelectorFromSet(fields.Set{
		"spec.serviceAccountName": account.Name, "status.phase": string(corev1.PodRunning),
	})}
	if !c.list(ctx, diagnosis.SourcePods, list, client.InNamespace(account.Namespace), running,
		client.Limit(maxInitializerPods)) {
		return
	}
	c.update(func(facts *diagnosis.Facts) {
		for i := range list.Items {
			facts.Workloads = append(facts.Workloads, diagnosis.Workload{
				Source: diagnosis.SourcePods, Namespace: account.Namespace, Name: list.Items[i].Name,
				ServiceAccount: account, Desired: 1, Ready: 1,
			})
		}
	})
}
