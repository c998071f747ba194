// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A namespace that is deleted and recreated through alternating API servers", Serial, func() {
	DescribeTable("is closed to new objects; updates and deletions are accepted only from an API server with a stale watch",
		func(ctx context.Context, names, cycles int, delayed path, latency time.Duration) {
			delayed.start(latency)
			all := &results{}
			var lock sync.Mutex
			var window time.Duration
			var group sync.WaitGroup
			for range names {
				name := framework.Unique("again")
				second, first := inOrder(latency)
				group.Go(func() {
					defer GinkgoRecover()
					first.create(ctx, wrappers.MakeNamespace(name).Obj())
					fill(ctx, second.ordinary, name)
					for range cycles {
						created, responses := recreate(ctx, name, first, second, latency)
						lock.Lock()
						window = max(window, responses.window(created))
						lock.Unlock()
						all.merge(responses)
						if latency == 0 {
							first, second = second, first
						}
					}
				})
			}
			group.Wait()
			report("writes to %d recreated namespaces, with a latency of %s: %s; last accepted write at most %s after the creation",
				names*cycles, latency, all, window)
			Expect(all.count(accepted, "create")).To(BeZero())
			found := cluster.Observation.CollectViolations(ctx)
			report("the observer found %d early updates and deletions", len(found))
			for _, violation := range found {
				Expect(violation.Invariant).To(Equal(observer.EarlyWrite), "%v", violation)
				Expect(violation.Request.Verb).To(BeElementOf("update", "delete"), "%v", violation)
			}
			Expect(found).To(HaveLen(all.count(accepted)))
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 10, 2, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 10, 50, path{}, noLatency),
		// These take as long as the grace period and several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, 1, etcdPath, 500*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, 1, namespacesPath, 500*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, 1, membersPath, 500*time.Millisecond),
	)
})

// recreate deletes a namespace through one API server and creates it through the other. A user writes to
// it through the first one from its removal on. recreate initializes the namespace and returns the time of the
// creation and the responses before.
func recreate(
	ctx context.Context, name string, first, second *server, latency time.Duration,
) (time.Time, *results) {
	GinkgoHelper()
	old := uidOf(ctx, name)
	first.remove(ctx, name)()
	early := &results{}
	stop := writeContinuously(ctx, first, name, 0, early)
	created := second.create(ctx, makeInitialized(name))
	at := time.Now()
	Expect(created.UID).NotTo(Equal(old))
	fill(ctx, second.initializer, name)
	time.Sleep(missingNamespaceWait + 4*latency)
	stop()
	second.finish(ctx, created)
	return at, early
}

func uidOf(ctx context.Context, name string) types.UID {
	GinkgoHelper()
	return cluster.GetNamespace(Default, ctx, name).UID
}

// contentSize is the number of ConfigMaps in a namespace. The operator needs several requests to delete
// them.
const contentSize = 20

// A user who competes with the operator deletes and recreates everything under the same names. Requests of
// the operator for the old objects arrive when the new ones exist.
var _ = Describe("A namespace that is finalized and recreated by another client during its finalization", Serial, func() {
	DescribeTable("keeps all new objects",
		func(ctx context.Context, names, cycles int) {
			var recreated, superseded atomic.Int32
			var group sync.WaitGroup
			for range names {
				first, second := inRandomOrder()
				delays := make([]time.Duration, cycles)
				for i := range delays {
					// A pass of the operator takes about as long.
					delays[i] = upTo(150 * time.Millisecond)
				}
				name := framework.Unique("competing")
				group.Go(func() {
					defer GinkgoRecover()
					first.create(ctx, wrappers.MakeNamespace(name).Obj())
					uids := createContent(ctx, first, name)
					for _, delay := range delays {
						wait := first.remove(ctx, name)
						time.Sleep(delay)
						if second.overtake(ctx, name) {
							superseded.Add(1)
						}
						wait()
						Eventually(func() error {
							_, err := second.ordinary.CoreV1().Namespaces().Create(ctx, wrappers.MakeNamespace(name).Obj(), metav1.CreateOptions{})
							return err
						}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
						old := uids
						uids = createContent(ctx, second, name)
						Expect(uids).NotTo(Equal(old))
						expectContent(ctx, name, uids)
						recreated.Add(1)
						first, second = second, first
					}
				})
			}
			group.Wait()
			report("%d namespaces recreated, %d of them finalized by the user", recreated.Load(), superseded.Load())
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 10, 5),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 10, 50),
	)
})

// createContent creates ConfigMaps and returns their UIDs. While the API server still observes the old
// namespace, it rejects them.
func createContent(ctx context.Context, to *server, namespace string) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for i := range contentSize {
		name := fmt.Sprint("content-", i)
		Eventually(func() error {
			created, err := to.ordinary.CoreV1().ConfigMaps(namespace).Create(ctx, wrappers.MakeConfigMap(namespace, name), metav1.CreateOptions{})
			if err == nil {
				uids[name] = created.UID
			}
			return err
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
	}
	return uids
}

// expectContent checks that the ConfigMaps have the given UIDs.
func expectContent(ctx context.Context, namespace string, uids map[string]types.UID) {
	GinkgoHelper()
	list, err := a.admin.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := map[string]types.UID{}
	for i := range list.Items {
		Expect(list.Items[i].DeletionTimestamp).To(BeNil())
		found[list.Items[i].Name] = list.Items[i].UID
	}
	Expect(found).To(Equal(uids))
}

// overtake deletes the content of a terminating namespace and removes its namespace finalizer, as another
// namespace controller does. It reports whether it was faster than the operator.
func (s *server) overtake(ctx context.Context, name string) bool {
	GinkgoHelper()
	err := s.admin.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for {
		namespace, err := s.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false
		}
		Expect(err).NotTo(HaveOccurred())
		namespace.Spec.Finalizers = nil
		_, err = s.admin.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return true
		case apierrors.IsNotFound(err):
			return false
		}
		Expect(err).To(Satisfy(apierrors.IsConflict))
	}
}
