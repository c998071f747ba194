// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// authorizedInitializer returns the permissions of an initializer.
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

// newHealthChecker returns a health checker that reports all initializers as healthy.
func newHealthChecker() *initializerhealth.Checker {
	role, binding := authorizedInitializer()
	return &initializerhealth.Checker{
		Client: newFakeClient(interceptor.Funcs{}), Live: newFakeClient(interceptor.Funcs{}, role, binding),
		Clock: clocktesting.NewFakePassiveClock(now),
	}
}

// Both conditions are written in the same request, and the health is checked periodically.
func TestConfigurationReconcileReportsHealth(t *testing.T) {
	g := NewWithT(t)
	configuration := wrappers.MakeConfiguration("one").Initializers("rbac.corp.com")
	configuration.ResourceVersion = "5"
	server := &configurationServer{
		configurations: []*wrappers.ConfigurationWrapper{configuration}, set: verifiedSet("rbac.corp.com"),
	}
	c := server.client()
	passive := clocktesting.NewFakePassiveClock(now)
	reconciler := &ConfigurationReconciler{
		Clock:  clocktesting.NewFakePassiveClock(now),
		Client: c, Live: c, SystemNamespace: systemNamespace,
		HealthChecker: &initializerhealth.Checker{Client: newFakeClient(interceptor.Funcs{}), Live: newFakeClient(interceptor.Funcs{}), Clock: passive},
	}
	result, err := reconciler.Reconcile(t.Context(), requestFor(v1alpha1.EffectiveSetName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(ContainElement(
		HaveSuffix(": Active=True/Enforced Healthy=False/InitializerUnauthorized")))
	g.Expect(result.RequeueAfter).To(Equal(initializerhealth.Interval))
}
