// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package contentrole

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

func TestKeeperEnsure(t *testing.T) {
	const user, name = "system:serviceaccount:system:nslifecycle-controller-manager", "nslifecycle-content"
	errOutage := errors.New("the API server is unavailable")
	errConflict := apierrors.NewConflict(schema.GroupResource{Resource: "clusterroles"}, name, errors.New("changed"))
	withPods := []rbacv1.PolicyRule{rule("delete,list,watch", "pods", "")}
	tests := map[string]struct {
		user string
		// rules are those in the role; nil if it does not exist.
		rules        []rbacv1.PolicyRule
		getError     error
		updateErrors []error
		wantUpdates  int
		wantRules    []string
		wantReviews  int
		wantError    error
	}{
		"the operator has no ServiceAccount": {user: "dana", rules: []rbacv1.PolicyRule{}},
		"the role does not exist":            {user: user},
		"the role may not be read":           {user: user, getError: apierrors.NewForbidden(schema.GroupResource{}, name, nil)},
		"the role cannot be read":            {user: user, getError: errOutage, wantError: errOutage},
		"nothing is missing":                 {user: user, rules: withPods},
		"a type is missing": {
			user: user, rules: []rbacv1.PolicyRule{}, wantUpdates: 1, wantRules: textOf(withPods), wantReviews: 1,
		},
		"another client was faster": {
			user: user, rules: []rbacv1.PolicyRule{}, updateErrors: []error{errConflict}, wantUpdates: 2, wantRules: textOf(withPods),
			wantReviews: 1,
		},
		"the role cannot be updated, and is not soon again": {
			user: user, rules: []rbacv1.PolicyRule{}, updateErrors: []error{errOutage}, wantUpdates: 1, wantRules: []string{},
			wantError: errOutage,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			role := &rbacv1.ClusterRole{Rules: test.rules}
			role.Name = "nslifecycle-content"
			builder := fake.NewClientBuilder().WithScheme(scheme.New())
			if test.rules != nil {
				builder.WithObjects(role)
			}
			updates, reviews := 0, 0
			api := builder.WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if test.getError != nil {
						return test.getError
					}
					return c.Get(ctx, key, object, opts...)
				},
				Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
					if updates++; updates <= len(test.updateErrors) {
						return test.updateErrors[updates-1]
					}
					return c.Update(ctx, object, opts...)
				},
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					reviews++
					object.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = true
					return nil
				},
			}).Build()
			keeper := NewContent(Config{User: test.user, Client: api, Clock: clocktesting.NewFakePassiveClock(time.Now()), Log: logr.Discard()})
			found := discovered().with("pods.v1.", ServerLocal, true)
			err := keeper.ensure(t.Context(), found.Discovery, everything)
			if test.wantError == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			if test.getError == nil {
				g.Expect(keeper.ensure(t.Context(), found.Discovery, everything)).To(Succeed(), "nothing is sent again")
			}
			g.Expect(updates).To(Equal(test.wantUpdates))
			g.Expect(reviews).To(Equal(test.wantReviews))
			if test.wantRules != nil {
				g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(role), role)).To(Succeed())
				g.Expect(textOf(role.Rules)).To(Equal(test.wantRules))
			}
		})
	}
}
