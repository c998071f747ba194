// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// expired is the error of a watch whose resource version is too old.
var expired = &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}

// watched is a changeWatcher with a fake API server, in a synctest bubble.
type watched struct {
	*changeWatcher
	server *contentServer
	ctx    context.Context

	lock     sync.Mutex
	notified []string
}

// inBubble runs a test with a changeWatcher in a synctest bubble. Its goroutines exit with the test.
func inBubble(t *testing.T, test func(g *WithT, w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &watched{server: &contentServer{}, ctx: ctx}
		w.changeWatcher = newChangeWatcher(w.server.client(), func(namespace string, isLast bool) {
			if isLast {
				namespace += ", the last"
			}
			w.lock.Lock()
			defer w.lock.Unlock()
			w.notified = append(w.notified, namespace)
		}, logr.Discard())
		test(NewWithT(t), w)
	})
}

// await makes a namespace wait for two objects of each type, starting at resource version 5.
func (w *watched) await(namespace string, types ...ResourceType) {
	remaining := make([]Remaining, 0, len(types))
	for _, resourceType := range types {
		remaining = append(remaining, Remaining{Type: resourceType, Count: 2, Terminating: 1, ResourceVersion: "5"})
	}
	w.endPass(w.ctx, namespace, remaining)
	synctest.Wait()
}

func (w *watched) sendEvent(eventType watch.EventType, namespace, resourceVersion string) {
	w.server.newest().Action(eventType, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "a", ResourceVersion: resourceVersion,
	}})
	synctest.Wait()
}

// newNotifications returns the notifications since the last call.
func (w *watched) newNotifications() []string {
	synctest.Wait()
	w.lock.Lock()
	defer w.lock.Unlock()
	notified := w.notified
	w.notified = nil
	return notified
}

func (w *watched) newRequests() []string {
	synctest.Wait()
	w.server.lock.Lock()
	defer w.server.lock.Unlock()
	log := w.server.log
	w.server.log = nil
	return log
}

// nextRequest returns the time until the next request.
func (w *watched) nextRequest() time.Duration {
	began := time.Now()
	for len(w.newRequests()) == 0 && time.Since(began) < time.Hour {
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

func TestChangeWatcherNotifies(t *testing.T) {
	type event struct {
		eventType watch.EventType
		namespace string
	}
	tests := map[string]struct {
		events []event
		want   []string
	}{
		"no events":                                  {},
		"an object changes":                          {events: []event{{watch.Modified, "x"}}, want: []string{"x"}},
		"an object is created":                       {events: []event{{watch.Added, "x"}}, want: []string{"x"}},
		"an object is deleted":                       {events: []event{{watch.Deleted, "x"}}, want: []string{"x"}},
		"the last object is deleted":                 {events: []event{{watch.Deleted, "x"}, {watch.Deleted, "x"}}, want: []string{"x", "x, the last"}},
		"more objects are deleted than were counted": {events: []event{{watch.Deleted, "x"}, {watch.Deleted, "x"}, {watch.Deleted, "x"}}, want: []string{"x", "x, the last", "x, the last"}},
		"changes in other namespaces": {
			events: []event{{watch.Deleted, "y"}, {watch.Deleted, "y"}, {watch.Modified, "y"}},
		},
		"the server sends a bookmark": {events: []event{{watch.Bookmark, ""}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(g *WithT, w *watched) {
				w.startPass("x")
				w.await("x", podsType)
				for _, event := range test.events {
					w.sendEvent(event.eventType, event.namespace, "6")
				}
				g.Expect(w.newNotifications()).To(Equal(test.want))
				g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5"}))
			})
		})
	}
}

func TestChangeWatcherSharesWatches(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		for _, namespace := range []string{"x", "y"} {
			w.startPass(namespace)
			w.await(namespace, podsType)
		}
		g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5"}))
		w.newNotifications()
		w.sendEvent(watch.Modified, "y", "6")
		g.Expect(w.newNotifications()).To(Equal([]string{"y"}))
		w.sendEvent(watch.Modified, "x", "7")
		g.Expect(w.newNotifications()).To(Equal([]string{"x"}))

		w.forget("x")
		w.sendEvent(watch.Modified, "x", "8")
		w.sendEvent(watch.Modified, "y", "9")
		g.Expect(w.newNotifications()).To(Equal([]string{"y"}))
		g.Expect(w.server.newest().IsStopped()).To(BeFalse())

		w.forget("y")
		synctest.Wait()
		g.Expect(w.server.newest().IsStopped()).To(BeTrue())
		time.Sleep(time.Hour)
		g.Expect(w.newRequests()).To(BeEmpty())
	})
}

func TestChangeWatcherFollowsRemainingTypes(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("x")
		w.await("x", podsType)
		pods := w.server.newest()
		w.startPass("x")
		w.await("x", widgetsType)
		g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5", "watch widgets from 5"}))
		g.Expect(pods.IsStopped()).To(BeTrue())
		g.Expect(w.server.newest().IsStopped()).To(BeFalse())

		// No objects remain.
		w.startPass("x")
		w.await("x")
		g.Expect(w.server.newest().IsStopped()).To(BeTrue())

		// Objects remain again.
		w.startPass("x")
		w.await("x", podsType)
		g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5"}))
		g.Expect(w.server.newest().IsStopped()).To(BeFalse())
	})
}

