// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/observer"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// requestDelay is the time that a client needs to send its requests to a paused API server. The requests
// wait in the sockets, and the API server reads them when it resumes.
const requestDelay = 200 * time.Millisecond

// gracePeriod is the value of --settling-time=auto with two API servers.
const gracePeriod = 5 * time.Second

var _ = Describe("An API server that is paused", Serial, func() {
	It("rejects early writes to the namespaces that were created meanwhile", func(ctx context.Context) {
		pending, completed := &results{}, &results{}
		var group sync.WaitGroup
		resume := pause()
		var namespaces []*corev1.Namespace
		for i := range 10 {
			namespace := a.create(ctx, makeInitialized(framework.Unique("meanwhile")))
			fill(ctx, a.initializer, namespace.Name)
			if i%2 == 0 {
				writeOnce(ctx, &group, b, namespace.Name, pending)
				namespaces = append(namespaces, namespace)
				continue
			}
			writeOnce(ctx, &group, b, namespace.Name, completed)
			time.Sleep(upTo(requestDelay))
			a.finish(ctx, namespace)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("after a pause: writes to initializing namespaces: %s; to initialized namespaces: %s", pending, completed)
		Expect(pending.count(string(metav1.StatusReasonForbidden))).To(Equal(3 * len(namespaces)))
		for _, namespace := range namespaces {
			b.finish(ctx, namespace)
			Eventually(operations(b.ordinary, namespace.Name)["create"]).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("creates no orphaned objects if it resumes during the grace period of the finalization", func(ctx context.Context) {
		late := &results{}
		names := openThroughBoth(ctx, 10)
		var group sync.WaitGroup
		resume := pause()
		var waits []func()
		start := time.Now()
		for _, name := range names {
			waits = append(waits, a.remove(ctx, name))
		}
		time.Sleep(time.Until(start.Add(upTo(gracePeriod / 2))))
		for _, name := range names {
			writeOnce(ctx, &group, b, name, late)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("late writes to %d terminating namespaces after a pause: %s", len(names), late)
		for _, wait := range waits {
			wait()
		}
		Expect(remaining(ctx, names)).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("can create orphaned objects, and write to recreated namespaces, if it resumes after the grace period", func(ctx context.Context) {
		late := &results{}
		removed, recreated := openThroughBoth(ctx, 5), openThroughBoth(ctx, 5)
		var group sync.WaitGroup
		resume := pause()
		waits := map[string]func(){}
		for _, name := range append(removed, recreated...) {
			waits[name] = a.remove(ctx, name)
		}
		for _, wait := range waits {
			wait()
		}
		for _, name := range recreated {
			a.create(ctx, makeInitialized(name))
			fill(ctx, a.initializer, name)
		}
		for _, name := range append(removed, recreated...) {
			writeOnce(ctx, &group, b, name, late)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("writes after a pause that is longer than the grace period: %s", late)

		expectOnlyLateWrites(ctx, removed, recreated)
	}, SpecTimeout(specTimeout))
})

// expectOnlyLateWrites checks that all violations are writes of the user through b: orphaned objects in namespaces
// that were removed, and early writes to namespaces that were recreated.
func expectOnlyLateWrites(ctx context.Context, removed, recreated []string) (orphaned, early int) {
	GinkgoHelper()
	orphans := map[string]string{}
	for _, configMap := range remaining(ctx, removed) {
		orphans[configMap.Name] = configMap.Namespace
	}
	orphaned = len(orphans)
	unattributed := 0
	for _, violation := range cluster.Observation.CollectViolations(ctx) {
		// The API server can lose its connection to etcd during a request.
		if violation.Request == nil {
			Expect(violation.Invariant).To(Equal(observer.OrphanedObject), "%v", violation)
			Expect(removed).To(ContainElement(violation.Namespace), "%v", violation)
			unattributed++
			continue
		}
		Expect(violation.Request.Identity().Username).To(Equal(framework.OrdinaryUser), "%v", violation)
		Expect(violation.Request.Log).To(Equal(b.Log), "%v", violation)
		if violation.Invariant == observer.OrphanedObject {
			Expect(orphans).To(HaveKeyWithValue(violation.Request.ResponseObject.Name, violation.Namespace))
			delete(orphans, violation.Request.ResponseObject.Name)
			continue
		}
		Expect(violation.Invariant).To(Equal(observer.EarlyWrite), "%v", violation)
		Expect(recreated).To(ContainElement(violation.Namespace), "%v", violation)
		early++
	}
	Expect(orphans).To(HaveLen(unattributed), "orphaned objects that the observer did not find")
	report("%d orphaned objects in %d removed namespaces, %d early writes to %d recreated namespaces",
		orphaned, len(removed), early, len(recreated))
	return orphaned, early
}

// openThroughBoth creates namespaces with content, and waits until b has observed them.
func openThroughBoth(ctx context.Context, number int) []string {
	GinkgoHelper()
	var names []string
	for range number {
		name := framework.Unique("paused")
		a.create(ctx, wrappers.MakeNamespace(name).Obj())
		fill(ctx, b.ordinary, name)
		names = append(names, name)
	}
	return names
}

// remaining returns the ConfigMaps in namespaces.
func remaining(ctx context.Context, names []string) []corev1.ConfigMap {
	GinkgoHelper()
	var found []corev1.ConfigMap
	for _, name := range names {
		var list corev1.ConfigMapList
		Expect(cluster.Admin.List(ctx, &list, client.InNamespace(name))).To(Succeed())
		found = append(found, list.Items...)
	}
	return found
}
