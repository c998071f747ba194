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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// testToken is one of spec.finalizers for which nobody answers but the spec itself.
const testToken corev1.FinalizerName = "test.example.com/token"

const foreignCondition = "test.example.com/Progress"

// writer changes one thing about a namespace again and again, each time to a higher number.
type writer struct {
	what string
	// patch returns the patch that writes a number, and the subresource that it is for.
	patch func(number int) (string, []string)
	// read returns what is written now.
	read func(*corev1.Namespace) string

	written int   // the last number that the API server took
	refused error // what ended the writer
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
			w.refused = err
			return
		}
		w.written = number
	}
}

// number returns the number that is written now; none is 0.
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
			read: func(namespace *corev1.Namespace) string { return messageOf(namespace, foreignCondition) },
		},
	}
}

var _ = Describe("Others who write", func() {
	It("to a terminating namespace lose nothing", NodeTimeout(2*time.Minute), func(ctx context.Context) {
		// With a second token, what the release of the first one writes is stored.
		namespace := createNamespace(ctx, "writers", testToken)
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		writers := concurrentWriters()
		watcher, err := newClientset().CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + namespace.Name,
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watcher.Stop)
		var group sync.WaitGroup
		defer group.Wait()
		for _, w := range writers {
			group.Go(func() { w.run(ctx, namespace.Name) })
		}
		expectSays(ctx, namespace, Satisfy(func(now *corev1.Namespace) bool {
			return now.Annotations["test.example.com/number"] != "" && messageOf(now, foreignCondition) != ""
		}))

		deleteObject(ctx, namespace)
		// It changes its conditions a few times, with the writers at it.
		expectSays(ctx, namespace, HaveFinalizersRemaining(testFinalizer))
		expectTokenStays(ctx, namespace)
		release(ctx, held)
		begin := time.Now()
		expectSays(ctx, namespace, WithTransform(func(now *corev1.Namespace) []corev1.FinalizerName {
			return now.Spec.Finalizers
		}, ConsistOf(testToken)))
		measured("the last object -> token released, with three writers at it", time.Since(begin))
		expectSays(ctx, namespace, HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionFalse, "ContentRemoved"))
		for _, w := range writers {
			expectSays(ctx, namespace, WithTransform(w.number, BeNumerically(">", 20)))
		}
		releaseTestToken(ctx, namespace)
		expectGone(ctx, namespace)
		group.Wait()

		last, err := followNumbers(watcher, writers)
		Expect(err).NotTo(HaveOccurred())
		for _, w := range writers {
			Expect(w.refused).NotTo(HaveOccurred(), w.what)
			GinkgoWriter.Println(w.what, "was written", w.written, "times")
			Expect(last[w]).To(Equal(w.written), "the last %s was lost", w.what)
		}
	})

	It("into a terminating namespace until the last moment leave nothing behind", NodeTimeout(3*time.Minute), func(ctx context.Context) {
		const rounds, namespacesAtOnce, clients = 4, 4, 4
		created := 0
		for range rounds {
			var names []string
			var group sync.WaitGroup
			var lock sync.Mutex
			var errs []error
			for range namespacesAtOnce {
				namespace := createNamespace(ctx, "late")
				names = append(names, namespace.Name)
				for number := range clients {
					group.Go(func() {
						count, err := createUntilGone(ctx, namespace.Name, number)
						lock.Lock()
						defer lock.Unlock()
						created += count
						errs = append(errs, err)
					})
				}
			}
			for _, name := range names {
				Eventually(func(g Gomega) {
					g.Expect(countOf(g, ctx, configMapsResource, name)).To(BeNumerically(">", clients))
				}).WithContext(ctx).Should(Succeed())
				deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
			}
			for _, name := range names {
				// What came late is found soon, and not only after a timeout.
				expectGoneWithin(ctx, wrappers.MakeNamespace(name).Obj(), 8*time.Second, "a namespace that is written into -> gone")
			}
			group.Wait()
			Expect(errors.Join(errs...)).NotTo(HaveOccurred())
			expectNothingLeft(ctx, names...)
		}
		GinkgoWriter.Println("created in all:", created)
	})
})

// releaseTestToken takes the last token off, against all who write at the same time.
func releaseTestToken(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := get(g, ctx, namespace.Name)
		now.Spec.Finalizers = nil
		g.Expect(admin.SubResource("finalize").Update(ctx, now)).To(Succeed())
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
}

// followNumbers reads a watch until the namespace has gone, makes sure that no number ever
// goes back, and returns the last ones.
func followNumbers(watcher watch.Interface, writers []*writer) (map[*writer]int, error) {
	last := map[*writer]int{}
	for event := range watcher.ResultChan() {
		namespace, isNamespace := event.Object.(*corev1.Namespace)
		if !isNamespace {
			return nil, fmt.Errorf("the watch has ended with %v", event.Object)
		}
		for _, w := range writers {
			number, _ := w.number(namespace)
			if number < last[w] {
				return nil, fmt.Errorf("%s went back from %d to %d at resource version %s: %v",
					w.what, last[w], number, namespace.ResourceVersion, namespace.ManagedFields)
			}
			last[w] = number
		}
		if event.Type == watch.Deleted {
			return last, nil
		}
	}
	return nil, errors.New("the watch has ended before the namespace")
}

// createUntilGone creates ConfigMaps until their namespace has gone, refused or not; it
// returns how many it has created.
func createUntilGone(ctx context.Context, namespace string, number int) (int, error) {
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
