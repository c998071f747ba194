// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	. "github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// soon sets a backoff that is short enough for a spec.
var soon = initializer.WithBackoff(50*time.Millisecond, 200*time.Millisecond)

// conditionOf returns the type of an initializer's condition.
func conditionOf(name string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
}

// removeFinalizers removes the finalizers of an object, so that it can be deleted.
func removeFinalizers(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(admin.Patch(ctx, object, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

var _ = Describe("An initializer during concurrent changes and failures", func() {
	const name = "one.disorder.example.com"

	It("is called once for each namespace despite concurrent writes", func(ctx context.Context) {
		const count = 30
		names := []string{name, "two.disorder.example.com", "three.disorder.example.com"}
		owners, served := map[string]string{}, make([]calls, len(names))
		register(ctx, names...)
		seen := record(ctx)
		together := make(chan struct{})
		for i, name := range names {
			account := unique("concurrency")
			owners[name] = userOf(account)
			serve(ctx, newAccount(ctx, account, serving, publishing), name,
				func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
					served[i].record(namespace)
					// All calls start before the first call returns.
					select {
					case <-together:
					case <-ctx.Done():
					}
					return initializer.Result{}, ctx.Err()
				}, initializer.Unordered(), initializer.WithWorkers(count))
		}
		var namespaces []string
		for range count {
			namespaces = append(namespaces, create(ctx, wrappers.MakeNamespace(unique("storm"))).Name)
		}
		storming, end := context.WithCancel(ctx)
		defer end()
		var writers sync.WaitGroup
		var writes atomic.Int64
		for writer, patch := range map[string]string{
			"labels":      `{"metadata":{"labels":{"storm":"%d"}}}`,
			"annotations": `{"metadata":{"annotations":{"example.com/storm":"%d"}}}`,
			"status":      `{"status":{"conditions":[{"type":"example.com/Storm","status":"True","reason":"Count","message":"%d"}]}}`,
		} {
			writers.Go(func() {
				defer GinkgoRecover()
				for i := 0; storming.Err() == nil; i++ {
					namespace := wrappers.MakeNamespace(namespaces[i%count]).Obj()
					body := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, patch, i))
					var err error
					if writer == "status" {
						err = admin.Status().Patch(ctx, namespace, body)
					} else {
						err = admin.Patch(ctx, namespace, body)
					}
					// The API server returns an error after too many conflicts.
					if client.IgnoreNotFound(err) == nil {
						writes.Add(1)
					}
				}
			})
		}
		for i := range served {
			for _, namespace := range namespaces {
				Eventually(func() []types.UID { return served[i].of(namespace) }).WithContext(ctx).Should(HaveLen(1))
			}
		}
		close(together)
		expectReady(ctx, namespaces...)
		end()
		writers.Wait()

		AddReportEntry("concurrent writes", writes.Load())
		Expect(writes.Load()).To(BeNumerically(">", count))
		for i := range served {
			for _, namespace := range namespaces {
				Expect(served[i].of(namespace)).To(HaveLen(1), "%s, %s", names[i], namespace)
			}
		}
		seen.combine(ctx).expectOwners(owners, namespaces...)
	}, SpecTimeout(5*time.Minute))

	It("stops when the namespace is deleted, and starts again when it is recreated", func(ctx context.Context) {
		register(ctx, name)
		var served calls
		cancelled := make(chan error, 1)
		serve(ctx, newAccount(ctx, unique("concurrency"), serving), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				if served.record(namespace) == 1 {
					<-ctx.Done()
					cancelled <- context.Cause(ctx)
					return initializer.Result{}, nil
				}
				return initializer.Result{}, nil
			})
		first := create(ctx, wrappers.MakeNamespace(unique("again")))
		Eventually(func() []types.UID { return served.of(first.Name) }).WithContext(ctx).Should(HaveLen(1))
		Expect(admin.Delete(ctx, first)).To(Succeed())
		second := wrappers.MakeNamespace(first.Name).Obj()
		Eventually(func() error { return admin.Create(ctx, second) }).WithContext(ctx).Should(Succeed())

		Eventually(cancelled).WithContext(ctx).Should(Receive(HaveOccurred()))
		expectReady(ctx, second.Name)
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(served.of(first.Name)).To(Equal([]types.UID{first.UID, second.UID}))
	}, SpecTimeout(5*time.Minute))

	It("ignores terminating and failed namespaces", func(ctx context.Context) {
		register(ctx, name)
		var served calls
		deleted, failed := wrappers.MakeNamespace(unique("left")).Obj(), wrappers.MakeNamespace(unique("left")).Obj()
		for _, namespace := range []*corev1.Namespace{deleted, failed} {
			namespace.Finalizers = []string{"example.com/kept"}
			Expect(admin.Create(ctx, namespace)).To(Succeed())
		}
		Expect(admin.Delete(ctx, deleted)).To(Succeed())
		Expect(admin.Patch(ctx, failed, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInitializationResult,
			`{"status":"Failure","reason":"Other","message":"another initializer failed"}`)))).To(Succeed())
		serve(ctx, newAccount(ctx, unique("concurrency"), serving), name,
			func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				served.record(namespace)
				return initializer.Result{}, nil
			})
		// The initializer is last in the list.
		expectReady(ctx, create(ctx, wrappers.MakeNamespace(unique("taken"))).Name)
		for _, namespace := range []*corev1.Namespace{deleted, failed} {
			Expect(served.of(namespace.Name)).To(BeEmpty())
			Expect(pendingOf(get(Default, ctx, namespace.Name))).To(Equal(name))
			removeFinalizers(ctx, namespace)
		}
	}, SpecTimeout(5*time.Minute))

	It("waits for preceding initializers", func(ctx context.Context) {
		const before = "before.disorder.example.com"
		register(ctx, before, name)
		var served calls
		serve(ctx, newAccount(ctx, unique("concurrency"), serving), name,
			func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				Expect(pendingOf(namespace)).To(Equal(name))
				served.record(namespace)
				return initializer.Result{}, nil
			})
		open := make(chan struct{})
		serve(ctx, newAccount(ctx, unique("concurrency"), serving, publishing), before,
			func(ctx context.Context, _ *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Working", "preparing")
				select {
				case <-open:
				case <-ctx.Done():
				}
				return initializer.Result{}, ctx.Err()
			})
		namespace := create(ctx, wrappers.MakeNamespace(unique("turn")))
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(
				HaveCondition(conditionOf(before), corev1.ConditionFalse, "Working", "preparing"))
		}).WithContext(ctx).Should(Succeed())
		Expect(served.of(namespace.Name)).To(BeEmpty())
		close(open)
		expectReady(ctx, namespace.Name)
		Expect(served.of(namespace.Name)).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))

	It("processes other namespaces while the function fails, panics, returns errors, waits or hangs", func(ctx context.Context) {
		register(ctx, name)
		seen := record(ctx)
		var served calls
		var isFixed atomic.Bool
		hanging := make(chan struct{})
		logs := serve(ctx, newAccount(ctx, unique("concurrency"), serving, publishing), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				call := served.record(namespace)
				switch namespace.Labels["kind"] {
				case "failing":
					return initializer.Result{}, fmt.Errorf("failed to check the budget: %w",
						initializer.Failed("BudgetUsedUp", "team %s has no budget left", "blue"))
				case "panicking":
					if !isFixed.Load() {
						panic("index out of range")
					}
				case "erring":
					if call <= 3 {
						return initializer.Result{}, fmt.Errorf("attempt %d: the service is down", call)
					}
				case "waiting":
					if namespace.Labels["owner"] == "" {
						return initializer.Result{}, initializer.NotYet(time.Hour, "NoOwner", "label %q is missing", "owner")
					}
				case "polling":
					if call <= 2 {
						return initializer.Result{}, initializer.NotYet(50*time.Millisecond, "Polling", "poll %d", call)
					}
				case "hanging":
					<-ctx.Done()
					close(hanging)
					return initializer.Result{}, ctx.Err()
				}
				return initializer.Result{}, nil
			}, soon, initializer.WithWorkers(2))

		kinds := map[string]*corev1.Namespace{}
		for _, kind := range []string{"hanging", "failing", "panicking", "erring", "waiting", "polling"} {
			kinds[kind] = wrappers.MakeNamespace(unique(kind)).Label("kind", kind).Obj()
			if kind == "failing" {
				kinds[kind].Finalizers = []string{"example.com/kept"}
			}
			Expect(admin.Create(ctx, kinds[kind])).To(Succeed())
		}
		Eventually(func() []types.UID { return served.of(kinds["hanging"].Name) }).WithContext(ctx).Should(HaveLen(1))
		var healthy []string
		for range 10 {
			healthy = append(healthy, create(ctx, wrappers.MakeNamespace(unique("healthy"))).Name)
		}
		expectReady(ctx, healthy...)
		expectReady(ctx, kinds["erring"].Name, kinds["polling"].Name)
		Expect(served.of(kinds["erring"].Name)).To(HaveLen(4))
		Expect(served.of(kinds["polling"].Name)).To(HaveLen(3))
		Expect(served.of(kinds["hanging"].Name)).To(HaveLen(1))

		By("verifying that a condition reports each result")
		expectCondition := func(
			kind string, conditionType corev1.NamespaceConditionType, reason string, texts ...string,
		) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(get(g, ctx, kinds[kind].Name)).To(
					HaveCondition(conditionType, corev1.ConditionFalse, reason, texts...))
			}).WithContext(ctx).Should(Succeed())
		}
		expectCondition("failing", v1alpha1.ConditionInitializing, v1alpha1.ReasonFailed,
			"BudgetUsedUp: team blue has no budget left")
		expectCondition("panicking", conditionOf(name), "Panicked", "index out of range", "bug")
		expectCondition("waiting", conditionOf(name), "NoOwner", `label "owner" is missing`)
		Expect(logs.Contents()).To(MatchRegexp(`"stack": \["[^"]* \(initializer/concurrency_test.go:\d+\)"`))
		panicked := nscondition.Find(get(Default, ctx, kinds["panicking"].Name), conditionOf(name))
		Expect(panicked.Message).NotTo(Or(ContainSubstring(".go:"), ContainSubstring("goroutine")))
		Expect(seen.conditions(ctx, kinds["erring"].UID)).To(ContainElement(And(
			ContainSubstring("Retrying"), ContainSubstring("the service is down"))))

		By("verifying that initialization completes after the cause is fixed")
		Expect(served.of(kinds["failing"].Name)).To(HaveLen(1))
		removeFinalizers(ctx, kinds["failing"])
		expectDeleted(ctx, kinds["failing"])
		isFixed.Store(true)
		Expect(admin.Patch(ctx, kinds["waiting"], client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"owner":"blue"}}}`)))).To(Succeed())
		expectReady(ctx, kinds["panicking"].Name, kinds["waiting"].Name)
		Expect(served.of(kinds["waiting"].Name)).To(HaveLen(2))
		Expect(admin.Delete(ctx, kinds["hanging"])).To(Succeed())
		Eventually(hanging).WithContext(ctx).Should(BeClosed())
		expectDeleted(ctx, kinds["hanging"])
	}, SpecTimeout(5*time.Minute))

	It("publishes its progress and result in a condition that kubectl prints", func(ctx context.Context) {
		register(ctx, name)
		seen := record(ctx)
		steps := make(chan error)
		serve(ctx, newAccount(ctx, unique("concurrency"), serving, publishing), name,
			func(ctx context.Context, _ *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Creating", "%d of %d indices", 3, 7)
				select {
				case err := <-steps:
					return initializer.Result{Reason: "Indexed", Message: "7 indices"}, err
				case <-ctx.Done():
					return initializer.Result{}, ctx.Err()
				}
			}, soon)
		namespace := create(ctx, wrappers.MakeNamespace(unique("words")))
		shows := func(line string) {
			GinkgoHelper()
			Eventually(func() (string, error) {
				return plane.Kubectl(ctx, plane.Admin, "get", "namespace", namespace.Name, "--output=jsonpath="+
					`{range .status.conditions[?(@.type=="`+string(conditionOf(name))+`")]}{.status} {.reason}: {.message}{end}`)
			}).WithContext(ctx).Should(Equal(line))
		}
		shows("False Creating: 3 of 7 indices")
		steps <- errors.New("the disk is full")
		// The next call reports Creating again, and then succeeds.
		steps <- nil
		shows("True Indexed: 7 indices")
		Expect(seen.conditions(ctx, namespace.UID)).To(ContainElement(
			string(conditionOf(name)) + "=False Retrying: the disk is full"))
		_, err := plane.Kubectl(ctx, plane.Admin, "wait", "--for=condition="+string(conditionOf(name)),
			"namespace/"+namespace.Name, "--timeout=30s")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))
})
