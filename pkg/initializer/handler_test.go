// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	own     = "b.corp.com"
	failure = `{"status":"Failure","reason":"NoQuota"}`
)

func waiting(names ...string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace("shop").UID("shop-uid").Initializers(names...)
}

func TestMatches(t *testing.T) {
	for name, test := range map[string]struct {
		namespace               *corev1.Namespace
		want, wantWhenUnordered bool
	}{
		"only one":                  {waiting(own).Obj(), true, true},
		"first":                     {waiting(own, "c.corp.com").Obj(), true, true},
		"not its turn":              {waiting("a.corp.com", own).Obj(), false, true},
		"not in the list":           {waiting("a.corp.com").Obj(), false, false},
		"substring of other names":  {waiting("x"+own, own+"x").Obj(), false, false},
		"initialized":               {wrappers.MakeNamespace("shop").Obj(), false, false},
		"terminating":               {waiting(own).Terminating(time.Now()).Obj(), false, false},
		"failure result":            {waiting(own).Result(failure).Obj(), false, false},
		"invalid result is ignored": {waiting(own).Result("all is well").Obj(), true, true},
	} {
		for isUnordered, want := range map[bool]bool{false: test.want, true: test.wantWhenUnordered} {
			e := &engine{name: own, options: options{isUnordered: isUnordered}}
			if got := e.matches(test.namespace); got != want {
				t.Errorf("%s, unordered %t: %t, want %t", name, isUnordered, got, want)
			}
		}
	}
}

