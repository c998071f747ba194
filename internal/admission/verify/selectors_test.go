// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

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

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

// The initializers of a new Namespace depend on its labels, so the dry runs set labels.
func TestVerifySelectorsAndFinalizers(t *testing.T) {
	selecting := func(name, finalizer string, selector *v1alpha1.NamespaceSelector) internalv1alpha1.EffectiveInitializer {
		if selector == nil {
			selector = &v1alpha1.NamespaceSelector{}
		}
		return internalv1alpha1.EffectiveInitializer{Name: name, InitializerSettings: v1alpha1.InitializerSettings{
			NamespaceFinalizer: finalizer, NamespaceSelector: selector,
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
	without := missing("team")
	named := &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpExists},
	}}
	type set = []internalv1alpha1.EffectiveInitializer

	for name, test := range map[string]struct {
		wanted, injected set
		// refuses is the key of a label. Admission denies Namespaces that have this label.
		refuses string
		// before and after are labels that other policies add before and after inject.
		before, after map[string]string
		want          string
		wantProbes    int
	}{
		"all initializers are injected": {
			wanted:     set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", team("a"))},
			injected:   set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", team("a"))},
			want:       v1alpha1.ReasonEnforced,
			wantProbes: 2,
		},
		"an initializer with a selector is missing": {
			wanted:   set{selecting("a.b.c", "", nil), selecting("d.e.f", "", team("a"))},
			injected: set{selecting("a.b.c", "", nil)},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"all initializers have selectors, and all are missing": {
			wanted: set{selecting("d.e.f", "", team("a"))},
			want:   v1alpha1.ReasonEnforcementPending,
		},
		"the API server enforces another selector": {
			wanted:   set{selecting("d.e.f", "", team("a"))},
			injected: set{selecting("d.e.f", "", team("b"))},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"the API server enforces no selector": {
			wanted:   set{selecting("d.e.f", "", team("a"))},
			injected: set{selecting("d.e.f", "", nil)},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"the API server still enforces a selector that was removed": {
			wanted:   set{selecting("d.e.f", "", nil)},
			injected: set{selecting("d.e.f", "", team("a"))},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"a namespace finalizer is missing": {
			wanted:   set{selecting("a.b.c", "x.y/z", nil)},
			injected: set{selecting("a.b.c", "", nil)},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"the namespace finalizer of an initializer with a selector is missing": {
			wanted:   set{selecting("d.e.f", "x.y/z", team("a"))},
			injected: set{selecting("d.e.f", "", team("a"))},
			want:     v1alpha1.ReasonEnforcementPending,
		},
		"an initializer selects no namespaces": {
			wanted:     set{selecting("a.b.c", "", nil), selecting("d.e.f", "x.y/z", never)},
			injected:   set{selecting("a.b.c", "", nil)},
			want:       v1alpha1.ReasonEnforced,
			wantProbes: 1,
		},
		"another policy denies namespaces with the label": {
			wanted:   set{selecting("a.b.c", "", nil), selecting("d.e.f", "", team("a"))},
			injected: set{selecting("a.b.c", "", nil)}, refuses: "team",
			want: v1alpha1.ReasonEnforced, wantProbes: 2,
		},
		"another policy adds a label to which the selector refers, before inject": {
			wanted:   set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			injected: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			before:   map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforced,
		},
		"another policy adds a label to which the selector refers, after inject": {
			wanted:   set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			injected: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			after:    map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforced,
		},
		"another policy adds a label to which the selector refers, and initializers are missing": {
			wanted: set{selecting("a.b.c", "x.y/z", nil), selecting("d.e.f", "x.y/q", without)},
			before: map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"another policy adds a label to which the selector refers, and a namespace finalizer is missing": {
			wanted:   set{selecting("a.b.c", "", nil), selecting("d.e.f", "x.y/q", without)},
			injected: set{selecting("a.b.c", "", nil), selecting("d.e.f", "", without)},
			after:    map[string]string{"team": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"another policy adds an unrelated label": {
			wanted:   set{selecting("a.b.c", "", nil), selecting("d.e.f", "", without)},
			injected: set{selecting("a.b.c", "", nil)},
			before:   map[string]string{"tier": "x"}, want: v1alpha1.ReasonEnforcementPending,
		},
		"the API server adds the name label after admission, and an initializer is missing": {
			wanted: set{selecting("d.e.f", "", named)},
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
					selected := initialization.Selected(
						&internalv1alpha1.NamespaceInitializerSet{Initializers: test.injected}, maps.Clone(namespace.Labels))
					maps.Copy(namespace.Labels, test.after)
					namespace.Annotations = map[string]string{
						v1alpha1.AnnotationPendingInitializers: strings.Join(initialization.Names(selected), ","),
					}
					namespace.Spec.Finalizers = initialization.MissingFinalizers(namespace, selected)
					return nil
				}
				wanted := policytest.Set()
				wanted.Initializers = test.wanted
				status, err := newVerifier(create).Verify(t.Context(), wanted, installed(t, policytest.Default(admissionv1.Fail)...))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status.Reason).To(Equal(test.want))
				if test.wantProbes > 0 {
					g.Expect(probes).To(Equal(test.wantProbes))
				}
				if test.refuses != "" {
					g.Expect(status.RetryAfter).To(Equal(UnconfirmedRetryInterval))
				}
			})
		})
	}
}
