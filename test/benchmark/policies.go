// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// configurationName is the name of the only configuration.
	configurationName = "bench"
	// settleTimeout is the maximum time for the API server to apply a change. The API server
	// discovers a new parameter type within 30 s.
	settleTimeout = 90 * time.Second
	// policyDelay is the time to wait after a binding is created or deleted. API servers check for
	// changes every second.
	policyDelay = 3 * time.Second
)

// initializerNames returns the names of the registered initializers, in order.
func initializerNames() []string {
	return []string{"first.bench.example.com", "second.bench.example.com", "third.bench.example.com"}
}

// deregister removes the initializers from the effective set. The manager must not be running, because it would restore
// the set.
func (s *server) deregister(ctx context.Context) error {
	objects, err := controlplane.NewClient(s.Admin)
	if err != nil {
		return err
	}
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := objects.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set); err != nil {
		return fmt.Errorf("failed to read NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	set.Initializers = nil
	if err := objects.Update(ctx, set); err != nil {
		return fmt.Errorf("failed to change NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	return s.waitForInjected(ctx, "")
}

// register registers the initializers. The manager must be running.
func (s *server) register(ctx context.Context) error {
	objects, err := controlplane.NewClient(s.Admin)
	if err != nil {
		return err
	}
	configuration := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}
	for _, name := range initializerNames() {
		configuration.Initializers = append(configuration.Initializers, v1alpha1.NamespaceInitializer{Name: name})
	}
	if err := objects.Create(ctx, configuration); err != nil {
		return fmt.Errorf("failed to create configuration %q: %w", configurationName, err)
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second/4, settleTimeout, true, func(ctx context.Context) (bool, error) {
		err := objects.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		return meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionActive), err
	})
	if err != nil {
		return fmt.Errorf("failed to wait for configuration %q to become active: %w", configurationName, err)
	}
	return nil
}

// waitForInjected waits until new namespaces have the given pending list. If the API server removes
// a user's annotation with the project's prefix, the inject policy is enforced.
func (s *server) waitForInjected(ctx context.Context, list string) error {
	const sent = v1alpha1.Prefix + "sent-by-user"
	err := wait.PollUntilContextTimeout(ctx, time.Second/4, settleTimeout, true, func(ctx context.Context) (bool, error) {
		probe, err := s.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: prefix + "probe", Annotations: map[string]string{sent: "true"},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) { // The policies read the set one after the other.
			return false, nil
		}
		if err != nil {
			return false, err
		}
		_, isStillThere := probe.Annotations[sent]
		return !isStillThere && probe.Annotations[v1alpha1.AnnotationPendingInitializers] == list, nil
	})
	if err != nil {
		return fmt.Errorf("failed to wait for new namespaces to get the list %q: %w", list, err)
	}
	return nil
}

// bindings disables admission policies and restores them.
type bindings struct {
	objects client.Client
	byLabel map[string][]client.Object
}

func (s *server) findBindings(ctx context.Context) (*bindings, error) {
	objects, err := controlplane.NewClient(s.Admin)
	if err != nil {
		return nil, err
	}
	found := &bindings{objects: objects, byLabel: map[string][]client.Object{}}
	var mutating admissionv1.MutatingAdmissionPolicyBindingList
	var validating admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&mutating, &validating} {
		if err := objects.List(ctx, list, client.HasLabels{internalv1alpha1.LabelPolicy}); err != nil {
			return nil, fmt.Errorf("failed to list the policy bindings: %w", err)
		}
	}
	for i := range mutating.Items {
		label := mutating.Items[i].Labels[internalv1alpha1.LabelPolicy]
		found.byLabel[label] = append(found.byLabel[label], &mutating.Items[i])
	}
	for i := range validating.Items {
		label := validating.Items[i].Labels[internalv1alpha1.LabelPolicy]
		found.byLabel[label] = append(found.byLabel[label], &validating.Items[i])
	}
	return found, nil
}

// keepOnly disables all policies except the named ones.
func (b *bindings) keepOnly(ctx context.Context, names ...string) error {
	for name, ofPolicy := range b.byLabel {
		for _, binding := range ofPolicy {
			var err error
			if slices.Contains(names, name) {
				fresh := binding.DeepCopyObject().(client.Object)
				fresh.SetUID("")
				fresh.SetResourceVersion("")
				err = client.IgnoreAlreadyExists(b.objects.Create(ctx, fresh))
			} else {
				err = client.IgnoreNotFound(b.objects.Delete(ctx, binding))
			}
			if err != nil {
				return fmt.Errorf("failed to change the enforced policies: %w", err)
			}
		}
	}
	return waitForPolicies(ctx)
}

// waitForPolicies waits until the API server has applied a change of policies.
func waitForPolicies(ctx context.Context) error {
	select {
	case <-time.After(policyDelay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// installLeastPolicy installs a mutating policy that adds a constant label to namespaces, without parameters,
// conditions and variables, and returns a function that removes it.
func (s *server) installLeastPolicy(ctx context.Context) (remove func(context.Context) error, err error) {
	const name = "bench-least"
	registration := s.admin.AdmissionregistrationV1()
	remove = func(ctx context.Context) error {
		return errors.Join(
			registration.MutatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}),
			registration.MutatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"},
			},
		},
	}}}
	policy.Spec.Mutations = []admissionv1.Mutation{{
		PatchType: admissionv1.PatchTypeJSONPatch,
		JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/metadata/labels/example.com~1least", value: "x"}]`,
		},
	}}
	if _, err := registration.MutatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("failed to create policy %q: %w", name, err)
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName = name
	if _, err := registration.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("failed to create the binding of policy %q: %w", name, err)
	}
	return remove, waitForPolicies(ctx)
}