func TestChangeWatcherSkipsTypesWithoutWatch(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("x")
		w.await("x", ResourceType{GroupVersionResource: widgetsType.GroupVersionResource, CanList: true})
		g.Expect(w.newRequests()).To(BeEmpty())
	})
}

// A namespace that was removed at the end of its pass must not be watched indefinitely.
func TestChangeWatcherIgnoresUnknownNamespaces(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.await("x", podsType)
		w.startPass("y")
		w.forget("y")
		w.await("y", podsType)
		g.Expect(w.newRequests()).To(BeEmpty())
	})
}

func TestChangeWatcherMissesNoEventDuringAPass(t *testing.T) {
	tests := map[string]struct {
		// run starts passes over x and sends events while x and y wait for Pods.
		run func(w *watched)
		// want contains the namespaces that are requeued at the end of the pass.
		want []string
	}{
		"no events": {run: func(w *watched) { w.startPass("x") }},
		"an object is deleted during the pass": {
			run: func(w *watched) {
				w.startPass("x")
				w.sendEvent(watch.Deleted, "x", "6")
			},
			want: []string{"x"},
		},
		"an object is deleted before the pass": {
			run: func(w *watched) {
				w.sendEvent(watch.Deleted, "x", "6")
				w.startPass("x")
			},
		},
		"an object is deleted between two passes": {
			run: func(w *watched) {
				w.startPass("x")
				w.sendEvent(watch.Deleted, "x", "6")
				w.startPass("x")
			},
		},
		"an object in another namespace is deleted": {
			run: func(w *watched) {
				w.startPass("x")
				w.sendEvent(watch.Deleted, "z", "6")
			},
		},
		"the watch is interrupted during the pass": {
			run: func(w *watched) {
				w.startPass("x")
				w.server.newest().Error(expired)
				time.Sleep(2 * time.Second)
				synctest.Wait()
			},
			want: []string{"x"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(g *WithT, w *watched) {
				for _, namespace := range []string{"x", "y"} {
					w.startPass(namespace)
					w.await(namespace, podsType)
				}
				test.run(w)
				w.newNotifications()
				w.await("x", podsType)
				g.Expect(w.newNotifications()).To(ConsistOf(test.want))
			})
		})
	}
}

// A list can be older than the pass, and a watch for another namespace can have received later events
// before the pass started.
func TestChangeWatcherNotifiesIfAWatchRunsAlready(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("y")
		w.await("y", podsType)
		g.Expect(w.newNotifications()).To(BeEmpty()) // This watch starts at the resource version of the list.
		w.startPass("x")
		w.await("x", podsType)
		g.Expect(w.newNotifications()).To(Equal([]string{"x"}))
		// One additional pass is enough, because the watch misses no event after it.
		w.startPass("x")
		w.await("x", podsType)
		g.Expect(w.newNotifications()).To(BeEmpty())
	})
}

// Only another pass deletes an object without a deletionTimestamp, so such an object is not watched.
func TestChangeWatcherWatchesOnlyTerminatingObjects(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("x")
		w.endPass(w.ctx, "x", []Remaining{
			{Type: podsType, Count: 3, Terminating: 1, ResourceVersion: "5"},
			{Type: widgetsType, Count: 3, ResourceVersion: "5"},
		})
		g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5"}))

		// Such an object does not keep a watch running, either.
		pods := w.server.newest()
		w.startPass("x")
		w.endPass(w.ctx, "x", []Remaining{{Type: podsType, Count: 3, ResourceVersion: "5"}})
		synctest.Wait()
		g.Expect(pods.IsStopped()).To(BeTrue())
	})
}

// A new watch starts at the resource version of the list, so that the API server sends all later events.
func TestChangeWatcherStartsAtTheResourceVersionOfTheList(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("x")
		w.endPass(w.ctx, "x", []Remaining{{Type: podsType, Count: 1, Terminating: 1, ResourceVersion: "42"}})
		g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 42"}))
		g.Expect(w.newNotifications()).To(BeEmpty())
	})
}

