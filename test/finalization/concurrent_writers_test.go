// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// testNamespaceFinalizer is an entry of spec.finalizers that only the specs remove.
const testNamespaceFinalizer corev1.FinalizerName = "test.example.com/namespace"

const foreignCondition = "test.example.com/Progress"

// writer continuously writes increasing numbers to one field of a namespace.
type writer struct {
	what string
	// patch returns the patch that sets the number and the subresource to patch.
	patch func(number int) (string, []string)
	// read returns the number in the namespace as a string.
	read func(*corev1.Namespace) string

	written int   // The last number that the API server accepted.
	err     error // The error that stopped the writer.
}

func (w *writer) run(ctx context.Context, name string) {
	namespaces := newClientset().CoreV1().Namespaces()
	for number := 1; ; number++ {
		body, subresources := w.patch(number)
		_, err := namespaces.Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		switch {
		case apierrors.IsNotFound(err):
			return
		case apierrors.IsConflict(err):
			number--
			continue
		case err != nil:
			w.err = err
			return
		}
		w.written = number
	}
}

// number returns the number in the namespace, or 0 if there is none.
func (w *writer) number(namespace *corev1.Namespace) (int, error) {
	text := w.read(namespace)
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}

func concurrentWriters() []*writer {
	return []*writer{
		{
			what: "label",
			patch: func(number int) (string, []string) {
				return fmt.Sprintf(`{"metadata":{"labels":{"test.example.com/number":"%d"}}}`, number), nil
			},
			read: func(namespace *corev1.Namespace) string { return namespace.Labels["test.example.com/number"] },
		},
		{
			what: "annotation",
			patch: func(number int) (string, []string) {
				return fmt.Sprintf(`{"metadata":{"annotations":{"test.example.com/number":"%d"}}}`, number), nil
			},
			read: func(namespace *corev1.Namespace) string { return namespace.Annotations["test.example.com/number"] },
		},
		{
			what: "condition",
			patch: func(number int) (string, []string) {
				return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Number","message":"%d"}]}}`,
					foreignCondition, number), []string{"status"}
			},
			read: func(namespace *corev1.Namespace) string {
				return framework.ConditionMessage(namespace, foreignCondition)
			},
		},
	}
}

var _ = Describe("Concurrent writers", func() {
	It("lose no update to a terminating namespace", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		// The second namespace finalizer keeps the namespace from being deleted when the manager
		// removes the first one.
		namespace := createNamespace(ctx, "writers", testNamespaceFinalizer)
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		writers := concurrentWriters()
		history := framework.WatchNamespace(ctx, plane.Admin, namespace)
		var group sync.WaitGroup
		defer group.Wait()
		for _, w := range writers {
			group.Go(func() { w.run(ctx, namespace.Name) })
		}
		eventuallyNamespace(ctx, namespace.Name, Satisfy(func(now *corev1.Namespace) bool {
			return now.Annotations["test.example.com/number"] != "" && framework.ConditionMessage(now, foreignCondition) != ""
		}))

		deleteObject(ctx, namespace)
		// The manager updates the conditions several times while the writers run.
		eventuallyNamespace(ctx, namespace.Name, HaveFinalizersRemaining(testFinalizer))
		expectNamespaceFinalizerKept(ctx, namespace)
		removeFinalizers(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, WithTransform(func(now *corev1.Namespace) []corev1.FinalizerName {
			return now.Spec.Finalizers
		}, ConsistOf(testNamespaceFinalizer)))
		eventuallyNamespace(ctx, namespace.Name, HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionFalse, "ContentRemoved"))
		for _, w := range writers {
			eventuallyNamespace(ctx, namespace.Name, WithTransform(w.number, BeNumerically(">", 20)))
		}
		removeTestNamespaceFinalizer(ctx, namespace)
		history.WaitForRemoval(ctx)
		group.Wait()

		last := lastNumbers(history.States(), writers)
		for _, w := range writers {
			Expect(w.err).NotTo(HaveOccurred(), w.what)
			GinkgoWriter.Println("updates to the", w.what, w.written)
			Expect(last[w]).To(Equal(w.written), "last update to the %s", w.what)
		}
	})

	It("leave no objects after the deletion of a namespace", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		const rounds, namespacesPerRound, clients = 4, 4, 4
		created := 0
		for range rounds {
			var names []string
			var group sync.WaitGroup
			var lock sync.Mutex
			var errs []error
			for range namespacesPerRound {
				namespace := createNamespace(ctx, "late")
				names = append(names, namespace.Name)
				for number := range clients {
					group.Go(func() {
						count, err := createUntilDeleted(ctx, namespace.Name, number)
						lock.Lock()
						defer lock.Unlock()
						created += count
						errs = append(errs, err)
					})
				}
			}
			for _, name := range names {
				Eventually(func(g Gomega) {
					g.Expect(countOf(g, ctx, configMaps, name)).To(BeNumerically(">", clients))
				}).WithContext(ctx).Should(Succeed())
				deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
			}
			for _, name := range names {
				// The manager must find objects that are created late without waiting for a
				// timeout.
				expectDeleted(ctx, wrappers.MakeNamespace(name).Obj())
			}
			group.Wait()
			Expect(errors.Join(errs...)).NotTo(HaveOccurred())
			expectNoObjects(ctx, names...)
		}
		GinkgoWriter.Println("created objects:", created)
	})
})

// removeTestNamespaceFinalizer removes the last namespace finalizer while the writers run.
func removeTestNamespaceFinalizer(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := get(g, ctx, namespace.Name)
		now.Spec.Finalizers = nil
		g.Expect(admin.SubResource("finalize").Update(ctx, now)).To(Succeed())
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
}

// lastNumbers checks that no number decreases, and returns the last number of each writer.
func lastNumbers(states []*corev1.Namespace, writers []*writer) map[*writer]int {
	GinkgoHelper()
	last := map[*writer]int{}
	for _, namespace := range states {
		for _, w := range writers {
			number, _ := w.number(namespace)
			Expect(number).To(BeNumerically(">=", last[w]), "%s at resource version %s: %v",
				w.what, namespace.ResourceVersion, namespace.ManagedFields)
			last[w] = number
		}
	}
	return last
}

// createUntilDeleted creates ConfigMaps until the namespace no longer exists, and returns the
// number of created ConfigMaps. It ignores Forbidden errors.
func createUntilDeleted(ctx context.Context, namespace string, number int) (int, error) {
	created := 0
	for i := 0; ; i++ {
		err := admin.Create(ctx, wrappers.MakeConfigMap(namespace, fmt.Sprintf("late-%d-%d", number, i)))
		switch {
		case err == nil:
			created++
		case apierrors.IsNotFound(err):
			return created, nil
		case !apierrors.IsForbidden(err):
			return created, err
		}
	}
}
