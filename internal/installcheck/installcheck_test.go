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

// The rest is asked of a real API server, in test/install and test/e2e.
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
		"no Lease":                        {want: `no manager has ever led in namespace "system"`},
		"a Lease that was released":       {lease: lease("", now), want: "the last leader has stopped"},
		"a Lease that has never been had": {lease: &coordinationv1.Lease{ObjectMeta: lease("", now).ObjectMeta}, want: "the last leader has stopped"},
		"a Lease that has run out":        {lease: lease("pod", now.Add(-16*time.Second)), want: "pod leads, but has not said so since 2026-11-21T11:59:44Z"},
		"a Lease that holds":              {lease: lease("pod", now.Add(-15*time.Second))},
		"a clock that is ahead":           {lease: lease("pod", now.Add(time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if test.lease != nil {
				builder.WithObjects(test.lease)
			}
			installcheck := Checkup{
				Client: builder.Build(), Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: "system", LeaseName: "lease",
			}
			findings := installcheck.Run(t.Context())
			if len(findings) != 1 {
				t.Fatalf("without initialization nothing but the leader counts, and not %v", findings)
			}
			err := Failed(findings)
			if test.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v instead of %q", err, test.want)
			}
			var out strings.Builder
			Print(&out, findings)
			if isOK := strings.HasPrefix(out.String(), "ok    a manager is at work\n"); isOK != (test.want == "") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// What a namespace without labels gets depends on the selectors.
func TestCheckCreation(t *testing.T) {
	selecting := v1alpha1.EffectiveInitializer{Name: "b.corp.com", InitializerSettings: v1alpha1.InitializerSettings{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}},
	}}
	all := v1alpha1.EffectiveInitializer{Name: "a.corp.com"}
	for name, test := range map[string]struct {
		initializers   []v1alpha1.EffectiveInitializer
		isInitializing bool
		want           string
	}{
		"nothing is registered":      {},
		"one that selects others":    {initializers: []v1alpha1.EffectiveInitializer{selecting}},
		"one for all":                {initializers: []v1alpha1.EffectiveInitializer{selecting, all}, isInitializing: true},
		"one for all, not in force":  {initializers: []v1alpha1.EffectiveInitializer{selecting, all}, want: "1 initializers"},
		"one that should not select": {initializers: []v1alpha1.EffectiveInitializer{selecting}, isInitializing: true, want: "0 init"},
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
					if test.isInitializing {
						object.SetLabels(map[string]string{v1alpha1.LabelInitializing: "true"})
					}
					return nil
				},
			}).Build()
			err := (&Checkup{Client: api}).checkCreation(t.Context(), false)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v instead of %q", err, test.want)
			}
		})
	}
}