func TestChangeWatcherRestartsWatches(t *testing.T) {
	tests := map[string]struct {
		// ends makes the watch end.
		ends func(w *watched)
		// within is the maximum time until a new watch starts.
		within time.Duration
		want   []string
		// wantNotified contains the namespaces that need another pass, because events may have been
		// missed.
		wantNotified []string
	}{
		"the API server closes the watch after its timeout": {
			ends: func(w *watched) {
				w.sendEvent(watch.Modified, "z", "6")
				w.sendEvent(watch.Bookmark, "", "9")
				time.Sleep(watchDuration)
				w.server.newest().Stop()
			},
			want: []string{"watch pods from 9"},
		},
		"the connection is lost": {
			ends: func(w *watched) {
				time.Sleep(time.Minute)
				w.server.newest().Stop()
			},
			want: []string{"watch pods from 5"},
		},
		"the resource version is too old": {
			ends:   func(w *watched) { w.server.newest().Error(expired) },
			within: 1200 * time.Millisecond,
			want:   []string{"list pods cluster-wide", "watch pods from 5"}, wantNotified: []string{"x", "y"},
		},
		"an event contains an unexpected object type": {
			ends:   func(w *watched) { w.server.newest().Modify(&corev1.Pod{}) },
			within: 1200 * time.Millisecond,
			want:   []string{"list pods cluster-wide", "watch pods from 5"}, wantNotified: []string{"x", "y"},
		},
		"an object has no resource version": {
			ends: func(w *watched) {
				w.sendEvent(watch.Modified, "z", "")
				time.Sleep(time.Minute)
				w.server.newest().Stop()
			},
			want: []string{"list pods cluster-wide", "watch pods from 5"}, wantNotified: []string{"x", "y"},
		},
		"the first attempt to restart the watch fails": {
			ends: func(w *watched) {
				w.server.fail("watch pods", errOutage)
				time.Sleep(time.Minute)
				w.server.newest().Stop()
				synctest.Wait()
				w.server.fail("watch pods", nil)
			},
			within: 1200 * time.Millisecond, want: []string{"watch pods from 5", "watch pods from 5"},
		},
		"the watch cannot be restarted because the resource version is too old": {
			ends: func(w *watched) {
				w.server.fail("watch pods", errTooOld)
				time.Sleep(time.Minute)
				w.server.newest().Stop()
				synctest.Wait()
				w.server.fail("watch pods", nil)
			},
			within:       1200 * time.Millisecond,
			want:         []string{"watch pods from 5", "list pods cluster-wide", "watch pods from 5"},
			wantNotified: []string{"x", "y"},
		},
		"the first list fails": {
			ends: func(w *watched) {
				w.server.fail("list pods", errOutage)
				w.server.newest().Error(expired)
				time.Sleep(1200 * time.Millisecond)
				synctest.Wait()
				w.server.fail("list pods", nil)
			},
			within:       2300 * time.Millisecond,
			want:         []string{"list pods cluster-wide", "list pods cluster-wide", "watch pods from 5"},
			wantNotified: []string{"x", "y"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(g *WithT, w *watched) {
				for _, namespace := range []string{"x", "y"} {
					w.startPass(namespace)
					w.await(namespace, podsType)
				}
				// A namespace does not wait for objects before its first pass ends.
				w.startPass("z")
				g.Expect(w.newRequests()).To(Equal([]string{"watch pods from 5"}))
				w.newNotifications()
				test.ends(w)
				time.Sleep(test.within)
				g.Expect(w.newRequests()).To(Equal(test.want))
				g.Expect(w.newNotifications()).To(ConsistOf(test.wantNotified))
				g.Expect(w.server.newest().IsStopped()).To(BeFalse())
				w.sendEvent(watch.Modified, "x", "10")
				g.Expect(w.newNotifications()).To(Equal([]string{"x"}))
			})
		})
	}
}

func TestChangeWatcherBacksOff(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.server.fail("watch pods", errOutage)
		w.startPass("x")
		w.await("x", podsType)
		g.Expect(w.newRequests()).To(HaveLen(1))
		for _, seconds := range []float64{1, 2, 4, 8, 16, 30, 30, 30} {
			g.Expect(w.nextRequest().Seconds()).To(BeNumerically("~", 1.05*seconds, 0.06*seconds))
		}

		// A successful watch resets the backoff.
		w.server.fail("watch pods", nil)
		w.nextRequest()
		time.Sleep(time.Minute)
		w.server.fail("watch pods", errOutage)
		w.server.newest().Stop()
		g.Expect(w.newRequests()).To(HaveLen(1))
		g.Expect(w.nextRequest().Seconds()).To(BeNumerically("~", 1.05, 0.06))
	})
}

// For example, an aggregated API server that does not support watches may close every watch immediately.
func TestChangeWatcherBacksOffAfterShortWatches(t *testing.T) {
	inBubble(t, func(g *WithT, w *watched) {
		w.startPass("x")
		w.await("x", podsType)
		g.Expect(w.newRequests()).To(HaveLen(1))
		for _, seconds := range []float64{1, 2, 4} {
			w.server.newest().Stop()
			g.Expect(w.nextRequest().Seconds()).To(BeNumerically("~", 1.05*seconds, 0.06*seconds))
		}
	})
}

func TestErrorOf(t *testing.T) {
	g := NewWithT(t)
	g.Expect(isExpired(errorOf(watch.Event{Type: watch.Error, Object: expired}))).To(BeTrue())
	g.Expect(errorOf(watch.Event{Type: watch.Added, Object: &corev1.Pod{}})).
		To(MatchError(errors.New(`unexpected *v1.Pod in a watch event of type "ADDED"`)))
}
