// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// soon sets a backoff that is short enough for a spec.
var soon = initializer.WithBackoff(50*time.Millisecond, 200*time.Millisecond)

// conditionOf returns the type of an initializer's condition.
func conditionOf(name string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
}

var _ = Describe("An initializer during concurrent changes and failures", func() {
	const name = "one.disorder.example.com"

	It("is called once for each namespace despite concurrent writes", func(ctx context.Context) {
		const count = 30
		names := []string{name, "two.disorder.example.com", "three.disorder.example.com"}
		served := make([]calls, len(names))
		cluster.Register(ctx, framework.Unique("suite"), names...)
		together := make(chan struct{})
		for i, name := range names {
			serve(newAccount(ctx, framework.Unique("concurrency"), serving, publishing), name,
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
			namespaces = append(namespaces, createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("storm"))).Name)
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
	}, SpecTimeout(5*time.Minute))

	It("stops when the namespace is deleted, and starts again when it is recreated", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		var served calls
		cancelled := make(chan error, 1)
		serve(newAccount(ctx, framework.Unique("concurrency"), serving), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				if served.record(namespace) == 1 {
					<-ctx.Done()
					cancelled <- context.Cause(ctx)
					return initializer.Result{}, nil
				}
				return initializer.Result{}, nil
			})
		first := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("again")))
		Eventually(func() []types.UID { return served.of(first.Name) }).WithContext(ctx).Should(HaveLen(1))
		admin.Deletes(ctx, first)
		second := wrappers.MakeNamespace(first.Name).Obj()
		Eventually(func() error { return admin.Create(ctx, second) }).WithContext(ctx).Should(Succeed())

		Eventually(cancelled).WithContext(ctx).Should(Receive(HaveOccurred()))
		expectReady(ctx, second.Name)
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(served.of(first.Name)).To(Equal([]types.UID{first.UID, second.UID}))
	}, SpecTimeout(5*time.Minute))

	It("ignores terminating and failed namespaces", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		var served calls
		deleted, failed := wrappers.MakeNamespace(framework.Unique("left")).Obj(), wrappers.MakeNamespace(framework.Unique("left")).Obj()
		for _, namespace := range []*corev1.Namespace{deleted, failed} {
			namespace.Finalizers = []string{"example.com/kept"}
			admin.Creates(ctx, namespace)
		}
		admin.Deletes(ctx, deleted)
		admin.Patches(ctx, failed, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInitializationResult,
			`{"status":"Failure","reason":"Other","message":"another initializer failed"}`))
		serve(newAccount(ctx, framework.Unique("concurrency"), serving), name,
			func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				served.record(namespace)
				return initializer.Result{}, nil
			})
		// The initializer is last in the list.
		expectReady(ctx, createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("taken"))).Name)
		for _, namespace := range []*corev1.Namespace{deleted, failed} {
			Expect(served.of(namespace.Name)).To(BeEmpty())
			Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace.Name))).To(Equal(name))
			framework.RemoveFinalizers(ctx, admin, namespace)
		}
	}, SpecTimeout(5*time.Minute))

	It("waits for preceding initializers", func(ctx context.Context) {
		const before = "before.disorder.example.com"
		cluster.Register(ctx, framework.Unique("suite"), before, name)
		var served calls
		serve(newAccount(ctx, framework.Unique("concurrency"), serving), name,
			func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				Expect(framework.PendingOf(namespace)).To(Equal(name))
				served.record(namespace)
				return initializer.Result{}, nil
			})
		open := make(chan struct{})
		serve(newAccount(ctx, framework.Unique("concurrency"), serving, publishing), before,
			func(ctx context.Context, _ *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Working", "preparing")
				select {
				case <-open:
				case <-ctx.Done():
				}
				return initializer.Result{}, ctx.Err()
			})
		namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("turn")))
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(
				HaveCondition(conditionOf(before), corev1.ConditionFalse, "Working", "preparing"))
		}).WithContext(ctx).Should(Succeed())
		Expect(served.of(namespace.Name)).To(BeEmpty())
		close(open)
		expectReady(ctx, namespace.Name)
		Expect(served.of(namespace.Name)).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))

	It("processes other namespaces while the function fails, panics, returns errors, waits or hangs", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		seen := record(ctx)
		var served calls
		var isFixed atomic.Bool
		hanging := make(chan struct{})
		logs := serve(newAccount(ctx, framework.Unique("concurrency"), serving, publishing), name,
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
			kinds[kind] = wrappers.MakeNamespace(framework.Unique(kind)).Label("kind", kind).Obj()
			if kind == "failing" {
				kinds[kind].Finalizers = []string{"example.com/kept"}
			}
			admin.Creates(ctx, kinds[kind])
		}
		Eventually(func() []types.UID { return served.of(kinds["hanging"].Name) }).WithContext(ctx).Should(HaveLen(1))
		var healthy []string
		for range 10 {
			healthy = append(healthy, createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("healthy"))).Name)
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
				g.Expect(cluster.GetNamespace(g, ctx, kinds[kind].Name)).To(
					HaveCondition(conditionType, corev1.ConditionFalse, reason, texts...))
			}).WithContext(ctx).Should(Succeed())
		}
		expectCondition("failing", v1alpha1.ConditionInitializing, v1alpha1.ReasonFailed,
			"BudgetUsedUp: team blue has no budget left")
		expectCondition("panicking", conditionOf(name), "Panicked", "index out of range", "bug")
		expectCondition("waiting", conditionOf(name), "NoOwner", `label "owner" is missing`)
		Expect(logs.Contents()).To(MatchRegexp(`Observed a panic.*index out of range.*libraries/concurrency_test.go:\d+`))
		Expect(framework.Metrics()["controller_runtime_reconcile_panics_total"]).To(ContainElement(And(
			HaveField("GetLabel()", ContainElement(HaveField("GetValue()", "initializer "+name))),
			HaveField("GetCounter().GetValue()", BeNumerically(">", 0)))))
		panicked := nsobject.FindCondition(cluster.GetNamespace(Default, ctx, kinds["panicking"].Name), conditionOf(name))
		Expect(panicked.Message).NotTo(Or(ContainSubstring(".go:"), ContainSubstring("goroutine")))
		Expect(seen.conditions(ctx, kinds["erring"].UID)).To(ContainElement(And(
			ContainSubstring("Retrying"), ContainSubstring("the service is down"))))

		By("verifying that initialization completes after the cause is fixed")
		Expect(served.of(kinds["failing"].Name)).To(HaveLen(1))
		framework.RemoveFinalizers(ctx, admin, kinds["failing"])
		framework.ExpectDeleted(ctx, admin, kinds["failing"])
		isFixed.Store(true)
		admin.Patches(ctx, kinds["waiting"], `{"metadata":{"labels":{"owner":"blue"}}}`)
		expectReady(ctx, kinds["panicking"].Name, kinds["waiting"].Name)
		Expect(served.of(kinds["waiting"].Name)).To(HaveLen(2))
		admin.Deletes(ctx, kinds["hanging"])
		Eventually(hanging).WithContext(ctx).Should(BeClosed())
		framework.ExpectDeleted(ctx, admin, kinds["hanging"])
	}, SpecTimeout(5*time.Minute))

	It("publishes its progress and result in a condition that kubectl prints", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		seen := record(ctx)
		steps := make(chan error)
		serve(newAccount(ctx, framework.Unique("concurrency"), serving, publishing), name,
			func(ctx context.Context, _ *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Creating", "%d of %d indices", 3, 7)
				select {
				case err := <-steps:
					return initializer.Result{Reason: "Indexed", Message: "7 indices"}, err
				case <-ctx.Done():
					return initializer.Result{}, ctx.Err()
				}
			}, soon)
		namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("words")))
		shows := func(line string) {
			GinkgoHelper()
			Eventually(func() (string, error) {
				return cluster.Kubectl(ctx, cluster.Admin.Config, "get", "namespace", namespace.Name, "--output=jsonpath="+
					`{range .status.conditions[?(@.type=="`+string(conditionOf(name))+`")]}{.status} {.reason}: {.message}{end}`)
			}).WithContext(ctx).Should(Equal(line))
		}
		shows("False Creating: 3 of 7 indices")
		steps <- errors.New("the disk is full")
		// The next call reports Creating again, and then succeeds.
		steps <- nil
		shows("True Indexed: 7 indices")
		expectReady(ctx, namespace.Name)
		shows("True Indexed: 7 indices") // It remains after the initialization.
		Expect(seen.conditions(ctx, namespace.UID)).To(ContainElement(
			string(conditionOf(name)) + "=False Retrying: the disk is full"))
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "wait", "--for=condition="+string(conditionOf(name)),
			"namespace/"+namespace.Name, "--timeout=30s")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("An initializer that watches other objects", func() {
	// planLabel is the label of a namespace with the name of a ConfigMap in the namespace accounts.
	const planLabel = "watch.corp.com/plan"
	statusRule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"}}
	planRule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	// waitForPlan returns a function that waits for an hour if the plan is missing. It reads the plan
	// from a cache if c does.
	waitForPlan := func(c client.Reader, plan client.Object, called *calls) initializer.Func {
		return func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
			called.record(namespace)
			found := plan.DeepCopyObject().(client.Object)
			key := client.ObjectKey{Namespace: accounts, Name: namespace.Labels[planLabel]}
			err := c.Get(ctx, key, found)
			if apierrors.IsNotFound(err) {
				return initializer.Result{}, initializer.NotYet(time.Hour, "NoPlan", "ConfigMap %s is missing", key)
			}
			return initializer.Result{}, err
		}
	}
	isPlan := func(object client.Object, namespace *corev1.Namespace) bool {
		return object.GetNamespace() == accounts && object.GetName() == namespace.Labels[planLabel]
	}
	expectNoPlan := func(ctx context.Context, name, initializerName string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			condition := nsobject.FindCondition(cluster.GetNamespace(g, ctx, name), corev1.NamespaceConditionType(initializerName+"/Initialized"))
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Reason).To(Equal("NoPlan"))
		}).WithContext(ctx).Should(Succeed())
	}

	DescribeTable("is called immediately when the object that it waits for is created",
		func(ctx context.Context, plan client.Object) {
			name := framework.Unique("watch") + ".corp.com"
			config := newAccount(ctx, framework.Unique("watch"), serving, statusRule, planRule)
			mgr, _ := newManager(config)
			var called calls
			Expect(initializer.Add(mgr, name, waitForPlan(mgr.GetClient(), plan, &called), initializer.WithWatch(plan, isPlan))).To(Succeed())
			run(mgr)
			cluster.Register(ctx, framework.Unique("suite"), name)
			red, blue := framework.Unique("plan-red"), framework.Unique("plan-blue")
			first := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("watch-red")).Label(planLabel, red))
			second := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("watch-blue")).Label(planLabel, blue))
			expectNoPlan(ctx, first.Name, name)
			expectNoPlan(ctx, second.Name, name)

			admin.Creates(ctx, wrappers.MakeConfigMap(accounts, red))
			expectReady(ctx, first.Name)
			Expect(called.of(first.Name)).To(HaveLen(2))
			Expect(called.of(second.Name)).To(HaveLen(1), "the change does not affect this namespace")

			admin.Creates(ctx, wrappers.MakeConfigMap(accounts, blue))
			expectReady(ctx, second.Name)
			Expect(called.of(first.Name)).To(HaveLen(2), "the namespace is initialized")
		},
		Entry("watched as typed objects", &corev1.ConfigMap{}),
		Entry("watched as metadata only", metadata),
	)

	It("is not called for a change before its turn", func(ctx context.Context) {
		blocking, name := framework.Unique("a-turn")+".corp.com", framework.Unique("b-turn")+".corp.com"
		config := newAccount(ctx, framework.Unique("turn"), serving, statusRule, planRule)
		mgr, _ := newManager(config)
		var called calls
		changed := make(chan struct{}, 100)
		Expect(initializer.Add(mgr, name, waitForPlan(mgr.GetClient(), metadata, &called), initializer.WithWatch(metadata,
			func(object client.Object, namespace *corev1.Namespace) bool {
				changed <- struct{}{}
				return isPlan(object, namespace)
			}))).To(Succeed())
		run(mgr)
		cluster.Register(ctx, framework.Unique("suite"), blocking, name)
		plan := framework.Unique("plan-turn")
		namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("watch-turn")).Label(planLabel, plan))
		admin.Creates(ctx, wrappers.MakeConfigMap(accounts, plan))
		Consistently(changed, 2*time.Second).ShouldNot(Receive())
		Expect(called.of(namespace.Name)).To(BeEmpty())

		serve(newAccount(ctx, framework.Unique("blocking"), serving), blocking,
			nothing)
		expectReady(ctx, namespace.Name)
	})

	It("runs without the permission to watch the objects", func(ctx context.Context) {
		name := framework.Unique("unwatched") + ".corp.com"
		config := newAccount(ctx, framework.Unique("unwatched"), serving)
		mgr, _ := newManager(config)
		Expect(initializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (initializer.Result, error) {
			return initializer.Result{}, nil
		}, initializer.WithWatch(&corev1.ConfigMap{}, nil))).To(Succeed())
		run(mgr)
		cluster.Register(ctx, framework.Unique("suite"), name)
		expectReady(ctx, createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("unwatched"))).Name)
	})
})
