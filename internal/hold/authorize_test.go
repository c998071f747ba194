// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// reviewer answers SubjectAccessReviews, from a number on with yes, and records them.
type reviewer struct {
	allowFrom int // 0 if never
	err       error
	reviews   []authorizationv1.SubjectAccessReviewSpec
}

// Create implements Creator.
func (r *reviewer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	review := object.(*authorizationv1.SubjectAccessReview)
	r.reviews = append(r.reviews, review.Spec)
	review.Status.Allowed = r.allowFrom > 0 && len(r.reviews) >= r.allowFrom
	return r.err
}

func requestedBy(user string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationRequestedBy] = user }
}

func byAlice(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	return makeNamespace(append([]func(*corev1.Namespace){requestedBy("alice")}, changes...)...)
}

func makeReview() *webhooks.AccessReview {
	return &webhooks.AccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"team"}, Extra: map[string]authorizationv1.ExtraValue{"a": {"b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "create", Resource: "configmaps"},
	}}
}

func TestAuthorize(t *testing.T) {
	const limit = time.Minute
	tests := map[string]struct {
		live *corev1.Namespace // byAlice() if nil
		// cached are the states in the cache, the first of them immediately and the others after one second each.
		cached      []*corev1.Namespace
		reviewer    reviewer
		want        bool
		wantReviews int
		wantReason  string
		wantTime    time.Duration
	}{
		"initialized": {
			cached: []*corev1.Namespace{byAlice(), byAlice(initialized)}, reviewer: reviewer{allowFrom: 1},
			want: true, wantReviews: 1, wantTime: time.Second,
		},
		"RBAC is behind": {
			cached: []*corev1.Namespace{byAlice(), byAlice(initialized)}, reviewer: reviewer{allowFrom: 3},
			want: true, wantReviews: 3, wantTime: time.Second + 150*time.Millisecond,
		},
		"not allowed": {
			cached:      []*corev1.Namespace{byAlice(), byAlice(initialized)},
			wantReviews: 5, wantTime: time.Second + 750*time.Millisecond,
		},
		"the API server does not answer": {
			cached: []*corev1.Namespace{byAlice(), byAlice(initialized)}, reviewer: reviewer{allowFrom: 1, err: errors.New("no")},
			wantReviews: 1, wantTime: time.Second,
		},
		"the cache is behind": {
			cached: []*corev1.Namespace{nil, byAlice(), byAlice(initialized)}, reviewer: reviewer{allowFrom: 1},
			want: true, wantReviews: 1, wantTime: 2 * time.Second,
		},
		"the cache contains an earlier Namespace": {
			cached:   []*corev1.Namespace{byAlice(recreated, initialized), byAlice(recreated, deleted), nil, byAlice(), byAlice(initialized)},
			reviewer: reviewer{allowFrom: 1}, want: true, wantReviews: 1, wantTime: 4 * time.Second,
		},
		"recreated by another user": {
			cached:   []*corev1.Namespace{byAlice(), makeNamespace(recreated, requestedBy("bob"), initialized)},
			reviewer: reviewer{allowFrom: 1}, wantTime: time.Second,
		},
		"recreated by the same user": {
			cached: []*corev1.Namespace{byAlice(), byAlice(recreated, initialized)}, reviewer: reviewer{allowFrom: 1},
			wantTime: time.Second,
		},
		"failed": {
			cached: []*corev1.Namespace{byAlice(), byAlice(withFailure)}, reviewer: reviewer{allowFrom: 1},
			wantTime: time.Second, wantReason: "no room for another team",
		},
		"deleted": {cached: []*corev1.Namespace{byAlice(), byAlice(deleted)}, reviewer: reviewer{allowFrom: 1}, wantTime: time.Second},
		"initialized and deleted": {
			cached: []*corev1.Namespace{byAlice(), byAlice(initialized, deleted)}, reviewer: reviewer{allowFrom: 1}, wantTime: time.Second,
		},
		"removed": {cached: []*corev1.Namespace{byAlice(), nil}, reviewer: reviewer{allowFrom: 1}, wantTime: time.Second},
		"never initialized": {
			cached: []*corev1.Namespace{byAlice()}, reviewer: reviewer{allowFrom: 1}, wantTime: limit,
			wantReason: "a.example.com, b.example.com",
		},
		"of another user": {
			live: makeNamespace(requestedBy("bob")), cached: []*corev1.Namespace{makeNamespace(requestedBy("bob"))},
			reviewer: reviewer{allowFrom: 1},
		},
		"without a requester": {live: makeNamespace(), cached: []*corev1.Namespace{makeNamespace()}, reviewer: reviewer{allowFrom: 1}},
		"already initialized": {
			live: byAlice(initialized), cached: []*corev1.Namespace{byAlice(initialized)}, reviewer: reviewer{allowFrom: 1},
		},
		"already failed": {
			live: byAlice(withFailure), cached: []*corev1.Namespace{byAlice(withFailure)}, reviewer: reviewer{allowFrom: 1},
			wantReason: "no room for another team",
		},
		"already deleted": {live: byAlice(deleted), cached: []*corev1.Namespace{byAlice(deleted)}, reviewer: reviewer{allowFrom: 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				if test.live == nil {
					test.live = byAlice()
				}
				cache := &memory{namespace: test.cached[0]}
				holder := &Holder{
					config: Config{
						Namespaces: cache, Live: &memory{namespace: test.live}, AccessReviews: &test.reviewer, Duration: limit,
					},
					slots: slots{limits: Limits{PerUser: 1, Total: 1}},
				}
				go func() {
					for _, namespace := range test.cached[1:] {
						time.Sleep(time.Second)
						cache.set(namespace)
						holder.changes.notify("shop")
					}
				}()
				begin := time.Now()
				got, reason, err := holder.Authorize(t.Context(), makeReview())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(test.want))
				if test.wantReason == "" {
					g.Expect(reason).To(BeEmpty())
				} else {
					g.Expect(reason).To(ContainSubstring(test.wantReason))
				}
				g.Expect(time.Since(begin)).To(Equal(test.wantTime))
				g.Expect(test.reviewer.reviews).To(HaveLen(test.wantReviews))
				g.Expect(holder.slots.total).To(BeZero())
			})
		})
	}
}

