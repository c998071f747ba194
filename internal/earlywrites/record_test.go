// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package earlywrites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

var start = time.Unix(1_000_000, 0).UTC()

// applied is a client that keeps the Events that are applied.
type applied struct {
	client.Client

	err    error
	events map[string]eventsv1.Event
}

func (a *applied) Apply(_ context.Context, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	if a.err != nil {
		return a.err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var event eventsv1.Event
	if err := json.Unmarshal(data, &event); err != nil {
		return err
	}
	a.events[event.Name] = event
	return nil
}

func (a *applied) list() []eventsv1.Event {
	var events []eventsv1.Event
	for _, event := range a.events {
		events = append(events, event)
	}
	return events
}

func newTestRecorder(g Gomega, server *applied, clock *clocktesting.FakeClock) *Recorder {
	recorder, err := NewRecorder(server, "nslifecycle-system", clock, func(schema.GroupResource, string) {})
	g.Expect(err).NotTo(HaveOccurred())
	return recorder
}

func write(username, resource, manager string) *webhooks.Request {
	return &webhooks.Request{
		Username: username, FieldManager: manager, Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
	}
}

const istiod = "system:serviceaccount:istio-system:istiod"

var istiodSubject = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "istio-system", Name: "istiod"}

func TestReplicasAreSummed(t *testing.T) {
	g := NewWithT(t)
	server, clock := &applied{events: map[string]eventsv1.Event{}}, clocktesting.NewFakeClock(start)
	first, second := newTestRecorder(g, server, clock), newTestRecorder(g, server, clock)
	first.Record(write(istiod, "configmaps", ""))
	g.Expect(first.flush(t.Context())).To(Succeed())
	g.Expect(server.list()).To(HaveLen(1))
	event := server.list()[0]
	g.Expect(event.Series).To(BeNil(), "a series has at least two Events")
	g.Expect(event.Namespace).To(Equal(event.Regarding.Namespace), "the API server requires it")

	clock.Step(time.Minute)
	first.Record(write(istiod, "secrets", "helm"))
	second.Record(write(istiod, "secrets", "helm"))
	second.Record(write("alice", "pods", "kubectl-create"))
	g.Expect(first.flush(t.Context())).To(Succeed())
	g.Expect(second.flush(t.Context())).To(Succeed())
	g.Expect(server.list()).To(HaveLen(3))
	g.Expect(server.events[event.Name].Series.Count).To(BeEquivalentTo(2))
	g.Expect(server.events[event.Name].EventTime.Time).To(BeTemporally("==", start), "it is immutable")

	sums := Sum(append(server.list(), eventsv1.Event{Reason: "Another"}, forged("x"), forged(`{"writes":1}`),
		forged(`{"subject":{"kind":"User","name":"bob"},"writes":-5}`)))
	g.Expect(sums).To(Equal(map[rbacv1.Subject]*Identity{
		istiodSubject: {
			Subject: istiodSubject, Writes: 3, Resources: map[string]int{"configmaps": 1, "secrets": 2},
			Clients: map[string]int{"": 1, "helm": 2}, Last: start.Add(time.Minute),
		},
		{Kind: "User", APIGroup: rbacv1.GroupName, Name: "alice"}: {
			Subject: rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "alice"}, Writes: 1,
			Resources: map[string]int{"pods": 1}, Clients: map[string]int{"kubectl-create": 1}, Last: start.Add(time.Minute),
		},
	}))
}

func TestFailedWritesAreRepeated(t *testing.T) {
	g := NewWithT(t)
	server := &applied{events: map[string]eventsv1.Event{}, err: errors.New("unavailable")}
	recorder := newTestRecorder(g, server, clocktesting.NewFakeClock(start))
	for i := range 3 {
		recorder.Record(write(fmt.Sprintf("user-%d", i), "pods", ""))
	}
	g.Expect(recorder.flush(t.Context())).To(MatchError(server.err))
	server.err = nil
	g.Expect(recorder.flush(t.Context())).To(Succeed())
	g.Expect(server.list()).To(HaveLen(3))
	g.Expect(recorder.record.takeChanged(start)).To(BeEmpty())
}

// TestFlood records what many writers choose.
func TestFlood(t *testing.T) {
	g := NewWithT(t)
	server, clock := &applied{events: map[string]eventsv1.Event{}}, clocktesting.NewFakeClock(start)
	recorder := newTestRecorder(g, server, clock)
	recorder.Record(write(istiod, "configmaps", ""))
	long := strings.Repeat("\x1b\xff\"", 100_000)
	for namespace := range 50 {
		for account := range 100 {
			recorder.Record(write(fmt.Sprintf("system:serviceaccount:tenant-%d:%d", namespace, account),
				fmt.Sprintf("resource-%d", account), fmt.Sprintf("client-%d", account)))
		}
	}
	for i := range 100 {
		recorder.Record(write(fmt.Sprint(long, i), fmt.Sprint(long, i), fmt.Sprint(long, i)))
		recorder.Record(write(strings.Repeat("\x1b", maxUserBytes-3)+fmt.Sprint(i), "pods", ""))
	}
	recorder.Record(write(istiod, "configmaps", ""))
	g.Expect(recorder.flush(t.Context())).To(Succeed())
	g.Expect(len(server.list())).To(BeNumerically("<=", maxIdentities+1))
	total := 0
	for _, event := range server.list() {
		size, err := json.Marshal(event)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(size)).To(BeNumerically("<", 16<<10))
		g.Expect(len(event.Note)).To(BeNumerically("<=", 1024))
		g.Expect(event.Note).NotTo(ContainSubstring("\x1b"))
	}
	sums := Sum(server.list())
	for _, sum := range sums {
		total += sum.Writes
		g.Expect(len(sum.Resources)).To(BeNumerically("<=", maxResources+1))
		g.Expect(len(sum.Clients)).To(BeNumerically("<=", maxClients+1))
	}
	g.Expect(total).To(Equal(2+50*100+200), "no write is lost")
	g.Expect(sums[istiodSubject].Writes).To(Equal(2), "an identity that is already recorded keeps its counts")
	group := rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:tenant-0"}
	g.Expect(sums[group].Writes).To(Equal(100 - maxIdentitiesOfOneKind))

	clock.Step(retention + time.Second)
	g.Expect(recorder.flush(t.Context())).To(Succeed())
	g.Expect(recorder.record.identities).To(BeEmpty())
	g.Expect(recorder.record.others).To(BeEmpty())
}

// forged returns an Event that another client has created.
func forged(value string) eventsv1.Event {
	return eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: value}}, Reason: Reason,
	}
}
