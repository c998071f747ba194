// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/internal/fakeapi"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	me            = "b.corp.com"
	uid           = types.UID("shop-uid")
	finalizerName = corev1.FinalizerName("search.example.com/index")
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// snapshot is a cache that can be stale.
type snapshot struct {
	client.Reader
	namespace *corev1.Namespace
}

func (s *snapshot) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if s.namespace == nil || s.namespace.Name != key.Name {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	s.namespace.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

// fixture runs a reconciler with a fake cache and a fake API server.
type fixture struct {
	*workrunner.Reconciler
	cache *snapshot
	live  client.WithWatch
	clock *clocktesting.FakePassiveClock
	// requests are the requests to the API server, except those that read Namespaces.
	requests []string
	reads    int
	calls    int
	// before is called with the number of the patch, starting at 1, before each patch of a
	// Namespace.
	before func(number int) error
	// refuse returns the error for a write to a subresource, or nil.
	refuse func(subresource string) error
}

func newFixture(cached, live *corev1.Namespace, options Options, call workrunner.Call) *fixture {
	b := &fixture{cache: &snapshot{namespace: cached}, clock: clocktesting.NewFakePassiveClock(now)}
	builder := fake.NewClientBuilder().WithScheme(workrunner.NewScheme())
	if live != nil {
		builder.WithObjects(live)
	}
	b.live = fakeapi.Wrap(builder.Build())
	patches := 0
	recording := interceptor.NewClient(b.live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			b.reads++
			return c.Get(ctx, key, object, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption) error {
			patches++
			b.requests = append(b.requests, describePatch(object, p))
			if b.before != nil {
				if err := b.before(patches); err != nil {
					return err
				}
			}
			return c.Patch(ctx, object, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, object client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			b.requests = append(b.requests, describeStatus(object, p))
			if b.refuse != nil {
				if err := b.refuse(subresource); err != nil {
					return err
				}
			}
			return c.SubResource(subresource).Patch(ctx, object, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, object client.Object, opts ...client.SubResourceUpdateOption) error {
			b.requests = append(b.requests, fmt.Sprintf("%s %s %v", subresource, object.GetName(), object.(*corev1.Namespace).Spec.Finalizers))
			if b.refuse != nil {
				if err := b.refuse(subresource); err != nil {
					return err
				}
			}
			return c.SubResource(subresource).Update(ctx, object, opts...)
		},
	})
	if options.Backoff == (workrunner.Backoff{}) {
		options.Options = workrunner.DefaultOptions()
	}
	b.Reconciler = &workrunner.Reconciler{
		Handler: NewHandler(recording, me, func(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
			b.calls++
			return call(ctx, namespace)
		}, options),
		Cache: b.cache, Client: recording, Clock: b.clock, Backoff: options.Backoff,
	}
	if cached != nil {
		b.Track(cached)
	}
	return b
}

func (b *fixture) reconcile() (reconcile.Result, error) {
	return b.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
}

func (b *fixture) namespace() *corev1.Namespace {
	var namespace corev1.Namespace
	if err := b.live.Get(context.Background(), client.ObjectKey{Name: "shop"}, &namespace); err != nil {
		return nil
	}
	return &namespace
}

func describePatch(object client.Object, p client.Patch) string {
	data, _ := p.Data(object)
	var operations []struct{ Op, Path, Value string }
	if err := json.Unmarshal(data, &operations); err != nil {
		return err.Error()
	}
	var parts []string
	for _, operation := range operations {
		path := strings.TrimPrefix(strings.TrimPrefix(operation.Path, "/metadata/annotations/nslifecycle.dev~1"), "/metadata/")
		parts = append(parts, fmt.Sprintf("%s %s=%s", operation.Op, path, operation.Value))
	}
	return object.GetName() + ": " + strings.Join(parts, ", ")
}

func describeStatus(object client.Object, p client.Patch) string {
	data, _ := p.Data(object)
	var namespace corev1.Namespace
	if err := json.Unmarshal(data, &namespace); err != nil {
		return err.Error()
	}
	condition := namespace.Status.Conditions[0]
	return fmt.Sprintf("%s status of %s: %s=%s %s: %s", object.GetName(), namespace.UID,
		condition.Type, condition.Status, condition.Reason, condition.Message)
}

func waiting(names ...string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace("shop").UID(uid).Initializers(names...)
}

func done(context.Context, *corev1.Namespace) (workrunner.Result, error) {
	return workrunner.Result{}, nil
}

func returning(err error) workrunner.Call {
	return func(context.Context, *corev1.Namespace) (workrunner.Result, error) { return workrunner.Result{}, err }
}

func newForbidden(text string) error {
	return apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New(text))
}

// deniedByWebhook returns the error for a request that an admission webhook denies with a status code.
func deniedByWebhook(code int32) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "a.example.com" denied the request: frozen`,
	}}
}

// denyFinalize returns a function that denies writes to /finalize like deniedByWebhook.
func denyFinalize(code int32) func(subresource string) error {
	return func(subresource string) error {
		if subresource != "finalize" {
			return nil
		}
		return deniedByWebhook(code)
	}
}

const failure = `{"status":"Failure","reason":"NoQuota"}`

func TestReconcile(t *testing.T) {
	wait := &workrunner.NotYetError{After: time.Minute, Reason: "NoCertificate", Message: "no certificate yet"}
	status := "shop status of shop-uid: b.corp.com/Initialized="
	finishing := "shop: test uid=shop-uid, test pending-initializers="
	forbidden := newForbidden(`User "test" cannot patch resource "namespaces" in API group "" at the cluster scope`)
	const patching = `failed to patch annotation nslifecycle.dev/pending-initializers of namespace "shop": `

	for name, test := range map[string]struct {
		cached, live *corev1.Namespace // If live is nil, the API server returns cached.
		isGone       bool
		options      Options
		call         workrunner.Call
		before       func(number int) error
		refuse       func(subresource string) error

		wantCalls    int
		wantRequests []string
		wantAfter    time.Duration
		wantErr      []string
		wantPending  string
	}{
		"last initializer completes the initialization": {
			cached: waiting(me).Obj(), call: done,
			wantCalls: 1, wantRequests: []string{finishing + "b.corp.com, replace pending-initializers="},
		},
		"first initializer removes only its own name": {
			cached: waiting(me, "c.corp.com").Obj(), call: done,
			wantCalls:    1,
			wantRequests: []string{finishing + "b.corp.com,c.corp.com, replace pending-initializers=c.corp.com"},
			wantPending:  "c.corp.com",
		},
		"result is published after the name is removed": {
			cached: waiting(me).Obj(),
			call: func(context.Context, *corev1.Namespace) (workrunner.Result, error) {
				return workrunner.Result{Reason: "IndexCreated", Message: "3 shards"}, nil
			},
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=", status + "True IndexCreated: 3 shards",
			},
		},
		"reserved reason is replaced": {
			cached: waiting(me).Obj(),
			call: func(context.Context, *corev1.Namespace) (workrunner.Result, error) {
				return workrunner.Result{Reason: v1alpha1.ReasonTimedOut, Message: "3 shards"}, nil
			},
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=", status + "True Initialized: 3 shards",
			},
		},
		"not its turn": {
			cached: waiting("a.corp.com", me).Obj(), call: done, wantPending: "a.corp.com,b.corp.com",
		},
		"unordered": {
			cached: waiting("a.corp.com", me, "c.corp.com").Obj(), options: Options{IsUnordered: true}, call: done,
			wantCalls:    1,
			wantRequests: []string{finishing + "a.corp.com,b.corp.com,c.corp.com, replace pending-initializers=a.corp.com,c.corp.com"},
			wantPending:  "a.corp.com,c.corp.com",
		},
		"name is not in the pending list": {
			cached: waiting("a.corp.com").Obj(), options: Options{IsUnordered: true}, call: done, wantPending: "a.corp.com",
		},
		"substring of another name": {
			cached: waiting("x"+me, me+"x").Obj(), options: Options{IsUnordered: true}, call: done, wantPending: "xb.corp.com,b.corp.comx",
		},
		"terminating": {
			cached: waiting(me).Terminating(now).Obj(), live: waiting(me).Obj(), call: done, wantPending: me,
		},
		"failure result exists": {
			cached: waiting(me).Result(failure).Obj(), call: done, wantPending: me,
		},
		"invalid result is ignored": {
			cached: waiting(me).Result("all is well").Obj(), call: done,
			wantCalls: 1, wantRequests: []string{finishing + "b.corp.com, replace pending-initializers="},
		},
		"not in the cache": {live: waiting(me).Obj(), call: done, wantPending: me},

		"conflict with another initializer is retried without another call": {
			cached: waiting(me, "c.corp.com", "d.corp.com").Obj(), live: waiting(me, "d.corp.com").Obj(), call: done,
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com,c.corp.com,d.corp.com, replace pending-initializers=c.corp.com,d.corp.com",
				finishing + "b.corp.com,d.corp.com, replace pending-initializers=d.corp.com",
			},
			wantPending: "d.corp.com",
		},
		"conflict is retried without another call": {
			cached: waiting(me).Obj(), call: done,
			before: func(number int) error {
				if number < 4 {
					return apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("busy"))
				}
				return nil
			},
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=", finishing + "b.corp.com, replace pending-initializers=",
				finishing + "b.corp.com, replace pending-initializers=", finishing + "b.corp.com, replace pending-initializers=",
			},
		},
		"operator removed the name concurrently": {
			cached: waiting(me, "c.corp.com").Obj(), live: waiting("c.corp.com").Obj(), call: done,
			wantCalls:    1,
			wantRequests: []string{finishing + "b.corp.com,c.corp.com, replace pending-initializers=c.corp.com"},
			wantPending:  "c.corp.com",
		},
		"another initializer failed concurrently": {
			cached: waiting("a.corp.com", me, "c.corp.com").Obj(), live: waiting("a.corp.com", me).Result(failure).Obj(),
			options: Options{IsUnordered: true}, call: done,
			wantCalls:    1,
			wantRequests: []string{finishing + "a.corp.com,b.corp.com,c.corp.com, replace pending-initializers=a.corp.com,c.corp.com"},
			wantPending:  "a.corp.com,b.corp.com",
		},
		"deleted during the call": {
			cached: waiting(me).Obj(), isGone: true, call: done,
			wantCalls: 1, wantRequests: []string{finishing + "b.corp.com, replace pending-initializers="},
		},
		"recreated during the call": {
			cached: waiting(me).Obj(), live: waiting(me).UID("another").Obj(), call: done,
			wantCalls: 1, wantRequests: []string{finishing + "b.corp.com, replace pending-initializers="}, wantPending: me,
		},
		"rejection of an invalid patch is published": {
			cached: waiting(me).Obj(), call: done,
			before: func(int) error {
				return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "shop", nil)
			},
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=",
				status + `False Retrying: failed to patch annotation nslifecycle.dev/pending-initializers of namespace "shop": Namespace "shop" is invalid`,
			},
			wantErr: []string{"is invalid"}, wantPending: me,
		},
		"denial by a webhook with the code 404 is published": {
			cached: waiting(me).Obj(), call: done, before: func(int) error { return deniedByWebhook(404) },
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=",
				status + "False Retrying: " + patching + deniedByWebhook(404).Error(),
			},
			wantErr: []string{"frozen"}, wantPending: me,
		},
		"denial by a webhook with the code 404 of a permanent failure is published": {
			cached: waiting(me).Obj(), call: returning(&workrunner.FailedError{Reason: "NoQuota"}),
			before:    func(int) error { return deniedByWebhook(404) },
			wantCalls: 1, wantErr: []string{"frozen"}, wantPending: me,
		},
		"denial by a webhook with the code 409 is not a conflict": {
			cached: waiting(me).Obj(), call: done, before: func(int) error { return deniedByWebhook(409) },
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=",
				status + "False Retrying: " + patching + deniedByWebhook(409).Error(),
			},
			wantErr: []string{"frozen"}, wantPending: me,
		},
		"denial by a webhook with the code 403 is not a missing permission": {
			cached: waiting(me).Obj(), call: done, before: func(int) error { return deniedByWebhook(403) },
			wantCalls: 1, wantRequests: []string{
				finishing + "b.corp.com, replace pending-initializers=",
				status + "False Retrying: " + patching + deniedByWebhook(403).Error(),
			},
			wantErr: []string{"frozen"}, wantPending: me,
		},
		"denial by the guard policy": {
			cached: waiting(me).Obj(), call: done, before: func(int) error {
				return newForbidden(`ValidatingAdmissionPolicy 'nslifecycle-guard' with binding 'nslifecycle-guard' denied request: no`)
			},
			wantCalls: 1, wantErr: []string{"kubectl create clusterrole initializer:b.corp.com"}, wantPending: me,
		},
		"missing permission": {
			cached: waiting(me).Obj(), call: done, before: func(int) error { return forbidden },
			refuse:    func(string) error { return forbidden },
			wantCalls: 1, wantErr: []string{
				`initializer "b.corp.com"`, `namespace "shop"`, "patch and initialize on namespaces", "ClusterRoleBinding",
				"kubectl create clusterrole initializer:b.corp.com --verb=get,list,watch,patch,initialize --resource=namespaces; " +
					"kubectl create clusterrolebinding initializer:b.corp.com --clusterrole=initializer:b.corp.com --serviceaccount=test:test",
			},
			wantPending: me,
		},

		"error": {
			cached: waiting(me).Obj(), call: returning(errors.New("no route to host")),
			wantCalls: 1, wantRequests: []string{status + "False Retrying: no route to host"},
			wantErr: []string{`initializer b.corp.com, namespace "shop": no route to host`}, wantPending: me,
		},
		"NotFound is an ordinary error": {
			cached: waiting(me).Obj(), call: returning(apierrors.NewNotFound(corev1.Resource("configmaps"), "template")),
			wantCalls: 1, wantRequests: []string{status + `False Retrying: configmaps "template" not found`},
			wantErr: []string{"template"}, wantPending: me,
		},
		"long message is truncated between characters": {
			cached: waiting(me).Obj(), call: returning(errors.New("x" + strings.Repeat("é", 1000))),
			wantCalls: 1, wantRequests: []string{status + "False Retrying: x" + strings.Repeat("é", 510) + "..."},
			wantErr: []string{"é"}, wantPending: me,
		},
		"condition that is up to date is not written": {
			cached: waiting(me).Condition(corev1.NamespaceCondition{
				Type: me + "/Initialized", Status: corev1.ConditionFalse, Reason: "Retrying", Message: "no route to host",
			}).Obj(),
			call: returning(errors.New("no route to host")), wantCalls: 1, wantErr: []string{"no route"}, wantPending: me,
		},
		"forbidden condition is ignored": {
			cached: waiting(me).Obj(), call: returning(wait), refuse: func(string) error { return forbidden },
			wantCalls: 1, wantRequests: []string{status + "False NoCertificate: no certificate yet"},
			wantAfter: time.Minute, wantPending: me,
		},
		"a panic": {
			cached:    waiting(me).Obj(),
			call:      func(context.Context, *corev1.Namespace) (workrunner.Result, error) { panic("index out of range") },
			wantCalls: 1, wantRequests: []string{status + "False Panicked: " + workrunner.PanicMessage("index out of range")},
			wantErr: []string{"panic: index out of range"}, wantPending: me,
		},
		"not yet": {
			cached: waiting(me).Obj(), call: returning(fmt.Errorf("preparing: %w", wait)),
			wantCalls: 1, wantRequests: []string{status + "False NoCertificate: no certificate yet"},
			wantAfter: time.Minute, wantPending: me,
		},
		"not yet without duration and reason": {
			cached: waiting(me).Obj(), call: returning(&workrunner.NotYetError{After: -1, Message: "soon"}),
			wantCalls: 1, wantRequests: []string{status + "False Waiting: soon"},
			wantAfter: workrunner.DefaultOptions().Backoff.First, wantPending: me,
		},
		"permanent failure": {
			cached: waiting(me).Obj(), call: returning(fmt.Errorf("preparing: %w", &workrunner.FailedError{Reason: "NoQuota", Message: "<none> left"})),
			wantCalls: 1, wantRequests: []string{
				finishing + `b.corp.com, add initialization-result={"kind":"Status","apiVersion":"v1","metadata":{},` +
					`"status":"Failure","message":"\u003cnone\u003e left","reason":"NoQuota"}`,
			},
			wantPending: me,
		},
		"permanent failure, operator removed the name concurrently": {
			cached: waiting(me, "c.corp.com").Obj(), live: waiting("c.corp.com").Obj(),
			call: returning(&workrunner.FailedError{Reason: "NoQuota", Message: "none left"}), wantCalls: 1, wantRequests: []string{
				finishing + `b.corp.com,c.corp.com, add initialization-result={"kind":"Status","apiVersion":"v1","metadata":{},` +
					`"status":"Failure","message":"none left","reason":"NoQuota"}`,
			},
			wantPending: "c.corp.com",
		},
		"progress": {
			cached: waiting(me).Obj(),
			call: func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
				workrunner.Progress(ctx, "Creating", "1 of 2")
				workrunner.Progress(ctx, "Creating", "1 of 2")
				workrunner.Progress(ctx, v1alpha1.ReasonPending, "2 of 2")
				return workrunner.Result{}, nil
			},
			wantCalls: 1, wantRequests: []string{
				status + "False Creating: 1 of 2", status + "False Progressing: 2 of 2",
				finishing + "b.corp.com, replace pending-initializers=",
			},
		},

		"finalizer is added before the call": {
			cached: waiting(me).ResourceVersion("999").Obj(), live: waiting(me).Obj(), options: Options{Finalizer: ptr.To(finalizerName)},
			call: func(_ context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
				if len(namespace.Spec.Finalizers) != 1 {
					return workrunner.Result{}, fmt.Errorf("finalizers are %v", namespace.Spec.Finalizers)
				}
				return workrunner.Result{}, nil
			},
			wantCalls: 1, wantRequests: []string{
				"finalize shop [search.example.com/index]", finishing + "b.corp.com, replace pending-initializers=",
			},
		},
		"finalizer exists": {
			cached: func() *corev1.Namespace {
				n := waiting(me).Obj()
				n.Spec.Finalizers = []corev1.FinalizerName{finalizerName}
				return n
			}(),
			options:   Options{Finalizer: ptr.To(finalizerName)},
			call:      done,
			wantCalls: 1, wantRequests: []string{finishing + "b.corp.com, replace pending-initializers="},
		},
		"finalizer cannot be added": {
			cached: waiting(me).Obj(), options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			refuse:       func(string) error { return forbidden },
			wantRequests: nil,
			wantErr: []string{"spec.finalizers of namespace \"shop\"",
				"kubectl create clusterrole initializer:b.corp.com-finalize --verb=update --resource=namespaces/finalize"},
			wantPending: me,
		},
		"denial of the finalizer by a webhook with the code 404": {
			cached: waiting(me).Obj(), options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			refuse: denyFinalize(404),
			wantRequests: []string{
				"finalize shop [search.example.com/index]",
				status + `False Retrying: failed to update spec.finalizers of namespace "shop": ` + deniedByWebhook(404).Error(),
			},
			wantErr: []string{"frozen"}, wantPending: me,
		},
		"denial of the finalizer by a webhook with the code 403": {
			cached: waiting(me).Obj(), options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			refuse: denyFinalize(403),
			wantRequests: []string{
				"finalize shop [search.example.com/index]",
				status + `False Retrying: failed to update spec.finalizers of namespace "shop": ` + deniedByWebhook(403).Error(),
			},
			wantErr: []string{"frozen"}, wantPending: me,
		},
		"deleted before the finalizer is added": {
			cached: waiting(me).Obj(), isGone: true, options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			wantRequests: []string{"finalize shop [search.example.com/index]"},
		},
		"recreated before the finalizer is added": {
			cached: waiting(me).Obj(), live: waiting(me).UID("another").Obj(), options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			wantRequests: []string{"finalize shop [search.example.com/index]"}, wantPending: me,
		},
		"initialized before the finalizer is added": {
			cached: waiting(me).ResourceVersion("7").Obj(), live: waiting(me).Pending().Obj(),
			options: Options{Finalizer: ptr.To(finalizerName)}, call: done,
			wantRequests: []string{"finalize shop [search.example.com/index]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := test.live
			if live == nil && !test.isGone {
				live = test.cached.DeepCopy()
			}
			b := newFixture(nil, live, test.options, test.call)
			if cached := test.cached; cached != nil {
				if test.live == nil && !test.isGone {
					cached = b.namespace() // includes the resource version
				}
				b.cache.namespace = cached
				b.Track(cached)
			}
			b.before, b.refuse = test.before, test.refuse
			result, err := b.reconcile()

			g.Expect(b.calls).To(Equal(test.wantCalls))
			if test.wantRequests != nil || (test.refuse == nil && test.before == nil) {
				g.Expect(b.requests).To(HaveExactElements(asAny(test.wantRequests)...))
			}
			g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: test.wantAfter}))
			if test.wantErr == nil {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, text := range test.wantErr {
				g.Expect(err).To(MatchError(ContainSubstring(text)))
			}
			if after := b.namespace(); after != nil {
				g.Expect(after.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(test.wantPending))
				_, isLabelled := after.Labels[v1alpha1.LabelInitializing]
				g.Expect(isLabelled).To(Equal(test.wantPending != ""))
			}
		})
	}
}

func asAny(texts []string) []any {
	var result []any
	for _, text := range texts {
		result = append(result, Or(Equal(text), HavePrefix(text+":")))
	}
	return result
}

func TestFunctionGetsACopy(t *testing.T) {
	g := NewWithT(t)
	b := newFixture(waiting(me, "c.corp.com").Obj(), waiting(me, "c.corp.com").Obj(), Options{},
		func(_ context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
			*namespace = *waiting("c.corp.com", me).UID("another").Obj()
			return workrunner.Result{}, nil
		})
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.requests).To(Equal([]string{
		"shop: test uid=shop-uid, test pending-initializers=b.corp.com,c.corp.com, replace pending-initializers=c.corp.com",
	}))
}

func TestOnlyTheWriteIsRetried(t *testing.T) {
	for name, test := range map[string]struct {
		call workrunner.Call
		want string
	}{
		"done":   {call: done, want: "replace"},
		"failed": {call: returning(&workrunner.FailedError{Reason: "NoQuota"}), want: "add"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, test.call)
			b.before = func(number int) error {
				if number < 3 {
					return apierrors.NewInternalError(errors.New("etcd is unavailable"))
				}
				return nil
			}
			for range 2 {
				_, err := b.reconcile()
				g.Expect(err).To(MatchError(ContainSubstring("etcd is unavailable")))
				b.clock.SetTime(b.clock.Now().Add(time.Hour))
			}
			_, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			// The cache is stale, and the Namespace is reconciled again.
			_, err = b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b.calls).To(Equal(1))
			if after := b.namespace(); test.want == "add" {
				g.Expect(after.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInitializationResult, ContainSubstring("NoQuota")))
			} else {
				g.Expect(after.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
			}
		})
	}
}

func TestTooManyConflicts(t *testing.T) {
	g := NewWithT(t)
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, done)
	b.before = func(int) error {
		return apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("busy"))
	}
	_, err := b.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("20 consecutive update conflicts")))
	g.Expect(b.calls).To(Equal(1))
	g.Expect(b.reads).To(Equal(workrunner.MaxConflicts))
}

func TestBackoffIsIndependentOfEvents(t *testing.T) {
	g := NewWithT(t)
	options := Options{Options: workrunner.Options{Workers: 1, Backoff: workrunner.Backoff{First: time.Second, Max: 5 * time.Second}}}
	broken := errors.New("down")
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), options, func(context.Context, *corev1.Namespace) (workrunner.Result, error) {
		return workrunner.Result{}, broken
	})
	for attempt, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		_, err := b.reconcile()
		g.Expect(err).To(MatchError(broken))
		g.Expect(b.calls).To(Equal(attempt + 1))
		b.clock.SetTime(b.clock.Now().Add(delay - time.Millisecond))
		result, err := b.reconcile()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: time.Millisecond}))
		g.Expect(b.calls).To(Equal(attempt + 1))
		b.clock.SetTime(b.clock.Now().Add(time.Millisecond))
	}
	// A successful call resets the backoff.
	broken = &workrunner.NotYetError{After: time.Hour}
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	broken = errors.New("down again")
	// No task remains, so the function is not called again.
	_, err = b.reconcile()
	g.Expect(err).To(MatchError(broken))
	result, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
}

func TestCallIsCanceledWithoutMatch(t *testing.T) {
	for name, change := range map[string]func(b *fixture){
		"terminating":  func(b *fixture) { b.Track(waiting(me).Terminating(now).Obj()) },
		"name removed": func(b *fixture) { b.Track(waiting("c.corp.com").Obj()) },
		"failed":       func(b *fixture) { b.Track(waiting(me).Result(failure).Obj()) },
		"deleted":      func(b *fixture) { b.Untrack(waiting(me).Obj()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var b *fixture
			b = newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
				change(b)
				<-ctx.Done()
				return workrunner.Result{}, ctx.Err()
			})
			result, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result).To(Equal(reconcile.Result{}))
			g.Expect(b.requests).To(BeEmpty())
			// No task remains, so the function is not called again.
			_, err = b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b.calls).To(Equal(1))
		})
	}
}

func TestNothingIsPublishedAtShutdown(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(context.Background())
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
		stop()
		return workrunner.Result{}, ctx.Err()
	})
	_, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.requests).To(BeEmpty())
}

func TestProgressOutsideACall(t *testing.T) {
	g := NewWithT(t)
	var kept context.Context
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
		kept = context.WithoutCancel(ctx)
		return workrunner.Result{}, nil
	})
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	workrunner.Progress(kept, "Late", "after the call")
	workrunner.Progress(context.Background(), "Never", "outside a call")
	g.Expect(b.requests).To(HaveLen(1))
}

func TestLastTransitionTime(t *testing.T) {
	g := NewWithT(t)
	since := metav1.NewTime(now.Add(-time.Hour))
	namespace := waiting(me).Condition(corev1.NamespaceCondition{
		Type: me + "/Initialized", Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPending, LastTransitionTime: since,
	}).Obj()
	b := newFixture(namespace, namespace.DeepCopy(), Options{}, returning(errors.New("down")))
	_, err := b.reconcile()
	g.Expect(err).To(HaveOccurred())
	condition := b.namespace().Status.Conditions[0]
	g.Expect(condition.Reason).To(Equal(workrunner.ReasonRetrying))
	g.Expect(condition.LastTransitionTime.Time).To(BeTemporally("==", since.Time))
}

const missingPatchStatus = `User "test" cannot patch resource "namespaces/status" in API group "" at the cluster scope`

// Without the permission to write conditions, the reconciler publishes none for a minute.
func TestForbiddenConditionIsNotRetriedImmediately(t *testing.T) {
	g := NewWithT(t)
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, returning(&workrunner.NotYetError{After: time.Second, Message: "soon"}))
	b.refuse = func(string) error { return newForbidden(missingPatchStatus) }
	for range 3 {
		_, err := b.reconcile()
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(b.requests).To(HaveLen(1))
	b.clock.SetTime(now.Add(time.Minute))
	b.refuse = nil
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.requests).To(HaveLen(2))
	g.Expect(b.namespace().Status.Conditions).To(HaveLen(1))
}

// A webhook can deny a write to one Namespace with the same code as a missing permission.
func TestDeniedConditionIsRetried(t *testing.T) {
	g := NewWithT(t)
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, returning(&workrunner.NotYetError{After: time.Second, Message: "soon"}))
	b.refuse = func(string) error { return deniedByWebhook(403) }
	for range 3 {
		_, err := b.reconcile()
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(b.requests).To(HaveLen(3))
}

// The operator skips an initializer and sets its condition in the same write, which this process
// might not have seen yet.
func TestConditionOfASkippedInitializerIsPreserved(t *testing.T) {
	skipped := corev1.NamespaceCondition{
		Type: me + "/Initialized", Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTimedOut,
	}
	for name, call := range map[string]workrunner.Call{
		"progress": func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
			workrunner.Progress(ctx, "Creating", "1 of 2")
			return workrunner.Result{}, nil
		},
		"not yet": returning(&workrunner.NotYetError{After: time.Minute}),
		"error":   returning(errors.New("down")),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newFixture(waiting(me, "c.corp.com").ResourceVersion("1").Obj(),
				waiting("c.corp.com").ResourceVersion("2").Condition(skipped).Obj(), Options{}, call)
			_, _ = b.reconcile()
			g.Expect(b.namespace().Status.Conditions).To(ConsistOf(skipped))
			g.Expect(b.requests).To(ContainElement(HavePrefix("shop status")))
		})
	}
}

// Another client changes the Namespace before and during the call. Each change causes one update
// conflict, and other conditions are written with one request.
func TestConditionIsWrittenAfterAConflict(t *testing.T) {
	g := NewWithT(t)
	var b *fixture
	b = newFixture(waiting(me).ResourceVersion("1").Obj(), waiting(me).ResourceVersion("2").Obj(), Options{},
		func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
			workrunner.Progress(ctx, "Creating", "1 of 4")
			g.Expect(b.requests).To(HaveLen(2))
			workrunner.Progress(ctx, "Creating", "2 of 4")
			g.Expect(b.requests).To(HaveLen(3))
			changed := b.namespace()
			changed.Labels["team"] = "blue"
			g.Expect(b.live.Update(ctx, changed)).To(Succeed())
			workrunner.Progress(ctx, "Creating", "3 of 4")
			g.Expect(b.requests).To(HaveLen(5))
			return workrunner.Result{}, &workrunner.NotYetError{Reason: "Creating", Message: "4 of 4"}
		})
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.requests).To(HaveLen(6))
	g.Expect(b.reads).To(Equal(2))
	g.Expect(b.namespace().Status.Conditions).To(ConsistOf(HaveField("Message", "4 of 4")))
}

// The condition prevents the operator from reporting the initializer as unresponsive.
func TestHeartbeat(t *testing.T) {
	const status = "shop status of shop-uid: b.corp.com/Initialized=False "
	pending := corev1.NamespaceCondition{
		Type: me + "/Initialized", Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPending,
	}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      string
	}{
		"no condition":                        {waiting(me).Obj(), "Working: " + workrunner.MessageWorking},
		"condition that the operator has set": {waiting(me).Condition(pending).Obj(), "Working: " + workrunner.MessageWorking},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			published := make(chan struct{})
			b := newFixture(test.namespace, test.namespace.DeepCopy(), Options{}, func(context.Context, *corev1.Namespace) (workrunner.Result, error) {
				<-published
				return workrunner.Result{}, nil
			})
			b.HeartbeatInterval = 1
			b.refuse = func(string) error {
				close(published)
				return nil
			}
			_, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b.requests).To(Equal([]string{
				status + test.want, "shop: test uid=shop-uid, test pending-initializers=b.corp.com, replace pending-initializers=",
			}))
		})
	}
}

// A heartbeat that cannot be published is repeated during the call, but a published one is not.
func TestHeartbeatIsRepeated(t *testing.T) {
	g := NewWithT(t)
	var attempts atomic.Int32
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, func(context.Context, *corev1.Namespace) (workrunner.Result, error) {
		g.Eventually(attempts.Load).Should(BeEquivalentTo(3))
		g.Consistently(attempts.Load, "50ms").Should(BeEquivalentTo(3))
		return workrunner.Result{}, nil
	})
	b.HeartbeatInterval = time.Millisecond
	b.refuse = func(string) error {
		if attempts.Add(1) < 3 {
			return apierrors.NewInternalError(errors.New("etcd is unavailable"))
		}
		return nil
	}
	_, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.requests).To(HaveLen(4))
	g.Expect(b.namespace().Status.Conditions[0].Reason).To(Equal(workrunner.ReasonWorking))
}

// A call that exceeds the manager's ReconciliationTimeout is retried.
func TestReconciliationTimeout(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, func(ctx context.Context, _ *corev1.Namespace) (workrunner.Result, error) {
		<-ctx.Done()
		return workrunner.Result{}, ctx.Err()
	})
	_, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
	g.Expect(err).To(MatchError(context.DeadlineExceeded))
	g.Expect(b.requests).To(Equal([]string{
		"shop status of shop-uid: b.corp.com/Initialized=False Retrying: context deadline exceeded",
	}))
}

// controller-runtime does not retry terminal errors.
func TestNoErrorIsTerminal(t *testing.T) {
	g := NewWithT(t)
	b := newFixture(waiting(me).Obj(), waiting(me).Obj(), Options{}, returning(reconcile.TerminalError(errors.New("no such team"))))
	_, err := b.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("no such team")))
	g.Expect(errors.Is(err, reconcile.TerminalError(nil))).To(BeFalse())
}

// A previous leader might already have handled a Namespace that still appears to be waiting in the
// cache.
func TestStaleCacheWindow(t *testing.T) {
	finished := wrappers.MakeNamespace("shop").UID("shop-uid").Obj()
	again := waiting(me).UID("another").Obj()
	terminating := waiting(me).Terminating(now).Obj()
	terminating.Finalizers = []string{"test.example.com/hold"} // The fake client rejects terminating objects without finalizers.
	for name, test := range map[string]struct {
		live      *corev1.Namespace
		created   time.Duration
		wantCalls int
		wantReads int
	}{
		"still waiting":     {live: waiting(me).Obj(), wantCalls: 1, wantReads: 1},
		"finished":          {live: finished, wantReads: 1},
		"deleted":           {wantReads: 1},
		"recreated":         {live: again, wantReads: 1},
		"terminating":       {live: terminating, wantReads: 1},
		"not its turn":      {live: waiting("a.corp.com", me).Obj(), wantReads: 1},
		"after the window":  {live: waiting(me).Obj(), created: time.Minute, wantCalls: 1},
		"end of the window": {live: finished, created: time.Minute - 1, wantReads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newFixture(nil, test.live, Options{}, done)
			b.StaleCacheWindow = time.Minute
			b.Track(wrappers.MakeNamespace("other").Obj())
			b.clock.SetTime(now.Add(time.Hour))
			b.cache.namespace = waiting(me).Obj()
			b.cache.namespace.CreationTimestamp = metav1.NewTime(now.Add(test.created))
			b.Track(b.cache.namespace)
			_, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b.calls).To(Equal(test.wantCalls))
			g.Expect(b.reads).To(Equal(test.wantReads))
			g.Expect(b.requests).To(HaveLen(test.wantCalls))
		})
	}
}
