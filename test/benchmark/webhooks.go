// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
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
	templates    []internalv1alpha1.EffectiveTemplate
}

func injectedCases() []injected {
	names := initializerNames()
	defaults := internalv1alpha1.EffectiveTemplate{
		Name: configurationName, NamespaceSelector: &v1alpha1.NamespaceSelector{}, Access: v1alpha1.AccessOpen,
		Parameters: []v1alpha1.TemplateParameter{
			{Name: "first", Default: ptr.To("1")}, {Name: "second", Default: ptr.To("2")},
		},
	}
	withMetadata := *defaults.DeepCopy()
	parameter := internalv1alpha1.EffectivePart{Annotation: v1alpha1.PrefixParameter + "first", Default: "1"}
	withMetadata.Labels = []internalv1alpha1.EffectiveValue{
		{Key: "example.com/zone", Parts: []internalv1alpha1.EffectivePart{{Text: "zone-"}, parameter}},
		{Key: "pod-security.kubernetes.io/enforce", Parts: []internalv1alpha1.EffectivePart{{Text: "baseline"}}},
		{Key: "pod-security.kubernetes.io/warn", Parts: []internalv1alpha1.EffectivePart{{Text: "restricted"}}},
	}
	withMetadata.Annotations = []internalv1alpha1.EffectiveValue{
		{Key: "example.com/cost-center", Parts: []internalv1alpha1.EffectivePart{parameter}},
		{Key: "example.com/owner", Parts: []internalv1alpha1.EffectivePart{{Text: "user "}, {}}},
	}
	ofTemplates := []string{v1alpha1.TemplatesInitializer}
	return []injected{
		{what: "one initializer", initializers: names[:1]},
		{what: "three initializers", initializers: names},
		{what: "a template with two defaults", initializers: ofTemplates,
			templates: []internalv1alpha1.EffectiveTemplate{defaults}},
		{what: "a template with two defaults, three labels and two annotations", initializers: ofTemplates,
			templates: []internalv1alpha1.EffectiveTemplate{withMetadata}},
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
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := objects.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set); err != nil {
		return fmt.Errorf("failed to read NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	set.Initializers, set.Templates = nil, content.templates
	for _, name := range content.initializers {
		set.Initializers = append(set.Initializers,
			internalv1alpha1.EffectiveInitializer{
				Name: name, Configuration: configurationName, InitializerSettings: v1alpha1.DefaultInitializerSettings(),
			})
	}
	if err := objects.Update(ctx, set); err != nil {
		return fmt.Errorf("failed to change NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	return s.waitForInjected(ctx, strings.Join(content.initializers, ","))
}

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

// policyNames returns the labels of the policies, in the order in which the API server applies
// them.
func policyNames() []string {
	return []string{
		internalv1alpha1.PolicyInject, internalv1alpha1.PolicyComplete, internalv1alpha1.PolicyRequireSet,
		internalv1alpha1.PolicyGuard, internalv1alpha1.PolicyGate, internalv1alpha1.PolicyWaitingSubjects,
		internalv1alpha1.PolicyInitializerSubjects, internalv1alpha1.PolicyTemplates,
		internalv1alpha1.PolicyTemplateAuthors, internalv1alpha1.PolicyInitializerAuthors,
		internalv1alpha1.PolicyTemplateObjects,
		internalv1alpha1.PolicyConfine,
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
	for _, name := range policyNames() {
		if len(b.byLabel[name]) == 0 {
			return fmt.Errorf("there is no binding with label %s=%s", internalv1alpha1.LabelPolicy, name)
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
