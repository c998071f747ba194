// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializerhealth

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var (
	now            = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	errUnavailable = errors.New("the API server is unavailable")
)

func newFakeClient(funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// authorizedInitializer returns RBAC objects that authorize an initializer.
func authorizedInitializer() (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbInitialize},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "corp", Name: "initializer"}},
	}
	return role, binding
}

func TestCheck(t *testing.T) {
	g := NewWithT(t)
	role, binding := authorizedInitializer()
	waiting := wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Condition(corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}).Obj()
	reads := 0
	var listError error
	live := newFakeClient(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			reads++
			if listError != nil {
				return listError
			}
			return c.List(ctx, list, opts...)
		},
	}, role)
	passive := clocktesting.NewFakePassiveClock(now)
	checker := &Checker{
		Client: newFakeClient(interceptor.Funcs{}, waiting, wrappers.MakeNamespace("y").Obj()), Live: live, ServerClock: servertime.NewClock(passive),
	}
	configuration := wrappers.MakeConfiguration("c").Generation(1).Initializers("rbac.corp.com")
	check := func(after time.Duration) (initialization.Health, bool) {
		passive.SetTime(now.Add(after))
		before := reads
		health := checker.Check(t.Context(), []v1alpha1.NamespaceInitializerConfiguration{*configuration.Obj()})
		return health, reads > before
	}

	// A failed check is repeated on each call.
	for range 2 {
		health, isRead := check(0)
		g.Expect(health).To(Equal(initialization.Health{Unresponsive: map[string]initialization.Unresponsive{}}))
		g.Expect(isRead).To(BeTrue())
	}
	g.Expect(live.Create(t.Context(), binding)).To(Succeed())
	health, isRead := check(time.Second)
	g.Expect(health.IsAuthorized).To(BeTrue())
	g.Expect(isRead).To(BeTrue())

	// A successful check is cached for authorizationInterval. Namespaces are checked on each call.
	health, isRead = check(authorizationInterval)
	g.Expect(health).To(Equal(initialization.Health{IsAuthorized: true, Unresponsive: map[string]initialization.Unresponsive{
		"rbac.corp.com": {Namespace: "x", Since: health.Unresponsive["rbac.corp.com"].Since, Count: 1},
	}}))
	g.Expect(isRead).To(BeFalse())
	_, isRead = check(authorizationInterval + time.Second)
	g.Expect(isRead).To(BeTrue())

	// The check is repeated after a configuration has changed.
	configuration.Generation(2)
	listError = errUnavailable
	health, isRead = check(authorizationInterval + 2*time.Second)
	g.Expect(isRead).To(BeTrue())
	g.Expect(health.AuthorizationError).To(Equal("failed to list ClusterRoleBindings: " + errUnavailable.Error()))
	g.Expect(health.IsAuthorized).To(BeFalse())
}