// denied returns the error for a request that an admission webhook denies with a status code.
func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "a.example.com" denied the request: frozen`,
	}}
}

func newForbidden(text string) error {
	return apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New(text))
}

// newClient returns a fake API server. Patches are described in patches, and fail if refuse returns an error.
func newClient(live *corev1.Namespace, patches *[]string, refuse func(number int) error) client.Client {
	builder := fake.NewClientBuilder().WithScheme(scheme.New())
	if live != nil {
		builder.WithObjects(live)
	}
	return builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			object.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = "system:serviceaccount:test:test"
			return nil
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			*patches = append(*patches, describe(object, patch))
			if refuse != nil {
				if err := refuse(len(*patches)); err != nil {
					return err
				}
			}
			err := c.Patch(ctx, object, patch, opts...)
			var status apierrors.APIStatus
			if err != nil && !errors.As(err, &status) { // a test operation, for which an API server returns Invalid
				return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "shop", nil)
			}
			return err
		},
	}).Build()
}

func describe(object client.Object, patch client.Patch) string {
	data, _ := patch.Data(object)
	var operations []operation
	if err := json.Unmarshal(data, &operations); err != nil {
		return err.Error()
	}
	var parts []string
	for _, operation := range operations {
		path := strings.TrimPrefix(strings.TrimPrefix(operation.Path, "/metadata/annotations/nslifecycle.dev~1"), "/metadata/")
		parts = append(parts, fmt.Sprintf("%s %s=%s", operation.Operation, path, operation.Value))
	}
	return strings.Join(parts, ", ")
}

func TestFinish(t *testing.T) {
	const precondition = "test uid=shop-uid, test pending-initializers="
	last := precondition + "b.corp.com, replace pending-initializers="
	always := func(err error) func(int) error { return func(int) error { return err } }
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("busy"))
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "shop", nil)
	grant := "kubectl create clusterrole initializer:b.corp.com --verb=get,list,watch,patch,initialize --resource=namespaces; " +
		"kubectl create clusterrolebinding initializer:b.corp.com --clusterrole=initializer:b.corp.com --serviceaccount=test:test"
	for name, test := range map[string]struct {
		cached, live *corev1.Namespace // If live is nil, the API server returns cached.
		isGone       bool
		options      options
		refuse       func(number int) error

		wantPatches []string
		want        bool
		wantErr     []string
	}{
		"last initializer": {cached: waiting(own).Obj(), wantPatches: []string{last}, want: true},
		"first initializer": {
			cached: waiting(own, "c.corp.com").Obj(), want: true,
			wantPatches: []string{precondition + "b.corp.com,c.corp.com, replace pending-initializers=c.corp.com"},
		},
		"unordered": {
			cached: waiting("a.corp.com", own, "c.corp.com").Obj(), options: options{isUnordered: true}, want: true,
			wantPatches: []string{
				precondition + "a.corp.com,b.corp.com,c.corp.com, replace pending-initializers=a.corp.com,c.corp.com",
			},
		},
		"another initializer has finished": {
			cached: waiting(own, "c.corp.com", "d.corp.com").Obj(), live: waiting(own, "d.corp.com").Obj(), want: true,
			wantPatches: []string{
				precondition + "b.corp.com,c.corp.com,d.corp.com, replace pending-initializers=c.corp.com,d.corp.com",
				precondition + "b.corp.com,d.corp.com, replace pending-initializers=d.corp.com",
			},
		},
		"conflict": {
			cached: waiting(own).Obj(), refuse: func(number int) error {
				if number == 1 {
					return conflict
				}
				return nil
			},
			wantPatches: []string{last, last}, want: true,
		},
		"skipped by the operator": {
			cached: waiting(own, "c.corp.com").Obj(), live: waiting("c.corp.com").Obj(),
			wantPatches: []string{precondition + "b.corp.com,c.corp.com, replace pending-initializers=c.corp.com"},
		},
		"another initializer has failed": {
			cached: waiting(own, "c.corp.com").Obj(), live: waiting(own).Result(failure).Obj(),
			wantPatches: []string{precondition + "b.corp.com,c.corp.com, replace pending-initializers=c.corp.com"},
		},
		"deleted":   {cached: waiting(own).Obj(), isGone: true, wantPatches: []string{last}, wantErr: []string{"not found"}},
		"recreated": {cached: waiting(own).Obj(), live: waiting(own).UID("x").Obj(), wantPatches: []string{last}, wantErr: []string{"not found"}},
		"rejected": {
			cached: waiting(own).Obj(), refuse: always(invalid), wantPatches: []string{last, last}, wantErr: []string{"is invalid"},
		},
		"denied with code 404": {
			cached: waiting(own).Obj(), refuse: always(denied(404)), wantPatches: []string{last}, wantErr: []string{"frozen"},
		},
		"denied with code 403": {
			cached: waiting(own).Obj(), refuse: always(denied(403)), wantPatches: []string{last},
			wantErr: []string{"failed to patch annotation nslifecycle.dev/pending-initializers of namespace \"shop\": " +
				"admission webhook \"a.example.com\" denied the request: frozen"},
		},
		"denied by guard": {
			cached: waiting(own).Obj(), wantPatches: []string{last}, wantErr: []string{grant},
			refuse: always(newForbidden(
				`ValidatingAdmissionPolicy 'nslifecycle-guard' with binding 'nslifecycle-guard' denied request: no`)),
		},
		"missing permission": {
			cached: waiting(own).Obj(), wantPatches: []string{last},
			refuse: always(newForbidden(
				`User "test" cannot patch resource "namespaces" in API group "" at the cluster scope`)),
			wantErr: []string{
				`initializer "b.corp.com"`, `namespace "shop"`, "patch and initialize on namespaces", "ClusterRoleBinding", grant,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := test.live
			if live == nil && !test.isGone {
				live = test.cached.DeepCopy()
			}
			var patches []string
			e := &engine{client: newClient(live, &patches, test.refuse), name: own, options: test.options}
			got, err := e.finish(t.Context(), test.cached)
			g.Expect(got).To(Equal(test.want))
			g.Expect(patches).To(Equal(test.wantPatches))
			g.Expect(err != nil).To(Equal(test.wantErr != nil))
			for _, text := range test.wantErr {
				g.Expect(err).To(MatchError(ContainSubstring(text)))
			}
		})
	}
}

func TestFail(t *testing.T) {
	g := NewWithT(t)
	var patches []string
	e := &engine{client: newClient(waiting(own).Obj(), &patches, nil), name: own}
	failed := &FailedError{Reason: "NoQuota", Message: "<none> left\x1b" + strings.Repeat("x", 2000)}
	g.Expect(e.fail(t.Context(), waiting(own).Obj(), failed)).To(BeTrue())
	g.Expect(patches).To(HaveLen(1))
	_, result, found := strings.Cut(patches[0], "test pending-initializers=b.corp.com, add initialization-result=")
	g.Expect(found).To(BeTrue())
	var status metav1.Status
	g.Expect(json.Unmarshal([]byte(result), &status)).To(Succeed())
	g.Expect(status.Status).To(Equal(metav1.StatusFailure))
	g.Expect(status.Reason).To(Equal(metav1.StatusReason("NoQuota")))
	g.Expect(status.Message).To(And(HavePrefix(`<none> left\x1bxxx`), HaveLen(1024)))
	var after corev1.Namespace
	g.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &after)).To(Succeed())
	g.Expect(after.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, own))
}
