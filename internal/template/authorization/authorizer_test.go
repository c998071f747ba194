// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

// configMapsMapper maps only ConfigMaps.
type configMapsMapper struct{ meta.RESTMapper }

func (configMapsMapper) Reset() {}

// answers is what a fake API server answers to reviews.
type answers struct {
	// denied are the verbs that are denied.
	denied map[string]bool
	// evaluationError is in each answer, and err replaces all answers.
	evaluationError string
	err             error
	count           int
}

func (a *answers) create(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
	a.count++
	var attributes *authorizationv1.ResourceAttributes
	var status *authorizationv1.SubjectAccessReviewStatus
	switch review := object.(type) {
	case *authorizationv1.SubjectAccessReview:
		attributes, status = review.Spec.ResourceAttributes, &review.Status
	case *authorizationv1.SelfSubjectAccessReview:
		attributes, status = review.Spec.ResourceAttributes, &review.Status
	}
	status.Allowed, status.EvaluationError = !a.denied[attributes.Verb], a.evaluationError
	return a.err
}

func newTestAuthorizer(a *answers, clock *clocktesting.FakePassiveClock, objects ...client.Object) *Authorizer {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return &Authorizer{
		Client:          fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Create: a.create}).Build(),
		ServiceAccounts: fake.NewClientBuilder().WithObjects(objects...).Build(),
		DryRunner:       &execute.Writer{Kinds: &observe.Kinds{Mapper: configMapsMapper{mapper}, Clock: clock}}, Clock: clock,
		SystemNamespace: "system", Operator: permissions.SubjectOf("system:serviceaccount:system:operator"), IsOperator: true,
	}
}

func templateWithConfigMaps(count int, name string) *v1alpha1.NamespaceTemplate {
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	tmpl.Spec.ServiceAccountName = "account"
	for i := range count {
		tmpl.Spec.Objects = append(tmpl.Spec.Objects, v1alpha1.TemplateObject{Template: &runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d"}}`, name, i),
		}})
	}
	return tmpl
}

func TestCheck(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "account"}}
	unknownKind := v1alpha1.TemplateObject{Template: &runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`),
	}}
	computed := v1alpha1.TemplateObject{Template: &runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${ns.name}"}}`),
	}}
	tests := map[string]struct {
		answers
		isMissing bool
		object    *v1alpha1.TemplateObject
		want      metav1.ConditionStatus
		message   []string
		kinds     []string
	}{
		"allowed": {want: metav1.ConditionTrue, message: []string{"has the permissions"}},
		"allowed with an evaluation error": {
			answers: answers{evaluationError: "role not found"}, want: metav1.ConditionTrue,
		},
		"a verb is denied": {
			answers: answers{denied: map[string]bool{"patch": true}}, want: metav1.ConditionFalse,
			message: []string{
				`lacks permissions, for example: patch configmaps "config-0". To grant what is required, run: ` +
					"kubectl nslifecycle template permissions team | kubectl apply -f -",
			},
			kinds: []string{"ClusterRole", "ClusterRoleBinding"},
		},
		"the ServiceAccount does not exist": {
			isMissing: true, want: metav1.ConditionFalse, message: []string{"does not exist"}, kinds: []string{"ServiceAccount"},
		},
		"the operator may not impersonate": {
			answers: answers{denied: map[string]bool{"impersonate": true, "impersonate:serviceaccount": true}},
			want:    metav1.ConditionFalse, message: []string{"cannot impersonate"}, kinds: []string{"Role", "RoleBinding"},
		},
		"the operator may impersonate for all requests": {
			answers: answers{denied: map[string]bool{"impersonate": true}}, want: metav1.ConditionTrue,
		},
		"the operator may impersonate for some requests": {
			answers: answers{denied: map[string]bool{"impersonate": true, "impersonate-on:serviceaccount:delete": true}},
			want:    metav1.ConditionFalse, message: []string{"cannot impersonate"}, kinds: []string{"ClusterRole", "ClusterRoleBinding"},
		},
		"the review fails": {
			answers: answers{err: errors.New("connection refused")}, want: metav1.ConditionUnknown,
			message: []string{"connection refused"},
		},
		"the authorizer reports an error": {
			answers: answers{denied: map[string]bool{"patch": true}, evaluationError: "role not found"},
			want:    metav1.ConditionUnknown, message: []string{"role not found"}, kinds: []string{"ClusterRole", "ClusterRoleBinding"},
		},
		"the kind is unknown": {object: &unknownKind, want: metav1.ConditionUnknown, message: []string{"Widget"}},
		"the name is computed": {
			object: &computed, answers: answers{denied: map[string]bool{"delete": true}}, want: metav1.ConditionUnknown,
			message: []string{"delete configmaps: an expression computes"}, kinds: []string{"ClusterRole", "ClusterRoleBinding"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tmpl := templateWithConfigMaps(1, "config")
			if test.object != nil {
				tmpl.Spec.Objects = []v1alpha1.TemplateObject{*test.object}
			}
			accounts := []client.Object{account}
			if test.isMissing {
				accounts = nil
			}
			clock := clocktesting.NewFakePassiveClock(time.Now())
			result := newTestAuthorizer(&test.answers, clock, accounts...).Check(t.Context(), tmpl, false)
			g.Expect(result.Status()).To(Equal(test.want))
			message := result.Message("team")
			summary, manifests, _ := strings.Cut(message, "\n# Or apply these objects:\n---\n")
			g.Expect(summary).NotTo(ContainSubstring("\n"))
			for _, part := range test.message {
				g.Expect(summary).To(ContainSubstring(part))
			}
			var kinds []string
			for document := range strings.SplitSeq(manifests, "\n---\n") {
				var object metav1.TypeMeta
				g.Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
				if object.Kind != "" {
					kinds = append(kinds, object.Kind)
				}
			}
			g.Expect(kinds).To(Equal(test.kinds))
		})
	}
}

func TestCheckIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	all := &answers{}
	authorizer := newTestAuthorizer(all, clock)
	tmpl := templateWithConfigMaps(128, "config")
	authorizer.Check(t.Context(), tmpl, false)
	g.Expect(all.count).To(Equal(1+1+3*128), "impersonate, provision, and three verbs for each object")
	authorizer.Check(t.Context(), tmpl, false)
	g.Expect(all.count).To(Equal(1+1+3*128), "nothing is reviewed twice")
	authorizer.Check(t.Context(), tmpl, true)
	g.Expect(all.count).To(Equal(2 * (1 + 1 + 3*128)))
	all.denied = map[string]bool{"create": true}
	for _, isFresh := range []bool{true, false} {
		denied := authorizer.Check(t.Context(), tmpl, isFresh)
		g.Expect(denied.Denied).To(HaveLen(maxDenied), "a revoked permission")
	}
	authorizer.IsOperator = false
	exhaustive := authorizer.Check(t.Context(), tmpl, true)
	g.Expect(exhaustive.Denied).To(HaveLen(128))
	clock.SetTime(clock.Now().Add(allowedLifetime))
	authorizer.Check(t.Context(), templateWithConfigMaps(0, ""), false)
	g.Expect(authorizer.allowed).To(HaveLen(2))

	denied := &answers{denied: map[string]bool{"create": true, "patch": true, "delete": true}}
	newTestAuthorizer(denied, clock).Check(t.Context(), tmpl, false)
	g.Expect(denied.count).To(Equal(1 + 1 + maxDenied))
	failed := &answers{err: errors.New("timeout")}
	newTestAuthorizer(failed, clock).Check(t.Context(), tmpl, false)
	g.Expect(failed.count).To(Equal(1))
}

// TestCheckByOtherUser verifies what is reviewed and tested if the client is not that of the operator.
func TestCheckByOtherUser(t *testing.T) {
	forbidden := func(verb, resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x",
			fmt.Errorf(`User "dana" cannot %s resource %q in API group "" in the namespace "system"`, verb, resource))
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "x",
		errors.New(`ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no`))
	tests := map[string]struct {
		getErr, dryRunErr error
		want              metav1.ConditionStatus
	}{
		"allowed":                     {nil, nil, metav1.ConditionTrue},
		"the account is denied":       {nil, forbidden("create", "rolebindings"), metav1.ConditionFalse},
		"a policy refuses the object": {nil, refused, metav1.ConditionUnknown},
		"the user cannot impersonate": {nil, forbidden("impersonate", "serviceaccounts"), metav1.ConditionUnknown},
		"the user cannot impersonate, since Kubernetes 1.36": {
			nil, forbidden("impersonate-on:serviceaccount:patch", "rolebindings"), metav1.ConditionUnknown,
		},
		"the user cannot get the namespace": {forbidden("get", "namespaces"), nil, metav1.ConditionUnknown},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var users []string
			api := fake.NewClientBuilder().
				WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return test.getErr
					},
					Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
						review := object.(*authorizationv1.SubjectAccessReview)
						users = append(users, review.Spec.User)
						review.Status.Allowed = review.Spec.ResourceAttributes.Verb != "bind"
						return nil
					},
				}).Build()
			tmpl := templateWithConfigMaps(0, "")
			tmpl.Spec.Objects = []v1alpha1.TemplateObject{{Template: &runtime.RawExtension{Raw: []byte(
				`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"a"},` +
					`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`,
			)}}}
			authorizer := &Authorizer{
				Client: api, DryRunner: dryRunner{test.dryRunErr}, SystemNamespace: "system",
				ServiceAccounts: fake.NewClientBuilder().WithObjects(
					&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "account"}}).Build(),
				Operator: permissions.SubjectOf("system:serviceaccount:system:operator"), Clock: clocktesting.NewFakePassiveClock(time.Now()),
			}
			result := authorizer.Check(t.Context(), tmpl, true)
			g.Expect(result.Status()).To(Equal(test.want), result.Message("team"))
			g.Expect(users[0]).To(Equal("system:serviceaccount:system:operator"))
			g.Expect(users[1:]).To(HaveEach("system:serviceaccount:system:account"))
		})
	}
}

// dryRunner returns an error for each dry run.
type dryRunner struct{ err error }

func (dryRunner) ResourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource, nil
}

func (d dryRunner) DryRun(
	context.Context, *v1alpha1.NamespaceTemplate, *corev1.Namespace, *unstructured.Unstructured,
) error {
	return d.err
}

func TestAuthorizationMessageSize(t *testing.T) {
	g := NewWithT(t)
	denied := &answers{denied: map[string]bool{"create": true}}
	for length, isPrinted := range map[int]bool{20: true, 250: false} {
		authorizer := newTestAuthorizer(denied, clocktesting.NewFakePassiveClock(time.Now()))
		result := authorizer.Check(t.Context(), templateWithConfigMaps(128, strings.Repeat("x", length)), false)
		message := result.Message("team")
		g.Expect(len(message)).To(BeNumerically("<=", template.MaxConditionMessage))
		g.Expect(strings.Contains(message, "kind: ClusterRole")).To(Equal(isPrinted))
		g.Expect(strings.Contains(message, rbacv1.GroupName)).To(Equal(isPrinted))
	}
}
