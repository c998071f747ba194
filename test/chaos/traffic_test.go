// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
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
