// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

const (
	namespaceName = "demo-team"
	// nextName is the name of the namespace in the commands that the demo proposes.
	nextName = "demo-next"
	// appliedName is the name of the namespace in appliedFile, which is relative to the root of the repository.
	appliedName = "demo-shop"
	appliedFile = "hack/demo/manifests/shop.yaml"
	// stepTimeout is the maximum duration of a step of the tour.
	stepTimeout  = time.Minute
	pollInterval = 50 * time.Millisecond
)

//go:embed manifests/user.yaml
var userManifest string

// writeCommand is the command that the user runs before the namespace is initialized.
var writeCommand = []string{
	"create", "configmap", "settings", "--namespace=" + namespaceName, "--from-literal=color=blue",
}

// tour follows one namespace from its creation to the first write, and another one until its
// removal.
func (d *demo) tour(ctx context.Context) error {
	if err := inTurn(ctx,
		d.showRegistration, d.showCreation, d.showEarlyWrite, d.showResult,
		d.showApply, d.showNamespaceFinalizers, d.showDeletion, d.showRelease, d.showAgent,
	); err != nil {
		return err
	}
	if d.search != nil {
		if err := d.searchTour(ctx); err != nil {
			return err
		}
	}
	d.out.say("\nThis completes the tour. The first namespace was initialized before its user could write\n" +
		"to it, and the second one was empty before it was removed.")
	return nil
}

// inTurn runs the steps of a tour in order.
func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := withTimeout(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

func withTimeout(ctx context.Context, step func(context.Context) error) error {
	stepContext, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := step(stepContext)
	if err != nil && ctx.Err() == nil && stepContext.Err() != nil {
		return errors.Join(fmt.Errorf("this step took longer than %s", stepTimeout), err)
	}
	return err
}

func (d *demo) showRegistration(ctx context.Context) error {
	d.out.heading("An administrator registers two initializers")
	d.out.say("Every namespace that is created afterwards waits for both of them.")
	if err := d.register(ctx, d.show); err != nil {
		return err
	}
	output, err := d.show(ctx, d.admin, "get", "namespaceinitializerconfigurations")
	if err != nil {
		return err
	}
	if count := strings.Count(output, v1alpha1.ReasonEnforced); count != 2 {
		return fmt.Errorf("%d instead of 2 configurations are enforced", count)
	}
	return nil
}

// register creates the configurations and waits until they are active.
func (d *demo) register(
	ctx context.Context, run func(context.Context, actor, ...string) (string, error),
) error {
	if _, err := run(ctx, d.admin, "apply", "-f", configurationsFile); err != nil {
		return err
	}
	_, err := run(ctx, d.admin, "wait", "--for=condition=Ready", "--timeout=60s",
		"namespaceinitializerconfigurations", "--all")
	return err
}

func (d *demo) showCreation(ctx context.Context) error {
	d.out.heading("A user creates a namespace")
	d.out.say("At this point, %s can only create and view namespaces.", userName)
	if mayWrite, err := d.mayWriteTo(ctx, metav1.NamespaceDefault); err != nil || mayWrite {
		return errors.Join(err, fmt.Errorf("user %s should not be able to write to the default namespace", userName))
	}
	if _, err := d.show(ctx, d.user, "create", "namespace", namespaceName); err != nil {
		return err
	}
	d.out.say("\nThe API server has added the pending initializers in the same request:")
	output, err := d.show(ctx, d.user, "get", "namespace", namespaceName, "--output=jsonpath={.metadata.annotations}")
	if err != nil {
		return err
	}
	for _, want := range []string{v1alpha1.AnnotationPendingInitializers, ownerName + "," + policyName, userName} {
		if !strings.Contains(output, want) {
			return fmt.Errorf("the annotations of namespace %q do not contain %q", namespaceName, want)
		}
	}
	return nil
}

// mayWriteTo reports whether RBAC allows the user to create ConfigMaps in a namespace.
func (d *demo) mayWriteTo(ctx context.Context, namespace string) (bool, error) {
	client, err := kubernetes.NewForConfig(d.user.config)
	if err != nil {
		return false, fmt.Errorf("failed to create a client: %w", err)
	}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "create", Resource: "configmaps",
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("failed to check the permissions of user %s: %w", userName, err)
	}
	return review.Status.Allowed, nil
}

func (d *demo) showResult(ctx context.Context) error {
	d.out.heading("The objects of the initializers")
	d.out.say("The initializers have created a quota, a NetworkPolicy that denies all ingress, and a\n" +
		"RoleBinding for the user. No kube-controller-manager runs here to update the quota's usage.")
	if _, err := d.show(ctx, d.user, "get", "resourcequotas,networkpolicies,rolebindings",
		"--namespace="+namespaceName, "--output=wide"); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(d.user.config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	quota, err := client.CoreV1().ResourceQuotas(namespaceName).Get(ctx, initializers.QuotaName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	policy, err := client.NetworkingV1().NetworkPolicies(namespaceName).Get(ctx,
		initializers.NetworkPolicyName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding, err := client.RbacV1().RoleBindings(namespaceName).Get(ctx,
		initializers.OwnerBindingName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	isUser := func(subject rbacv1.Subject) bool { return subject.Kind == rbacv1.UserKind && subject.Name == userName }
	switch {
	case len(quota.Spec.Hard) == 0:
		return fmt.Errorf("ResourceQuota %q has no limits", quota.Name)
	case !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || len(policy.Spec.Ingress) > 0:
		return fmt.Errorf("NetworkPolicy %q allows ingress", policy.Name)
	case !slices.ContainsFunc(binding.Subjects, isUser):
		return fmt.Errorf("RoleBinding %q does not have user %s as a subject", binding.Name, userName)
	}
	return nil
}

// showApply creates a namespace and its content with one command.
func (d *demo) showApply(ctx context.Context) error {
	d.out.heading("A namespace and its content, with one command")
	d.out.say("The user has no permissions in the new namespace until its first initializer grants them. The\n" +
		"API server asks the authorization webhook, which waits, and then repeats the answer of RBAC.")
	_, err := d.show(ctx, d.user, "apply", "-f", appliedFile)
	return err
}
