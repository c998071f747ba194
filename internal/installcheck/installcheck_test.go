// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The tests in test/install and test/e2e run the other checks against a real API server.
func TestCheckLeader(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "lease"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: renewed},
			},
		}
	}
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"no Lease":                  {want: msgNoLease("system")},
		"released Lease":            {lease: lease("", now), want: msgLeaderStopped},
		"Lease without a holder":    {lease: &coordinationv1.Lease{ObjectMeta: lease("", now).ObjectMeta}, want: msgLeaderStopped},
		"expired Lease":             {lease: lease("pod", now.Add(-16*time.Second)), want: msgLeaseExpired("pod", now.Add(-16*time.Second))},
		"valid Lease":               {lease: lease("pod", now.Add(-15*time.Second))},
		"clock behind the leader's": {lease: lease("pod", now.Add(time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if test.lease != nil {
				builder.WithObjects(test.lease)
			}
			checker := Checker{
				Client: builder.Build(), Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: "system", LeaseName: "lease",
			}
			results := checker.Run(t.Context())
			if len(results) != 1 {
				t.Fatalf("got %v, want only the result of the leader check", results)
			}
			err := Join(results)
			if test.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			var out strings.Builder
			Print(&out, results)
			if isOK := strings.HasPrefix(out.String(), "ok    "+checkLeader+"\n"); isOK != (test.want == "") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// TestCheckCreation verifies the dry run that creates a namespace without labels.
func TestCheckCreation(t *testing.T) {
	selecting := v1alpha1.EffectiveInitializer{Name: "b.corp.com", InitializerSettings: v1alpha1.InitializerSettings{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}},
	}}
	all := v1alpha1.EffectiveInitializer{Name: "a.corp.com"}
	for name, test := range map[string]struct {
		initializers []v1alpha1.EffectiveInitializer
		pending      string
		labels       map[string]string // added by a policy of another project
		want         string
	}{
		"no initializers":                    {},
		"initializer not selected":           {initializers: []v1alpha1.EffectiveInitializer{selecting}},
		"initializer selected":               {initializers: []v1alpha1.EffectiveInitializer{selecting, all}, pending: "a.corp.com"},
		"initializer selected, not injected": {initializers: []v1alpha1.EffectiveInitializer{selecting, all}, want: "a namespace without labels must get 1 initializer,"},
		"initializer injected, not selected": {initializers: []v1alpha1.EffectiveInitializer{selecting}, pending: "b.corp.com", want: "a namespace without labels must get 0 initializers,"},
		"label added before the injection":   {initializers: []v1alpha1.EffectiveInitializer{selecting}, pending: "b.corp.com", labels: map[string]string{"team": "a"}},
		"label added after the injection":    {initializers: []v1alpha1.EffectiveInitializer{selecting}, labels: map[string]string{"team": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
				t.Fatal(err)
			}
			set := &v1alpha1.NamespaceInitializerSet{Initializers: test.initializers}
			set.Name = v1alpha1.EffectiveSetName
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					object.SetLabels(test.labels)
					if test.pending != "" {
						object.SetAnnotations(map[string]string{v1alpha1.AnnotationPendingInitializers: test.pending})
					}
					return nil
				},
			}).Build()
			err := (&Checker{Client: api}).checkCreation(t.Context())
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
