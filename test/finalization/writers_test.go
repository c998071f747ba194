// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// requestRecorder records the write requests from a manager.
type requestRecorder struct {
	lock     sync.Mutex
	requests map[string]int
}

func (w *requestRecorder) record(config *rest.Config) *rest.Config {
	return framework.Intercept(config, func(e framework.Exchange) (*http.Response, error) {
		if e.Method != http.MethodGet {
			w.lock.Lock()
			if w.requests == nil {
				w.requests = map[string]int{}
			}
			w.requests[e.Method+" "+e.URL.Path]++
			w.lock.Unlock()
		}
		return e.Send(e.Request)
	})
}

// matching returns the write requests whose path contains text. Each request is followed by its
// count.
func (w *requestRecorder) matching(text string) []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	found := []string{}
	for _, request := range slices.Sorted(maps.Keys(w.requests)) {
		if strings.Contains(request, text) {
			found = append(found, fmt.Sprintf("%s (%d)", request, w.requests[request]))
		}
	}
	return found
}

// requestBlocker blocks a manager's matching requests until unblock is closed.
type requestBlocker struct {
	matches func(*http.Request) bool
	// afterResponse makes the blocker block responses instead of requests.
	afterResponse bool
	arrived       chan struct{}
	unblock       chan struct{}
	first         sync.Once
	lock          sync.Mutex
	statuses      []int
}

func newRequestBlocker(matches func(*http.Request) bool) *requestBlocker {
	return &requestBlocker{matches: matches, arrived: make(chan struct{}), unblock: make(chan struct{})}
}

func (b *requestBlocker) wrap(config *rest.Config) *rest.Config {
	return framework.Intercept(config, func(e framework.Exchange) (*http.Response, error) {
		if !b.matches(e.Request) {
			return e.Send(e.Request)
		}
		if !b.afterResponse {
			if err := b.wait(e.Context()); err != nil {
				return nil, err
			}
		}
		response, err := e.Send(e.Request)
		if err == nil && b.afterResponse {
			if err := b.wait(e.Context()); err != nil {
				response.Body.Close()
				return nil, err
			}
		}
		if err == nil {
			b.lock.Lock()
			b.statuses = append(b.statuses, response.StatusCode)
			b.lock.Unlock()
		}
		return response, err
	})
}

func (b *requestBlocker) wait(ctx context.Context) error {
	b.first.Do(func() { close(b.arrived) })
	select {
	case <-b.unblock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// responses returns the status codes of the responses to the matching requests.
func (b *requestBlocker) responses() []int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return slices.Clone(b.statuses)
}

const (
	writerKey   = "test.example.com/number"
	writerOwner = "test.example.com/writer-"
)

// writer continuously writes increasing numbers to one field of a namespace.
type writer struct {
	what string
	// patch returns a patch that sets the number. If it is nil, the number is in the first namespace finalizer.
	patch       func(number int) string
	subresource []string
	// read returns the number in the namespace as a string.
	read func(*corev1.Namespace) string

	written int // The last number that the API server accepted.
	// stopped is closed when the writer has stopped: by the context, or by err.
	stopped chan struct{}
	err     error
}

// run writes until the context is canceled. The lock lets the writer that reads the namespace before it
// writes compete with the manager alone: on a busy machine, it would rarely succeed beside the others.
func (w *writer) run(ctx context.Context, name string, lock *sync.RWMutex) {
	defer close(w.stopped)
	namespaces, background := cluster.Admin.Clientset().CoreV1().Namespaces(), context.WithoutCancel(ctx)
	// With the pause, the specs of other processes have processor time.
	for number := 1; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		var err error
		if w.patch != nil {
			lock.RLock()
			_, err = namespaces.Patch(background, name, types.StrategicMergePatchType, []byte(w.patch(number)), metav1.PatchOptions{}, w.subresource...)
			lock.RUnlock()
		} else {
			lock.Lock()
			err = writeNamespaceFinalizer(background, name, corev1.FinalizerName(writerOwner+strconv.Itoa(number)))
			lock.Unlock()
		}
		switch {
		case err == nil:
			w.written = number
			number++
		case !apierrors.IsConflict(err):
			w.err = err
			return
		}
	}
}

