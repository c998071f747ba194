// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restfake "k8s.io/client-go/rest/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// resourceOf serves ConfigMaps, and Namespaces, which are not namespaced.
func resourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	switch kind.Kind {
	case "ConfigMap":
		return corev1.SchemeGroupVersion.WithResource("configmaps"), nil
	case "Namespace":
		return schema.GroupVersionResource{}, template.Problemf(v1alpha1.ReasonInvalidObject, "it is cluster-scoped")
	}
	return schema.GroupVersionResource{}, template.Problemf(v1alpha1.ReasonKindNotFound, "it is not served")
}

func newValidator() *Validator {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "account"}}
	live := fake.NewClientBuilder().WithObjects(account).WithIndex(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
	}, metav1.ObjectNameField, func(object client.Object) []string { return []string{object.GetName()} }).Build()
	return NewValidator(resourceOf, live, &restfake.RESTClient{Err: errors.New("no schemas")}, "system")
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		account, kind, name string
		warnings            []string
		errs                []string
	}{
		"valid":                    {account: "account", kind: "ConfigMap", name: "a"},
		"no such ServiceAccount":   {account: "other", kind: "ConfigMap", name: "a", warnings: []string{`ServiceAccount "other" does not exist`}},
		"a kind that is unknown":   {account: "account", kind: "Widget", name: "a", warnings: []string{"it is not served"}},
		"a cluster-scoped kind":    {account: "account", kind: "Namespace", name: "a", errs: []string{"it is cluster-scoped"}},
		"an expression is invalid": {account: "account", kind: "ConfigMap", name: "${namespace.", errs: []string{"spec.objects[0].template.metadata.name"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, spec := NewWithT(t), v1alpha1.NamespaceTemplateSpec{ServiceAccountName: test.account}
			spec.Objects = []v1alpha1.TemplateObject{{Name: "object", Template: &runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"v1","kind":"` + test.kind + `","metadata":{"name":"` + test.name + `"}}`),
			}}}
			warnings, errs := newValidator().validate(t.Context(), &spec)
			g.Expect(warnings).To(HaveLen(len(test.warnings)), "%v", warnings)
			for i := range warnings {
				g.Expect(warnings[i]).To(ContainSubstring(test.warnings[i]))
			}
			g.Expect(errs).To(HaveLen(len(test.errs)), "%v", errs)
			for i := range errs {
				g.Expect(errs[i].Error()).To(ContainSubstring(test.errs[i]))
			}
		})
	}
}

// Peers that are not authenticated can make the operator do little.
func TestHandleIsBounded(t *testing.T) {
	g, validator := NewWithT(t), newValidator()
	for range lookupBurst {
		g.Expect(validator.checkServiceAccount(t.Context(), "other")).NotTo(BeEmpty())
	}
	g.Expect(validator.checkServiceAccount(t.Context(), "other")).To(BeEmpty(), "it was not looked up")

	validator.validations <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := validator.Handle(ctx, &webhooks.Request{Name: "team"})
	g.Expect(err).To(MatchError(context.Canceled), "another validation runs")
}
