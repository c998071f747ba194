// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

var (
	now       = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	errOutage = errors.New("the API server is unavailable")
)

// server is a fake API server.
type server struct {
	client.Client
	discovery *clienttesting.Fake
	// applied has the objects that were applied.
	applied []string
	watched []string
	// started is how often StartWebhooks was called.
	started int
	// applyError is the error with which objects are applied, unless mayBind is true and it is the binding of inject.
	applyError error
	mayBind    bool
}

func newServer(servesPolicies bool, objects ...client.Object) *server {
	s := &server{discovery: &clienttesting.Fake{}}
	s.serve(servesPolicies)
	s.Client = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			written := object.(interface {
				GetName() string
				GetKind() string
			})
			s.applied = append(s.applied, written.GetName())
			isBinding := written.GetName() == internalv1alpha1.InjectConfiguration && written.GetKind() == "MutatingAdmissionPolicyBinding"
			if s.applyError != nil && (!s.mayBind || !isBinding) {
				return s.applyError
			}
			return c.Apply(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if s.applyError != nil {
				return s.applyError
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	return s
}

func (s *server) serve(policies bool) {
	list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
	for _, name := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		if policies {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
	}
	s.discovery.Resources = []*metav1.APIResourceList{list}
}

func (s *server) installer() *Installer {
	return &Installer{
		Client: s, Live: s, Discovery: &discoveryfake.FakeDiscovery{Fake: s.discovery},
		Clock: clocktesting.NewFakePassiveClock(now),
		Watch: func(object client.Object) error {
			s.watched = append(s.watched, object.GetObjectKind().GroupVersionKind().Kind)
			return nil
		},
		StartWebhooks: func() error {
			s.started++
			return nil
		},
	}
}

func set() *internalv1alpha1.NamespaceInitializerSet {
	return &internalv1alpha1.NamespaceInitializerSet{
		ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.EffectiveSetName}, SystemNamespace: "nslifecycle-system",
	}
}

// hold is the configuration of the webhooks that hold writes. It exists if the component config/webhook is installed.
func hold() client.Object {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.HoldConfiguration}}
}

// gate is the owner of the policies.
func gate() client.Object {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gate", UID: "gate-uid"}}
}

// replacement is a Webhooks that records the calls, and the number of policies that were applied before the first.
type replacement struct {
	server        *server
	calls         []bool
	appliedBefore int
}

func (r *replacement) Ensure(
	_ context.Context, _ *internalv1alpha1.NamespaceInitializerSet, servesPolicies bool,
) (types.UID, error) {
	if len(r.calls) == 0 {
		r.appliedBefore = len(r.server.applied)
	}
	r.calls = append(r.calls, servesPolicies)
	return "uid", nil
}

func (*replacement) EnsureFail(context.Context) error { return errOutage }

func TestEnsureWithPolicies(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := newServer(true, hold())
	installer := api.installer()
	state, err := installer.Ensure(ctx, set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state.ServesPolicies).To(BeTrue())
	g.Expect(state.Webhooks).To(BeEmpty())
	g.Expect(installer.EnsureFail(ctx)).To(Succeed())
	g.Expect(api.applied).To(HaveLen(6))
	g.Expect(api.watched).To(HaveLen(2))
	g.Expect(api.started).To(Equal(1))
	inject := &admissionv1.MutatingAdmissionPolicy{}
	g.Expect(api.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, inject)).To(Succeed())
	g.Expect(inject.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
	g.Expect(inject.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("gate-uid"))))

	// What has not changed is not applied again.
	api.applied = nil
	_, err = installer.Ensure(ctx, set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.applied).To(BeEmpty())
	g.Expect(api.watched).To(HaveLen(2))

	// A policy that was deleted is applied again, and one without the label that identifies it. The failurePolicy is
	// preserved.
	inject.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
	delete(inject.Labels, internalv1alpha1.LabelPolicy)
	g.Expect(api.Update(ctx, inject)).To(Succeed())
	g.Expect(api.Delete(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-complete"}})).To(Succeed())
	_, err = installer.Ensure(ctx, set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.applied).To(ContainElement("nslifecycle-complete"))
	g.Expect(api.Get(ctx, client.ObjectKeyFromObject(inject), inject)).To(Succeed())
	g.Expect(inject.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	g.Expect(inject.Labels).To(HaveKeyWithValue(internalv1alpha1.LabelPolicy, internalv1alpha1.PolicyInject))
}

func TestEnsureBindsPolicyOfAdministrator(t *testing.T) {
	for name, test := range map[string]struct {
		age           time.Duration
		failurePolicy *admissionv1.FailurePolicyType
		isMissing     bool
		want          bool
	}{
		"an API server may not recognize the parameter kind": {age: policyapply.RecognizedAfter - time.Second},
		"every API server recognizes the parameter kind":     {age: policyapply.RecognizedAfter, want: true},
		"a policy that rejects nothing":                      {failurePolicy: ptr.To(admissionv1.Ignore), want: true},
		"no policy":                                          {age: time.Hour, isMissing: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			var objects []client.Object
			if !test.isMissing {
				inject := &admissionv1.MutatingAdmissionPolicy{}
				inject.Name = internalv1alpha1.InjectConfiguration
				inject.UID, inject.Spec.FailurePolicy = "inject-uid", test.failurePolicy
				objects = append(objects, inject)
			}
			api := newServer(true, objects...)
			api.applyError = apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "x", nil)
			api.mayBind = true
			effective := set()
			effective.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
			_, err := api.installer().Ensure(ctx, effective, gate())
			g.Expect(err).NotTo(HaveOccurred())
			var bindings admissionv1.MutatingAdmissionPolicyBindingList
			g.Expect(api.List(ctx, &bindings)).To(Succeed())
			if !test.want {
				g.Expect(bindings.Items).To(BeEmpty())
				return
			}
			g.Expect(bindings.Items).To(ConsistOf(HaveField("OwnerReferences", ConsistOf(HaveField("UID", BeEquivalentTo("inject-uid"))))))
		})
	}
}

