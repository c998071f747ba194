// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	// interval between two namespaces of the traffic.
	interval = 250 * time.Millisecond
	// maximum is how many there are at a time. While nothing goes on, no more are begun: the
	// crowd that comes back would be all that is measured.
	maximum = 12
	// retry is how long their users wait before they try again.
	retry = 100 * time.Millisecond
	// requester is who creates the namespaces, and may do nothing but that at cluster scope.
	requester = "chaos@corp.example.com"
)

// life is one namespace of the traffic, and when it got how far.
type life struct {
	name                         string
	created, open, deleted, gone time.Time
}

// traffic creates namespaces, uses them and deletes them, whatever happens meanwhile.
type traffic struct {
	user client.Client

	lock sync.Mutex
	// lives have all that were begun.
	lives []*life
	// violations are what must never happen.
	violations []string

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startTraffic(ctx context.Context) *traffic {
	GinkgoHelper()
	config, err := plane.User(requester)
	Expect(err).NotTo(HaveOccurred())
	for _, arguments := range [][]string{
		{"create", "clusterrole", "chaos", "--verb=create,get,delete", "--resource=namespaces"},
		{"create", "clusterrolebinding", "chaos", "--clusterrole=chaos", "--user=" + requester},
	} {
		_, err := plane.Kubectl(ctx, plane.Admin, arguments...)
		Expect(err).NotTo(HaveOccurred())
	}
	config.Timeout = 10 * time.Second
	user, err := controlplane.NewClient(controlplane.Unlimited(config))
	Expect(err).NotTo(HaveOccurred())

	beginning, cancel := context.WithCancel(ctx)
	t := &traffic{user: user, cancel: cancel}
	places := make(chan struct{}, maximum)
	t.done.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for number := 0; ; number++ {
			select {
			case <-beginning.Done():
				return
			case <-ticker.C:
				select {
				case places <- struct{}{}:
				default:
					number--
					continue
				}
				begun := &life{name: fmt.Sprintf("chaos-%d", number)}
				t.lock.Lock()
				t.lives = append(t.lives, begun)
				t.lock.Unlock()
				t.done.Go(func() {
					defer func() { <-places }()
					t.live(ctx, begun)
				})
			}
		}
	})
	return t
}

// end begins no more lives and waits for those that have begun.
func (t *traffic) end() {
	t.cancel()
	t.done.Wait()
}

// count is the number of namespaces that have come to their end.
func (t *traffic) count() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	ended := 0
	for _, l := range t.lives {
		if !l.gone.IsZero() {
			ended++
		}
	}
	return ended
}

func (t *traffic) note(format string, arguments ...any) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.violations = append(t.violations, fmt.Sprintf(format, arguments...))
}

func (t *traffic) reached(at *time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	*at = time.Now()
}

// until tries until it is true, or the spec is over. Whatever an API server that is away, or
// not quite there, answers, is no more than a reason to try again.
func until(ctx context.Context, isTrue func() bool) {
	for !isTrue() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// live is the life of one namespace, from its user's point of view.
func (t *traffic) live(ctx context.Context, l *life) {
	namespace := wrappers.MakeNamespace(l.name).Obj()
	until(ctx, func() bool {
		// The answer to an earlier attempt may have got lost.
		err := t.user.Create(ctx, namespace)
		return err == nil || apierrors.IsAlreadyExists(err) && t.user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) == nil
	})
	t.reached(&l.created)
	if list := namespace.Annotations[v1alpha1.AnnotationInitializers]; list != injected {
		t.note("%s was created to wait for %q", l.name, list)
	}

	// From the first moment on its user tries to write.
	until(ctx, func() bool {
		if err := t.user.Create(ctx, wrappers.MakeConfigMap(l.name, "content")); err != nil && !apierrors.IsAlreadyExists(err) {
			return false
		}
		until(ctx, func() bool { return t.user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) == nil })
		if pending := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]; pending != "" {
			t.note("%s let its user in while it waited for %q", l.name, pending)
		}
		return true
	})
	until(ctx, func() bool {
		if t.user.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) != nil {
			return false
		}
		condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
		return condition != nil && condition.Status == corev1.ConditionFalse
	})
	t.reached(&l.open)

	t.reached(&l.deleted)
	until(ctx, func() bool {
		err := t.user.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	})
	until(ctx, func() bool {
		return apierrors.IsNotFound(t.user.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
	})
	if ctx.Err() == nil {
		t.reached(&l.gone)
	}
}

// recovery is how long it took, from a moment on, until a namespace that was created after it
// was ready, and until one that was deleted after it had gone. It waits for both.
func (t *traffic) recovery(ctx context.Context, since time.Time) (birth, death time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		t.lock.Lock()
		defer t.lock.Unlock()
		birth, death = 0, 0
		for _, l := range t.lives {
			if l.created.After(since) && !l.open.IsZero() && (birth == 0 || l.open.Sub(since) < birth) {
				birth = l.open.Sub(since)
			}
			if l.deleted.After(since) && !l.gone.IsZero() && (death == 0 || l.gone.Sub(since) < death) {
				death = l.gone.Sub(since)
			}
		}
		g.Expect(birth).NotTo(BeZero(), "no namespace has become ready")
		g.Expect(death).NotTo(BeZero(), "no namespace has gone")
	}).WithContext(ctx).Should(Succeed())
	return birth, death
}
