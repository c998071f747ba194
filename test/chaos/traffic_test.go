// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// interval is the time between the creation of one namespace and the next.
	interval = 250 * time.Millisecond
	// maximum is the maximum number of namespaces that exist concurrently. It limits the backlog
	// of an outage. Otherwise, processing the backlog would dominate the recovery time.
	maximum = 12
	// retry is the delay before a user repeats a failed request.
	retry = 100 * time.Millisecond
	// requester is the user who creates, reads and deletes the namespaces. The user has no other
	// cluster-wide permissions.
	requester = "chaos@corp.example.com"
)

// namespaceRecord contains the times at which a namespace reached each stage.
type namespaceRecord struct {
	name                                   string
	created, initialized, deleted, removed time.Time
}

// traffic continuously creates namespaces, writes to them and deletes them.
type traffic struct {
	user client.Client
	// labels are the labels of the namespaces.
	labels map[string]string

	lock sync.Mutex
	// records contains a record of each namespace.
	records []*namespaceRecord
	// creations are the results of the requests that create namespaces.
	creations outcomes

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startTraffic(ctx context.Context, labels map[string]string) *traffic {
	GinkgoHelper()
	return startTrafficThrough(ctx, addRequester(ctx), labels)
}

// addRequester adds the user of the traffic until the spec ends.
func addRequester(ctx context.Context) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, requester, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "delete"},
	}).Config
}

// startTrafficThrough is like startTraffic for a user of an API server.
func startTrafficThrough(ctx context.Context, config *rest.Config, labels map[string]string) *traffic {
	GinkgoHelper()
	config.Timeout = 10 * time.Second
	user, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())

	creating, cancel := context.WithCancel(ctx)
	t := &traffic{user: user, labels: labels, cancel: cancel}
	slots := make(chan struct{}, maximum)
	t.done.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-creating.Done():
				return
			case <-ticker.C:
				select {
				case slots <- struct{}{}:
				default:
					continue
				}
				record := &namespaceRecord{name: framework.Unique("chaos")}
				t.lock.Lock()
				t.records = append(t.records, record)
				t.lock.Unlock()
				t.done.Go(func() {
					defer func() { <-slots }()
					t.run(ctx, record)
				})
			}
		}
	})
	return t
}

// stop stops the creation of namespaces, and waits until the existing namespaces are deleted.
func (t *traffic) stop() {
	t.cancel()
	t.done.Wait()
}

// count returns the number of namespaces that were created and deleted.
func (t *traffic) count() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	count := 0
	for _, record := range t.records {
		if !record.removed.IsZero() {
			count++
		}
	}
	return count
}

// expectRemoved checks that no namespace exists.
func (t *traffic) expectRemoved() {
	GinkgoHelper()
	for _, record := range t.records {
		Expect(record.removed).NotTo(BeZero(), "namespace %s: %+v", record.name, record)
	}
}

func (t *traffic) reached(at *time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	*at = time.Now()
}

// until calls isTrue repeatedly until it returns true or the spec ends. Thus, requests are retried
// while the API server is unavailable.
func until(ctx context.Context, isTrue func() bool) {
	for !isTrue() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// run creates, uses and deletes one namespace as its user.
func (t *traffic) run(ctx context.Context, record *namespaceRecord) {
	namespace := wrappers.MakeNamespace(record.name).Obj()
	namespace.Labels = maps.Clone(t.labels)
	until(ctx, func() bool {
		// The response to an earlier attempt might have been lost.
		err := t.user.Create(ctx, namespace)
		t.creations.add(err, record.name)
		return err == nil || apierrors.IsAlreadyExists(err) && t.user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) == nil
	})
	t.reached(&record.created)

	// The user tries to write as soon as the namespace exists.
	until(ctx, func() bool {
		err := t.user.Create(ctx, wrappers.MakeConfigMap(record.name, "content"))
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	until(ctx, func() bool {
		if t.user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) != nil {
			return false
		}
		condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
		return condition != nil && condition.Status == corev1.ConditionFalse
	})
	t.reached(&record.initialized)

	t.reached(&record.deleted)
	until(ctx, func() bool {
		err := t.user.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	})
	until(ctx, func() bool {
		return apierrors.IsNotFound(t.user.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
	})
	if ctx.Err() == nil {
		t.reached(&record.removed)
	}
}

// recovery waits until a namespace that was created after since is initialized, and a namespace
// that was deleted after since is removed. It returns the time from since to the first such
// initialization and to the first such removal.
func (t *traffic) recovery(ctx context.Context, since time.Time) (initialized, removed time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		t.lock.Lock()
		defer t.lock.Unlock()
		initialized, removed = 0, 0
		first := func(found *time.Duration, started, finished time.Time) {
			if took := finished.Sub(since); started.After(since) && !finished.IsZero() && (*found == 0 || took < *found) {
				*found = took
			}
		}
		for _, record := range t.records {
			first(&initialized, record.created, record.initialized)
			first(&removed, record.deleted, record.removed)
		}
		g.Expect(initialized).NotTo(BeZero(), "no namespace was initialized")
		g.Expect(removed).NotTo(BeZero(), "no namespace was deleted")
	}).WithContext(ctx).Should(Succeed())
	return initialized, removed
}

