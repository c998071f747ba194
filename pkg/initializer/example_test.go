// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

// This initializer makes the creator of a namespace its administrator.
func ExampleAdd() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	owner := func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		user := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
		binding := applyrbacv1.RoleBinding("owner", namespace.Name).
			WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName("admin")).
			WithSubjects(applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(user))
		// Use Apply instead of Create: a delayed request by another user might have created the
		// object.
		err := mgr.GetClient().Apply(ctx, binding, client.FieldOwner("owner.corp.example.com"), client.ForceOwnership)
		return initializer.Result{Message: "the owner is " + user}, err
	}
	if err := initializer.Add(mgr, "owner.corp.example.com", owner); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// Add reports an invalid name before any namespace waits for the initializer.
func ExampleAdd_badName() {
	fmt.Println(initializer.Add(nil, "owner", func(context.Context, *corev1.Namespace) (initializer.Result, error) {
		return initializer.Result{}, nil
	}))
	// Output: initializer name "owner" is not fully qualified: use at least three dot-separated parts, such as "quota.policy.example.com"
}

// If the initializer fails, the namespace is deleted, and its creator can read the reason.
func ExampleFailed() {
	team := func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		if namespace.Labels["team"] == "" {
			return initializer.Result{}, initializer.Failed(metav1.StatusReasonInvalid,
				`namespace %q has no label "team"; create the namespace again with this label`, namespace.Name)
		}
		return initializer.Result{}, nil
	}

	_, err := team(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	fmt.Println(err)
	// Output: permanent failure: Invalid: namespace "shop" has no label "team"; create the namespace again with this label
}

// Waiting is not an error: the condition contains the reason.
func ExampleNotYet() {
	certificate := func(context.Context, *corev1.Namespace) (initializer.Result, error) {
		return initializer.Result{}, initializer.NotYet(10*time.Second, "Issuing", "the certificate authority has not answered")
	}

	_, err := certificate(context.Background(), &corev1.Namespace{})
	var notYet *initializer.NotYetError
	if errors.As(err, &notYet) {
		fmt.Printf("%s: %s, again after %s\n", notYet.Reason, notYet.Message, notYet.After)
	}
	// Output: Issuing: the certificate authority has not answered, again after 10s
}

// A long-running initializer reports its progress.
func ExampleProgress() {
	indices := func(ctx context.Context, _ *corev1.Namespace) (initializer.Result, error) {
		for i, index := range []string{"orders", "customers"} {
			initializer.Progress(ctx, "Creating", "index %s, %d of 2", index, i+1)
		}
		return initializer.Result{Reason: "Created", Message: "2 indices"}, nil
	}

	// Without a context of package initializer, as in a unit test, Progress does nothing.
	result, err := indices(context.Background(), &corev1.Namespace{})
	fmt.Println(result.Reason, result.Message, err)
	// Output: Created 2 indices <nil>
}

// Before a configuration registers the initializer, a program can check its permissions.
func ExampleCheck() {
	err := initializer.Check(context.Background(), ctrl.GetConfigOrDie(), "owner.corp.example.com")
	var missing *initializer.MissingPermissionsError
	if errors.As(err, &missing) {
		fmt.Println(missing.Message) // The error includes the commands that grant the missing permissions.
	}
}