// writeNamespaceFinalizer replaces all namespace finalizers except that of the manager.
func writeNamespaceFinalizer(ctx context.Context, name string, finalizer corev1.FinalizerName) error {
	namespace := &corev1.Namespace{}
	if err := admin.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return err
	}
	kept := []corev1.FinalizerName{finalizer}
	if slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		kept = append(kept, corev1.FinalizerKubernetes)
	}
	namespace.Spec.Finalizers = kept
	return admin.SubResource("finalize").Update(ctx, namespace)
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
	format := func(pattern string) func(int) string {
		return func(number int) string { return fmt.Sprintf(pattern, writerKey, strconv.Itoa(number)) }
	}
	writers := []*writer{
		{
			what: "label", patch: format(`{"metadata":{"labels":{%q:%q}}}`),
			read: func(namespace *corev1.Namespace) string { return namespace.Labels[writerKey] },
		},
		{
			what: "annotation", patch: format(`{"metadata":{"annotations":{%q:%q}}}`),
			read: func(namespace *corev1.Namespace) string { return namespace.Annotations[writerKey] },
		},
		{
			what: "condition", subresource: []string{"status"},
			patch: format(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Number","message":%q}]}}`),
			read:  func(namespace *corev1.Namespace) string { return framework.ConditionMessage(namespace, writerKey) },
		},
		{
			what: "namespace finalizer",
			read: func(namespace *corev1.Namespace) string {
				return strings.TrimPrefix(string(namespace.Spec.Finalizers[0]), writerOwner)
			},
		},
	}
	for _, w := range writers {
		w.stopped = make(chan struct{})
	}
	return writers
}

var _ = Describe("Concurrent writers", func() {
	It("lose no update to a terminating namespace", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		// Their namespace finalizer keeps the namespace from being deleted when the manager removes its own.
		namespace := createNamespace(ctx, "writers", writerOwner+"0", corev1.FinalizerKubernetes)
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		admin.Creates(ctx, held)
		writers := concurrentWriters()
		history := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		writing, cancel := context.WithCancel(ctx)
		var lock sync.RWMutex
		stop := func() {
			cancel()
			for _, w := range writers {
				<-w.stopped
			}
		}
		DeferCleanup(stop)
		for _, w := range writers {
			go w.run(writing, namespace.Name, &lock)
		}
		admin.Deletes(ctx, namespace)

		// The manager updates the conditions several times while the writers run.
		eventuallyNamespace(ctx, namespace.Name, HaveFinalizersRemaining(testFinalizer))
		expectNamespaceFinalizerKept(ctx, namespace)
		framework.RemoveFinalizers(ctx, admin, held)
		eventuallyNamespace(ctx, namespace.Name, WithTransform(func(now *corev1.Namespace) []corev1.FinalizerName {
			return now.Spec.Finalizers
		}, Not(ContainElement(corev1.FinalizerKubernetes))))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveContentRemoved())
		for _, w := range writers {
			Eventually(func(g Gomega) {
				select {
				case <-w.stopped:
					StopTrying("the writer of the " + w.what + " stopped").Wrap(w.err).Now()
				default:
				}
				g.Expect(w.number(cluster.GetNamespace(g, ctx, namespace.Name))).To(BeNumerically(">", 20), w.what)
			}).WithContext(ctx).Should(Succeed())
		}
		stop()
		end := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(end).To(And(BeTerminating(), HaveContentRemoved()))

		By("checking that no update was reverted")
		Eventually(func() string {
			states := history.States()
			return states[len(states)-1].ResourceVersion
		}).WithContext(ctx).Should(Equal(end.ResourceVersion))
		last := lastNumbers(history.States(), writers)
		for _, w := range writers {
			Expect(w.err).NotTo(HaveOccurred(), w.what)
			AddReportEntry("updates to the "+w.what, w.written)
			Expect(last[w]).To(Equal(w.written), "last update to the %s", w.what)
		}
		wasRemoved := false
		for _, state := range history.States() {
			Expect(string(state.Spec.Finalizers[0])).To(HavePrefix(writerOwner), "the order of the namespace finalizers")
			isFinalized := !slices.Contains(state.Spec.Finalizers, corev1.FinalizerKubernetes)
			Expect(isFinalized || !wasRemoved).To(BeTrue(), "the namespace finalizer was restored")
			wasRemoved = isFinalized
		}
		framework.SetNamespaceFinalizers(ctx, admin, namespace.Name)
		framework.ExpectDeleted(ctx, admin, namespace)
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
				admin.Deletes(ctx, wrappers.MakeNamespace(name).Obj())
			}
			for _, name := range names {
				// The manager must find objects that are created late without waiting for a
				// timeout.
				framework.ExpectDeleted(ctx, admin, wrappers.MakeNamespace(name).Obj())
			}
			group.Wait()
			Expect(errors.Join(errs...)).NotTo(HaveOccurred())
			expectNoObjects(ctx, names...)
		}
		GinkgoWriter.Println("created objects:", created)
	})
})

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

