// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
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

// policyNames returns the labels of the policies, in the order in which the API server applies
// them.
func policyNames() []string {
	return []string{
		v1alpha1.PolicyInject, v1alpha1.PolicyComplete, v1alpha1.PolicyRequireSet, v1alpha1.PolicyGuard,
		v1alpha1.PolicyGate, v1alpha1.PolicyWaitingSubjects, v1alpha1.PolicyInitializerSubjects,
		v1alpha1.PolicyTemplates, v1alpha1.PolicyTemplateAuthors, v1alpha1.PolicyTemplateObjects, v1alpha1.PolicyConfine,
	}
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
		if err := objects.List(ctx, list, client.HasLabels{v1alpha1.LabelPolicy}); err != nil {
			return nil, fmt.Errorf("failed to list the policy bindings: %w", err)
		}
	}
	for i := range mutating.Items {
		label := mutating.Items[i].Labels[v1alpha1.LabelPolicy]
		found.byLabel[label] = append(found.byLabel[label], &mutating.Items[i])
	}
	for i := range validating.Items {
		label := validating.Items[i].Labels[v1alpha1.LabelPolicy]
		found.byLabel[label] = append(found.byLabel[label], &validating.Items[i])
	}
	return found, nil
}

// keepOnly disables all policies except the named ones.
func (b *bindings) keepOnly(ctx context.Context, names ...string) error {
	for _, name := range policyNames() {
		if len(b.byLabel[name]) == 0 {
			return fmt.Errorf("there is no binding with label %s=%s", v1alpha1.LabelPolicy, name)
		}
		for _, binding := range b.byLabel[name] {
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
	select {
	case <-time.After(policyDelay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