// TestAuthorizeReview verifies that the API server is asked about the same request, and that the webhook has no opinion
// about its own question.
func TestAuthorizeReview(t *testing.T) {
	g := NewWithT(t)
	reviewer := &reviewer{allowFrom: 1}
	cache := &memory{namespace: byAlice(initialized)}
	holder := &Holder{
		config: Config{Namespaces: cache, Live: &memory{namespace: byAlice()}, AccessReviews: reviewer, Duration: time.Minute},
		slots:  slots{limits: Limits{PerUser: 1, Total: 1}},
	}
	review := makeReview()
	isAllowed, _, err := holder.Authorize(t.Context(), review)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(isAllowed).To(BeTrue())
	asked := reviewer.reviews[0]
	isAllowed, _, err = holder.Authorize(t.Context(), &webhooks.AccessReview{Spec: *asked.DeepCopy()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(isAllowed).To(BeFalse())
	g.Expect(reviewer.reviews).To(HaveLen(1))

	delete(asked.Extra, internalv1alpha1.ExtraReview)
	g.Expect(asked).To(Equal(makeReview().Spec))
	g.Expect(review.Spec).To(Equal(makeReview().Spec), "unchanged")
}

func TestAuthorizeWithoutOpinion(t *testing.T) {
	stopping := make(chan struct{})
	close(stopping)
	tests := map[string]struct {
		change  func(*webhooks.AccessReview, *Holder)
		wantErr bool
	}{
		"no namespace": {change: func(r *webhooks.AccessReview, _ *Holder) { r.Spec.ResourceAttributes.Namespace = "" }},
		"no resource":  {change: func(r *webhooks.AccessReview, _ *Holder) { r.Spec.ResourceAttributes = nil }},
		"too many requests of the user": {change: func(_ *webhooks.AccessReview, h *Holder) {
			h.slots.limits.PerUser = 0
		}},
		"too many requests": {change: func(_ *webhooks.AccessReview, h *Holder) { h.slots.limits.Total = 0 }},
		"an unknown namespace": {change: func(r *webhooks.AccessReview, _ *Holder) {
			r.Spec.ResourceAttributes.Namespace = "other"
		}},
		"another user": {change: func(r *webhooks.AccessReview, _ *Holder) { r.Spec.User = "bob" }},
		"the manager stops, and another replica is asked": {
			change:  func(_ *webhooks.AccessReview, h *Holder) { h.config.Stopping = stopping },
			wantErr: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reviewer := &reviewer{allowFrom: 1}
			namespaces := &memory{namespace: byAlice()}
			holder := &Holder{
				config: Config{Namespaces: namespaces, Live: namespaces, AccessReviews: reviewer, Duration: time.Minute},
				slots:  slots{limits: Limits{PerUser: 1, Total: 1}},
			}
			review := makeReview()
			test.change(review, holder)
			isAllowed, reason, err := holder.Authorize(t.Context(), review)
			if !test.wantErr {
				g.Expect(reason).To(BeEmpty())
			}
			g.Expect(isAllowed).To(BeFalse())
			g.Expect(err != nil).To(Equal(test.wantErr))
			g.Expect(reviewer.reviews).To(BeEmpty())
		})
	}
}