func TestEnsureWithWebhooks(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := newServer(false, hold())
	installer, webhooks := api.installer(), &replacement{server: api}
	installer.Webhooks = webhooks
	state, err := installer.Ensure(ctx, set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state).To(Equal(State{Webhooks: "uid"}))
	g.Expect(api.applied).To(BeEmpty())
	g.Expect(installer.EnsureFail(ctx)).To(MatchError(errOutage))

	api.serve(true)
	webhooks.calls = nil
	state, err = installer.Ensure(ctx, set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state).To(Equal(State{Webhooks: "uid", ServesPolicies: true}))
	g.Expect(webhooks.calls).To(Equal([]bool{true}))
	g.Expect(webhooks.appliedBefore).To(BeZero())
	g.Expect(api.applied).To(HaveLen(6))
}

func TestEnsureWithoutComponent(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "x", nil)
	for name, test := range map[string]struct {
		objects       []client.Object
		isUnprotected bool
		// readError is the error with which the configuration is read.
		readError, wantError error
		wantApplied          int
	}{
		"without the configuration":           {wantApplied: 6},
		"without the permission to read it":   {objects: []client.Object{hold()}, readError: forbidden, wantApplied: 6},
		"if the configuration cannot be read": {objects: []client.Object{hold()}, readError: errOutage, wantError: errOutage},
		"without protection":                  {objects: []client.Object{hold()}, isUnprotected: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			api := newServer(true, test.objects...)
			installer := api.installer()
			installer.Live = interceptor.NewClient(api.Client.(client.WithWatch), interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				if _, ok := object.(*admissionv1.MutatingWebhookConfiguration); ok && test.readError != nil {
					return test.readError
				}
				return c.Get(ctx, key, object, options...)
			}})
			owner := gate()
			if test.isUnprotected {
				owner = nil
			}
			_, err := installer.Ensure(ctx, set(), owner)
			if test.wantError != nil {
				g.Expect(err).To(MatchError(test.wantError))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(api.applied).To(HaveLen(test.wantApplied))
			g.Expect(api.started).To(BeZero())
		})
	}
}

func TestEnsureWithoutPermissionToApply(t *testing.T) {
	g := NewWithT(t)
	api := newServer(true, hold())
	api.applyError = apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "x", nil)
	state, err := api.installer().Ensure(t.Context(), set(), gate())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state.ServesPolicies).To(BeTrue())
	api.applyError = errOutage
	_, err = api.installer().Ensure(t.Context(), set(), gate())
	g.Expect(err).To(MatchError(errOutage))
}

func TestEnsureReportsDiscoveryErrors(t *testing.T) {
	api := newServer(true, hold())
	api.discovery.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errOutage })
	_, err := api.installer().Ensure(t.Context(), set(), gate())
	NewWithT(t).Expect(err).To(MatchError(errOutage))
}