const (
	// burstPrefix is the label with the prefix of the names of the namespaces of one burst.
	burstPrefix = "chaos.example.com/prefix"
	// burstWorkers is the number of concurrent writes of each user.
	burstWorkers = 4
	// writeRetry is the time until a user repeats a rejected write without an event of the namespace.
	writeRetry = 5 * time.Second
)

// writer is a user that writes to each namespace before it exists and with each of its events, until a write succeeds.
type writer struct {
	client  kubernetes.Interface
	queue   workqueue.TypedDelayingInterface[string]
	results *outcomes

	lock sync.Mutex
	// written are the namespaces that the user has written to.
	written map[string]bool
}

type writers []*writer

// startWriters watches the namespaces of a burst as each user until the spec ends.
func startWriters(ctx context.Context, users []*framework.User, prefix string, results *outcomes) writers {
	GinkgoHelper()
	running, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	var all writers
	for _, user := range users {
		w := &writer{
			client: user.Clientset(), queue: workqueue.NewTypedDelayingQueue[string](), results: results,
			written: map[string]bool{},
		}
		all = append(all, w)
		factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0,
			informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = burstPrefix + "=" + prefix }))
		informer := factory.Core().V1().Namespaces().Informer()
		add := func(object any) { w.queue.Add(object.(*corev1.Namespace).Name) }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
		})
		Expect(err).NotTo(HaveOccurred())
		factory.Start(running.Done())
		Expect(cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)).To(BeTrue())
		for range burstWorkers {
			done.Go(func() { w.run(running) })
		}
	}
	DeferCleanup(func() {
		cancel()
		for _, w := range all {
			w.queue.ShutDown()
		}
		done.Wait()
	})
	return all
}

// add makes all users write to a namespace.
func (all writers) add(namespace string) {
	for _, w := range all {
		w.queue.Add(namespace)
	}
}

// expectAll waits until all users have written to all namespaces.
func (all writers) expectAll(ctx context.Context, namespaces []string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, w := range all {
			w.lock.Lock()
			count := len(w.written)
			w.lock.Unlock()
			g.Expect(count).To(Equal(len(namespaces)))
		}
	}).WithContext(ctx).WithTimeout(15 * time.Minute).WithPolling(time.Second).Should(Succeed())
}

func (w *writer) run(ctx context.Context) {
	for {
		namespace, isShutDown := w.queue.Get()
		if isShutDown {
			return
		}
		w.write(ctx, namespace)
		w.queue.Done(namespace)
	}
}

func (w *writer) write(ctx context.Context, namespace string) {
	w.lock.Lock()
	isWritten := w.written[namespace]
	w.lock.Unlock()
	if isWritten {
		return
	}
	object := wrappers.MakeConfigMap(namespace, fmt.Sprintf("%p", w))
	_, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
	if ctx.Err() != nil {
		return
	}
	w.results.add(err, namespace, object.Name)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.queue.AddAfter(namespace, writeRetry)
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.written[namespace] = true
}
