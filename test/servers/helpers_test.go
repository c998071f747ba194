// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// Names of the ConfigMaps in a namespace that a user updates and deletes.
const (
	updatable = "updatable"
	deletable = "deletable"
)

// accepted is the result of a successful write. All other results are reasons of errors.
const accepted = "accepted"

// result is a response to a write.
type result struct {
	operation, reason string
	at                time.Time
}

// results collects responses.
type results struct {
	lock sync.Mutex
	all  []result
}

func (r *results) add(operation string, err error) {
	reason := accepted
	if err != nil {
		reason = string(apierrors.ReasonForError(err))
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all = append(r.all, result{operation: operation, reason: reason, at: time.Now()})
}

// count returns the number of responses with a reason, for some operations or for all.
func (r *results) count(reason string, operations ...string) int {
	r.lock.Lock()
	defer r.lock.Unlock()
	count := 0
	for _, response := range r.all {
		if response.reason == reason && (len(operations) == 0 || slices.Contains(operations, response.operation)) {
			count++
		}
	}
	return count
}

// window returns the time until the last accepted write.
func (r *results) window(since time.Time) time.Duration {
	r.lock.Lock()
	defer r.lock.Unlock()
	var longest time.Duration
	for _, response := range r.all {
		if response.reason == accepted {
			longest = max(longest, response.at.Sub(since))
		}
	}
	return longest
}

func (r *results) merge(from *results) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all = append(r.all, from.all...)
}

// String returns the number of responses for each operation and reason.
func (r *results) String() string {
	r.lock.Lock()
	defer r.lock.Unlock()
	counts := map[string]int{}
	for _, response := range r.all {
		counts[response.operation+" "+response.reason]++
	}
	lines := make([]string, 0, len(counts))
	for key, count := range counts {
		lines = append(lines, fmt.Sprintf("%s: %d", key, count))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// report adds a line to the output of the suite, even if the spec passes.
func report(format string, args ...any) {
	AddReportEntry(fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}

// operations are writes of a user to a namespace.
func operations(clientset kubernetes.Interface, namespace string) map[string]func(context.Context) error {
	configMaps := clientset.CoreV1().ConfigMaps(namespace)
	return map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := configMaps.Create(ctx, wrappers.MakeConfigMap(namespace, framework.Unique("new")), metav1.CreateOptions{})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := configMaps.Update(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: updatable}, Data: map[string]string{"a": framework.Unique("b")},
			}, metav1.UpdateOptions{})
			return err
		},
		"delete": func(ctx context.Context) error { return configMaps.Delete(ctx, deletable, metav1.DeleteOptions{}) },
	}
}

// writeOnce starts each operation once.
func writeOnce(ctx context.Context, group *sync.WaitGroup, to *server, namespace string, into *results) {
	for operation, do := range operations(to.ordinary, namespace) {
		group.Go(func() { into.add(operation, do(ctx)) })
	}
}

// writeContinuously repeats each operation, with a pause before each attempt, until the returned function is called.
func writeContinuously(
	ctx context.Context, to *server, namespace string, pause time.Duration, into *results,
) (stop func()) {
	stopped := make(chan struct{})
	var group sync.WaitGroup
	for operation, do := range operations(to.ordinary, namespace) {
		group.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case <-time.After(pause):
					into.add(operation, do(ctx))
				}
			}
		})
	}
	return func() {
		close(stopped)
		group.Wait()
	}
}

// create creates a namespace as the ordinary user and returns it.
func (s *server) create(ctx context.Context, namespace *corev1.Namespace) *corev1.Namespace {
	GinkgoHelper()
	created, err := s.ordinary.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created
}

// fill creates the ConfigMaps that the operations update and delete.
func fill(ctx context.Context, clientset kubernetes.Interface, namespace string) {
	GinkgoHelper()
	for _, name := range []string{updatable, deletable} {
		Eventually(func() error {
			_, err := clientset.CoreV1().ConfigMaps(namespace).Create(ctx, wrappers.MakeConfigMap(namespace, name), metav1.CreateOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	}
}

// finish removes the initializer from the pending list.
func (s *server) finish(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(initializers.Finish(ctx, s.initializer, namespace, absent)).To(Succeed())
}

// remove deletes a namespace and returns a function that waits until the namespace is removed.
func (s *server) remove(ctx context.Context, namespace string) (wait func()) {
	GinkgoHelper()
	wait = awaitRemoval(ctx, namespace)
	Expect(s.ordinary.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})).To(Succeed())
	return wait
}

// awaitRemoval returns a function that waits for the next removal of a namespace.
func awaitRemoval(ctx context.Context, namespace string) (wait func()) {
	GinkgoHelper()
	events, err := a.admin.CoreV1().Namespaces().Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: namespace}))
	Expect(err).NotTo(HaveOccurred())
	return func() {
		GinkgoHelper()
		defer events.Stop()
		Eventually(events.ResultChan()).WithContext(ctx).WithPolling(time.Millisecond).
			Should(Receive(HaveField("Type", watch.Deleted)), "namespace %s", namespace)
	}
}

// pause pauses b until the returned function is called or the spec ends.
func pause() (resume func()) {
	GinkgoHelper()
	Expect(secondary.Pause()).To(Succeed())
	DeferCleanup(secondary.Resume)
	return func() {
		GinkgoHelper()
		Expect(secondary.Resume()).To(Succeed())
	}
}

// inRandomOrder returns two different API servers.
func inRandomOrder() (*server, *server) {
	order := random.Perm(len(all))
	return all[order[0]], all[order[1]]
}

// upTo returns a random duration.
func upTo(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
