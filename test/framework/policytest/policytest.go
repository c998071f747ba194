// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policytest contains test objects: the installed admission policies, the effective set,
// and the API server's responses to dry runs.
package policytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Now is the current time of the fake clocks.
var Now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// Errors that the API server returns.
var (
	// ErrUnavailable is an error that does not depend on the request.
	ErrUnavailable = errors.New("the API server is unavailable")
	// ErrForbidden is returned if a policy of another project denies a request.
	ErrForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("not allowed"))
	// ErrDeniedByGuard is returned if the guard policy denies a request.
	ErrDeniedByGuard = Denied("ValidatingAdmissionPolicy", "nslifecycle-guard", "no")
)

// Denied returns the error of an API server with a policy that denies a request. kind is "policy" if the policy is a
// MutatingAdmissionPolicy, or cannot be evaluated.
func Denied(kind, name, message string) *apierrors.StatusError {
	message = fmt.Sprintf("%s '%s' with binding '%s' denied request: %s", kind, name, name, message)
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New(message))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: message}}
	return err
}

// NewClient returns a fake client with the given objects that calls the given interceptor
// functions.
func NewClient(funcs interceptor.Funcs, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// Set returns the effective set with the named initializers, which configuration "one" registers.
func Set(names ...string) *internalv1alpha1.NamespaceInitializerSet {
	set := &internalv1alpha1.NamespaceInitializerSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: internalv1alpha1.EffectiveSetName, UID: "set-uid", ResourceVersion: "7",
			CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
		},
		SystemNamespace: "nslifecycle-system",
		SourceNamespace: "nslifecycle-sources",
	}
	for _, name := range names {
		set.Initializers = append(set.Initializers, internalv1alpha1.EffectiveInitializer{
			Name: name, Configuration: "one", InitializerSettings: v1alpha1.DefaultInitializerSettings(),
		})
	}
	return set
}

// Default returns the policies and bindings in config/default and config/mutating. The inject policy has the given
// failure policy.
func Default(failurePolicy admissionv1.FailurePolicyType) []client.Object {
	inject := MutatingPolicy("nslifecycle-inject", internalv1alpha1.PolicyInject)
	if failurePolicy != "" {
		inject.Spec.FailurePolicy = &failurePolicy
	}
	return append([]client.Object{
		inject,
		MutatingBinding("inject-binding", internalv1alpha1.PolicyInject, "nslifecycle-inject"),
		MutatingPolicy("nslifecycle-complete", internalv1alpha1.PolicyComplete),
		MutatingBinding("complete-binding", internalv1alpha1.PolicyComplete, "nslifecycle-complete"),
		MutatingPolicy("nslifecycle-require-set", internalv1alpha1.PolicyRequireSet),
		MutatingBinding("require-set-binding", internalv1alpha1.PolicyRequireSet, "nslifecycle-require-set"),
	}, protecting()...)
}

func protecting() []client.Object {
	const waiting, subjects = "nslifecycle-waiting-subjects", "nslifecycle-initializer-subjects"
	return []client.Object{
		ValidatingPolicy("nslifecycle-gate", internalv1alpha1.PolicyGate),
		ValidatingBinding("gate-binding", internalv1alpha1.PolicyGate, "nslifecycle-gate"),
		ValidatingBinding("gate-resources-binding", internalv1alpha1.PolicyGate, "nslifecycle-gate"),
		ValidatingPolicy(waiting, internalv1alpha1.PolicyWaitingSubjects),
		ValidatingBinding("waiting-binding", internalv1alpha1.PolicyWaitingSubjects, waiting),
		ValidatingPolicy(waiting+"-resources-named-namespaces", internalv1alpha1.PolicyWaitingSubjects),
		ValidatingBinding("waiting-resources-binding", internalv1alpha1.PolicyWaitingSubjects,
			waiting+"-resources-named-namespaces"),
		ValidatingPolicy(subjects, internalv1alpha1.PolicyInitializerSubjects),
		ValidatingBinding("subjects-binding", internalv1alpha1.PolicyInitializerSubjects, subjects),
		ValidatingPolicy("nslifecycle-guard", internalv1alpha1.PolicyGuard),
		ValidatingBinding("guard-binding", internalv1alpha1.PolicyGuard, "nslifecycle-guard"),
		ValidatingPolicy("nslifecycle-templates", internalv1alpha1.PolicyTemplates),
		ValidatingBinding("templates-binding", internalv1alpha1.PolicyTemplates, "nslifecycle-templates"),
		ValidatingPolicy("nslifecycle-template-authors", internalv1alpha1.PolicyTemplateAuthors),
		ValidatingBinding("authors-binding", internalv1alpha1.PolicyTemplateAuthors, "nslifecycle-template-authors"),
		ValidatingPolicy("nslifecycle-initializer-authors", internalv1alpha1.PolicyInitializerAuthors),
		ValidatingBinding("initializer-authors-binding", internalv1alpha1.PolicyInitializerAuthors,
			"nslifecycle-initializer-authors"),
		ValidatingPolicy("nslifecycle-confine", internalv1alpha1.PolicyConfine),
		ValidatingBinding("confine-binding", internalv1alpha1.PolicyConfine, "nslifecycle-confine"),
		ValidatingPolicy("nslifecycle-template-objects", internalv1alpha1.PolicyTemplateObjects),
		ValidatingBinding("objects-binding", internalv1alpha1.PolicyTemplateObjects, "nslifecycle-template-objects"),
	}
}

// Without returns the objects except those with the given names. It modifies the given slice.
func Without(objects []client.Object, names ...string) []client.Object {
	return slices.DeleteFunc(objects, func(object client.Object) bool { return slices.Contains(names, object.GetName()) })
}

// MutatingPolicy returns a MutatingAdmissionPolicy.
func MutatingPolicy(name, label string) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: policyMeta(name, label)}
}

// MutatingBinding returns a MutatingAdmissionPolicyBinding.
func MutatingBinding(name, label, policyName string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: policyMeta(name, label),
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policyName},
	}
}

// ValidatingPolicy returns a ValidatingAdmissionPolicy.
func ValidatingPolicy(name, label string) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: policyMeta(name, label)}
}

// ValidatingBinding returns a ValidatingAdmissionPolicyBinding.
func ValidatingBinding(name, label, policyName string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policyMeta(name, label),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

func policyMeta(name, label string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{internalv1alpha1.LabelPolicy: label},
	}
}

// DryRuns returns fake responses to requests that create Namespaces as dry runs.
type DryRuns struct {
	// Responses are returned in this order. The last response is repeated.
	Responses []DryRun
	// Count is the number of requests.
	Count int
}

// DryRun is a response: the pending list of the new Namespace, or an error.
type DryRun struct {
	Pending string
	Err     error
}

// Create is a function for interceptor.Funcs.
func (d *DryRuns) Create(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.CreateOption,
) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	namespace, ok := object.(*corev1.Namespace)
	if !ok || len(options.DryRun) != 1 || options.DryRun[0] != metav1.DryRunAll ||
		namespace.Name != "" || !slices.Contains(
		[]string{"nslifecycle-probe-", "nslifecycle-webhook-probe-"}, namespace.GenerateName) {
		return errors.New("the request is not a dry run for a namespace with a generated name")
	}
	response := d.Responses[min(d.Count, len(d.Responses)-1)]
	d.Count++
	if response.Pending != "" {
		namespace.Annotations = map[string]string{v1alpha1.AnnotationPendingInitializers: response.Pending}
	}
	return response.Err
}

// FailingList is a function for interceptor.Funcs that returns ErrUnavailable.
func FailingList(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
	return ErrUnavailable
}
