// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// readBirth reads who could act on a namespace that waits for its initializers, if anybody
// is going to be blamed.
func (g *gathering) readBirth(ctx context.Context) {
	pending := pendingInitializers(g.facts.Namespace)
	if !g.facts.isOverdue(g.facts.turnBegan(pending[0])) {
		return
	}
	sideBySide(
		func() { g.readBindings(ctx) },
		func() {
			list := &rbacv1.ClusterRoleList{}
			if g.list(ctx, SourceRoles, list) {
				g.note(func(facts *Facts) { facts.ClusterRoles = list.Items })
			}
		},
		func() {
			list := &v1alpha1.NamespaceInitializerConfigurationList{}
			if g.list(ctx, SourceConfigurations, list) {
				g.note(func(facts *Facts) { facts.Registered = registered(list) })
			}
		},
	)
	var reads []func()
	for subject := range g.facts.holderSubjects() {
		if subject.Kind != rbacv1.ServiceAccountKind || len(reads) >= mostQuestions {
			continue
		}
		account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
		reads = append(reads, func() { g.readAccount(ctx, account) }, func() { g.readRunners(ctx, account) })
	}
	sideBySide(reads...)
}

func registered(list *v1alpha1.NamespaceInitializerConfigurationList) []string {
	var names []string
	for _, configuration := range list.Items {
		for _, initializer := range configuration.Initializers {
			names = append(names, initializer.Name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}

// readTokens reads which initializer a token of the Namespace comes with, if it has one that
// is not the namespace controller's.
func (g *gathering) readTokens(ctx context.Context) {
	if len(g.facts.tokens()) == 0 {
		return
	}
	list := &v1alpha1.NamespaceInitializerConfigurationList{}
	if g.list(ctx, SourceConfigurations, list) {
		g.note(func(facts *Facts) { facts.Tokens = registeredTokens(list) })
	}
}

// registeredTokens returns them in the order in which the configurations count.
func registeredTokens(list *v1alpha1.NamespaceInitializerConfigurationList) []RegisteredToken {
	var tokens []RegisteredToken
	for _, configuration := range list.Items {
		for _, initializer := range configuration.Initializers {
			if initializer.Finalizer != "" {
				tokens = append(tokens, RegisteredToken{initializer.Finalizer, initializer.Name, configuration.Name})
			}
		}
	}
	slices.SortStableFunc(tokens, func(a, b RegisteredToken) int {
		return strings.Compare(a.Configuration, b.Configuration)
	})
	return tokens
}

// readRunners reads the running pods of a ServiceAccount.
func (g *gathering) readRunners(ctx context.Context, account types.NamespacedName) {
	list := &corev1.PodList{}
	running := client.MatchingFieldsSelector{Selector: fields.SelectorFromSet(fields.Set{
		"spec.serviceAccountName": account.Name, "status.phase": string(corev1.PodRunning),
	})}
	if !g.list(ctx, SourcePods, list, inNamespace(account.Namespace), running, atMost(mostComplainants)) {
		return
	}
	g.note(func(facts *Facts) {
		for i := range list.Items {
			facts.Workloads = append(facts.Workloads, Workload{
				Source: SourcePods, Namespace: account.Namespace, Name: list.Items[i].Name, Account: account,
				Wanted: 1, Ready: 1,
			})
		}
	})
}