// requestFor matches requests for a namespace or its content, except watch requests.
func requestFor(name, method, suffix string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method == method && request.URL.Path == "/api/v1/namespaces/"+name+suffix &&
			request.URL.Query().Get("watch") == ""
	}
}

var _ = Describe("A recreated namespace", func() {
	// initialState is the state of the old namespace when the manager starts.
	type initialState struct {
		held, noNamespaceFinalizers bool
	}

	DescribeTable("keeps its content while a request for the old namespace is in flight:",
		func(ctx context.Context, old initialState, method, rest string, afterResponse bool, status int) {
			cluster.PauseManager()
			replaced := unique("replaced")
			namespace := wrappers.MakeNamespace(replaced).Obj()
			admin.Creates(ctx, namespace)
			names := []string{"a", "b", "c"}
			admin.Creates(ctx, makeConfigMaps(replaced, names...)...)
			if old.held {
				admin.Creates(ctx, withFinalizer(wrappers.MakeConfigMap(replaced, "held")))
				names = append(names, "held")
			}
			if old.noNamespaceFinalizers {
				framework.SetNamespaceFinalizers(ctx, admin, replaced)
			}
			admin.Deletes(ctx, namespace)

			By("blocking the request")
			logged := captureLog()
			blocked := newRequestBlocker(requestFor(replaced, method, rest))
			blocked.afterResponse = afterResponse
			requests := &requestRecorder{}
			startManager(ctx, blocked.wrap(requests.record(managerConfig(ctx))), withGracePeriod(0))
			Eventually(blocked.arrived).WithContext(ctx).Should(BeClosed())

			By("recreating the namespace and its objects")
			removeAll(ctx, configMaps, replaced)
			if old.noNamespaceFinalizers {
				// Another DELETE request removes a terminating namespace that has no namespace
				// finalizers.
				Expect(client.IgnoreNotFound(admin.Delete(ctx, namespace))).To(Succeed())
			} else {
				framework.SetNamespaceFinalizers(ctx, admin, replaced)
			}
			recreated := createAgain(ctx, replaced)
			Expect(recreated.UID).NotTo(Equal(namespace.UID))
			objects := makeConfigMaps(replaced, names...)
			admin.Creates(ctx, objects...)

			By("unblocking the request")
			close(blocked.unblock)
			Eventually(blocked.responses).WithContext(ctx).Should(ContainElement(status))
			expectKept(ctx, append(objects, recreated)...)
			Expect(cluster.GetNamespace(Default, ctx, replaced)).To(And(BeActive(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveNoFinalizationConditions()))
			for _, object := range objects {
				uid := object.GetUID()
				admin.Reads(ctx, object)
				Expect(object.GetUID()).To(Equal(uid))
			}
			Expect(logged.Contents()).NotTo(ContainSubstring("Reconciler error"), "the reconciliation must succeed")

			By("finalizing the recreated namespace after its deletion")
			admin.Deletes(ctx, recreated)
			framework.ExpectDeleted(ctx, admin, recreated)
			Expect(countOf(Default, ctx, configMaps, replaced)).To(BeZero())
		},
		Entry("a list of objects, after the response", initialState{}, "GET", "/configmaps", true, 200),
		Entry("the deletion of an object", initialState{}, "DELETE", "/configmaps/b", false, 409),
		Entry("the conditions", initialState{held: true}, "PATCH", "/status", false, 422),
		Entry("the removal of the namespace finalizer", initialState{}, "PUT", "/finalize", false, 409),
		Entry("the addition of the namespace finalizer", initialState{noNamespaceFinalizers: true}, "PUT", "/finalize", false, 409),
	)
})
