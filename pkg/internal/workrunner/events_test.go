// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// Watch events enqueue Namespaces that match, and records are not leaked.
func TestEventHandler(t *testing.T) {
	matching := shop().ResourceVersion("1").Obj()
	other := shop().ResourceVersion("2").Label("match", "false").Obj()
	again := shop().ResourceVersion("3").UID("another").Obj()
	change := func(change func(*corev1.Namespace)) *corev1.Namespace {
		changed := shop().ResourceVersion("4").Obj()
		change(changed)
		return changed
	}
	for name, test := range map[string]struct {
		before, after *corev1.Namespace
		wantQueued    int
		wantKnown     []string
	}{
		"new":                        {nil, matching, 1, []string{"shop-uid"}},
		"new without match":          {nil, other, 0, nil},
		"matches now":                {other, matching, 1, []string{"shop-uid"}},
		"no longer matches":          {matching, other, 0, nil},
		"deleted":                    {matching, nil, 0, nil},
		"recreated, deletion missed": {matching, again, 1, []string{"another"}},
		"annotation": {matching, change(func(n *corev1.Namespace) {
			n.Annotations = map[string]string{"a": "b"}
		}), 1, []string{"shop-uid"}},
		"spec.finalizers": {matching, change(func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"}
		}), 1, []string{"shop-uid"}},
		"terminating": {matching, shop().Terminating(now).Obj(), 1, []string{"shop-uid"}},
		"status": {matching, change(func(n *corev1.Namespace) {
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: "x"}}
		}), 0, []string{"shop-uid"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newFixture(shop().Obj(), nil).reconciler
			r.forget("shop-uid")
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			handler := r.eventHandler()
			if test.before != nil {
				r.observe(test.before)
			}
			switch {
			case test.before == nil:
				handler.Create(t.Context(), event.TypedCreateEvent[*corev1.Namespace]{Object: test.after}, queue)
			case test.after == nil:
				handler.Delete(t.Context(), event.TypedDeleteEvent[*corev1.Namespace]{Object: test.before}, queue)
			default:
				handler.Update(t.Context(), event.TypedUpdateEvent[*corev1.Namespace]{
					ObjectOld: test.before, ObjectNew: test.after,
				}, queue)
			}
			g.Expect(queue.Len()).To(Equal(test.wantQueued))
			var known []string
			for uid := range r.records {
				known = append(known, string(uid))
			}
			g.Expect(known).To(Equal(test.wantKnown))
		})
	}
}

// A change of a watched object enqueues only Namespaces that match and are affected.
func TestAffectedNamespaces(t *testing.T) {
	f := newFixture(shop().Obj(), nil)
	for _, namespace := range []*corev1.Namespace{
		wrappers.MakeNamespace("red").Label("match", "true").Obj(), wrappers.MakeNamespace("other").Obj(),
	} {
		NewWithT(t).Expect(f.live.Create(t.Context(), namespace)).To(Succeed())
	}
	plan := wrappers.MakeConfigMap("plans", "red")
	for name, test := range map[string]struct {
		affects func(client.Object, *corev1.Namespace) bool
		want    []string
	}{
		"all": {nil, []string{"red", "shop"}},
		"by name": {func(object client.Object, namespace *corev1.Namespace) bool {
			return object.GetName() == namespace.Name
		}, []string{"red"}},
		"panic": {func(client.Object, *corev1.Namespace) bool { panic("out of range") }, []string{"red", "shop"}},
	} {
		var got []string
		for _, request := range f.affectedNamespaces(Watch{Affects: test.affects})(t.Context(), plan) {
			got = append(got, request.Name)
		}
		NewWithT(t).Expect(got).To(Equal(test.want), name)
	}
}
