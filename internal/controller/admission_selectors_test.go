// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// Which initializers a new Namespace gets depends on its labels, so the dry runs have some.
func TestAdmissionObserveSelectorsAndTokens(t *testing.T) {
	selecting := func(name, token string, selector *v1alpha1.NamespaceSelector) v1alpha1.EffectiveInitializer {
		return v1alpha1.EffectiveInitializer{Name: name, InitializerSettings: v1alpha1.InitializerSettings{
			Finalizer: token, NamespaceSelector: selector,
		}}
	}
	team := func(name string) *v1alpha1.NamespaceSelector {
		return &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": v1alpha1.LabelValue(name)}}
	}
	never := team("a")
	never.MatchExpressions = []v1alpha1.NamespaceSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}
	missing := func(key string) *v1alpha1.NamespaceSelector {
		return &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
			{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
	}
	without, unnamed := missing("team"), missing(corev1.LabelMetadataName)
	type set = []v1alpha1.EffectiveInitializer

	for name, test := range map[string]struct {
		wanted, acted set
		// refuses is the label for which the API server refuses a Namespace.
		refuses string
		// before and after are labels that others add before and after inject.
		before, after map[string]string
		want          string
		wantProbes    int
	}{
		"all of it is in force": {
			wanted:     set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", team("a"))},
			acted:      set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", team("a"))},
			want:       v1alpha1.ReasonEnforced,
			wantProbes: 2,
		},
		"an initializer that selects is not there yet": {
			wanted: set{selecting("a.b.c", "", nil), selecting("d.e.f", "", team("a"))},
			acted:  set{selecting("a.b.c", "", nil)},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"all of them select, and none is there yet": {
			wanted: set{selecting("d.e.f", "", team("a"))},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"the selector was another one": {
			wanted: set{selecting("d.e.f", "", team("a"))},
			acted:  set{selecting("d.e.f", "", team("b"))},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"there was no selector": {
			wanted: set{selecting("d.e.f", "", team("a"))},
			acted:  set{selecting("d.e.f", "", nil)},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"there was a selector": {
			wanted: set{selecting("d.e.f", "", nil)},
			acted:  set{selecting("d.e.f", "", team("a"))},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"a token is not there yet": {
			wanted: set{selecting("a.b.c", "x.y/z", nil)},
			acted:  set{selecting("a.b.c", "", nil)},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"the token of one that selects is not there yet": {
			wanted: set{selecting("d.e.f", "x.y/z", team("a"))},
			acted:  set{selecting("d.e.f", "", team("a"))},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"one that never selects shows nowhere": {
			wanted:     set{selecting("a.b.c", "", nil), selecting("d.e.f", "x.y/z", never)},
			acted:      set{selecting("a.b.c", "", nil)},
			want:       v1alpha1.ReasonEnforced,
			wantProbes: 1,
		},
		"somebody refuses the label": {
			wanted: set{selecting("a.b.c", "", nil), selecting("d.e.f", "", team("a"))},
			acted:  set{selecting("a.b.c", "", nil)}, refuses: "team",
			want: v1alpha1.ReasonEnforced, wantProbes: 2,
		},
		"others add a label that is asked for, before": {
			wanted: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			acted:  set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			before: map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforced,
		},
		"others add a label that is asked for, after": {
			wanted: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			acted:  set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			after:  map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforced,
		},
		"others add a label that is asked for, and nothing is there yet": {
			wanted: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			before: map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"others add a label that is asked for, and a token is not there yet": {
			wanted: set{selecting("a.b.c", "", nil), selecting("d.e.f", "x.y/q", without)},
			acted:  set{selecting("a.b.c", "", nil), selecting("d.e.f", "", without)},
			after:  map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"others add a label that nobody asks for": {
			wanted: set{selecting("a.b.c", "", nil), selecting("d.e.f", "", without)},
			acted:  set{selecting("a.b.c", "", nil)},
			before: map[string]string{"tier": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"the name comes after admission": {
			wanted: set{selecting("d.e.f", "", unnamed)},
			after:  map[string]string{corev1.LabelMetadataName: "probe"}, want: v1alpha1.ReasonEnforcementPending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				probes := 0
				create := func(
					_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption,
				) error {
					probes++
					namespace := object.(*corev1.Namespace)
					if _, found := namespace.Labels[test.refuses]; found {
						return errForbidden
					}
					if namespace.Labels == nil {
						namespace.Labels = map[string]string{}
					}
					maps.Copy(namespace.Labels, test.before)
					selected := initialization.Selected(test.acted, maps.Clone(namespace.Labels))
					maps.Copy(namespace.Labels, test.after)
					namespace.Annotations = map[string]string{
						v1alpha1.AnnotationPendingInitializers: strings.Join(initialization.Names(selected), ","),
					}
					namespace.Spec.Finalizers = initialization.MissingFinalizers(namespace, selected)
					return nil
				}
				admission := newAdmission(interceptor.Funcs{Create: create}, installedWith(admissionv1.Fail)...)
				wanted := newSet()
				wanted.Initializers = test.wanted
				verdict, err := admission.Observe(t.Context(), wanted)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(verdict.Reason).To(Equal(test.want))
				if test.wantProbes > 0 {
					g.Expect(probes).To(Equal(test.wantProbes))
				}
				if test.refuses != "" {
					g.Expect(verdict.Message).To(ContainSubstring("a dry run could not confirm it"))
				}
			})
		})
	}
}
