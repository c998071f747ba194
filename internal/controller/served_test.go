// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestService(t *testing.T) {
	g := NewWithT(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbInitialize},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "corp", Name: "initializer"}},
	}
	waiting := wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Condition(corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}).Obj()
	reads := 0
	var rightsError error
	live := newFakeClient(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			reads++
			if rightsError != nil {
				return rightsError
			}
			return c.List(ctx, list, opts...)
		},
	}, role)
	passive := clocktesting.NewFakePassiveClock(now)
	service := &Service{
		Client: newFakeClient(interceptor.Funcs{}, waiting, wrappers.MakeNamespace("y").Obj()), Live: live, Clock: passive,
	}
	configuration := wrappers.MakeConfiguration("c").Generation(1).Initializers("rbac.corp.com")
	look := func(after time.Duration) (initialization.Service, bool) {
		passive.SetTime(now.Add(after))
		before := reads
		found := service.observe(t.Context(), []v1alpha1.NamespaceInitializerConfiguration{*configuration.Obj()})
		return found, reads > before
	}

	// That nobody may is looked at every time.
	for range 2 {
		found, isRead := look(0)
		g.Expect(found).To(Equal(initialization.Service{Neglected: map[string]initialization.Neglect{}}))
		g.Expect(isRead).To(BeTrue())
	}
	g.Expect(live.Create(t.Context(), binding)).To(Succeed())
	found, isRead := look(time.Second)
	g.Expect(found.IsPossible).To(BeTrue())
	g.Expect(isRead).To(BeTrue())

	// That somebody may is believed for a while, and namespaces are looked at all the same.
	found, isRead = look(rightsInterval)
	g.Expect(found).To(Equal(initialization.Service{IsPossible: true, Neglected: map[string]initialization.Neglect{
		"rbac.corp.com": {Namespace: "x", Since: found.Neglected["rbac.corp.com"].Since, Count: 1},
	}}))
	g.Expect(isRead).To(BeFalse())
	_, isRead = look(rightsInterval + time.Second)
	g.Expect(isRead).To(BeTrue())

	// Not for a configuration that has changed, nor where it cannot be read.
	configuration.Generation(2)
	rightsError = errOutage
	found, isRead = look(rightsInterval + 2*time.Second)
	g.Expect(isRead).To(BeTrue())
	g.Expect(found.WhyUnknown).To(Equal("listing the ClusterRoleBindings: " + errOutage.Error()))
	g.Expect(found.IsPossible).To(BeFalse())
}

// Both conditions are written at once, and it is looked again after a while.
func TestConfigurationReconcileTellsWhoServes(t *testing.T) {
	g := NewWithT(t)
	configuration := wrappers.MakeConfiguration("one").Initializers("rbac.corp.com")
	configuration.ResourceVersion = "5"
	server := &configurationServer{configurations: []*wrappers.ConfigurationWrapper{configuration}}
	c := server.client()
	passive := clocktesting.NewFakePassiveClock(now)
	reconciler := &ConfigurationReconciler{
		Stamper: ServerInjects{}, Clock: clocktesting.NewFakePassiveClock(now),
		Client: c, SystemNamespace: systemNamespace, Policies: newVerifier(interceptor.Funcs{}),
		Service: &Service{Client: newFakeClient(interceptor.Funcs{}), Live: newFakeClient(interceptor.Funcs{}), Clock: passive},
	}
	result, err := reconciler.Reconcile(t.Context(), requestFor(v1alpha1.EffectiveSetName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(ContainElement(
		HaveSuffix(": Active=False/PolicyMissing Healthy=False/InitializerUnauthorized")))
	g.Expect(result.RequeueAfter).To(Equal(servedInterval))
}
