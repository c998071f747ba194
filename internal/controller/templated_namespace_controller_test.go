// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/apply"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// fakeQueue records the names in requests.
type fakeQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	names []string
}

func (q *fakeQueue) AddWithOpts(_ priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, request := range requests {
		q.names = append(q.names, request.Name)
	}
}

// fakeApplier returns a result.
type fakeApplier struct {
	*apply.Applier
	result plan.Result
	err    error
	passes int
}

func (a *fakeApplier) Apply(
	context.Context, *apply.Record, *corev1.Namespace, []v1alpha1.NamespaceTemplate,
) (plan.Result, error) {
	a.passes++
	return a.result, a.err
}

func TestTemplatedNamespaceReconcile(t *testing.T) {
	const (
		templates, own = v1alpha1.TemplatesInitializer, "own.corp.com"
		statusPatch    = "status of x: uid=x-uid "
		waitingPatch   = statusPatch + templates + "/Initialized=False/"
		recordPatch    = statusPatch + `version=7 applied-templates={"team":{"revision":"b"}}`
		refusal        = statusPatch + "initialization-result=Failure/Forbidden/0"
		failedEvent    = "Warning TemplateForbidden template \"team\""
	)
	namespace := func() *wrappers.NamespaceWrapper {
		created := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7")
		created.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		return created
	}
	isNew := func() *wrappers.NamespaceWrapper { return namespace().Initializers(templates) }
	withRecord := func(revision string) *wrappers.NamespaceWrapper {
		return namespace().Annotation(v1alpha1.AnnotationAppliedTemplates, stateWith(revision).String())
	}
	forbidden := template.Problem{Template: "team", Object: "config", Reason: v1alpha1.ReasonForbidden, Message: "x"}
	outcome := func(problems ...template.Problem) plan.Result {
		return plan.Result{
			State: stateWith("b"), Templates: []plan.Outcome{{Template: "team", Revision: "b", Problems: problems}},
			RetryAfter: time.Hour,
		}
	}
	waiting := func(age time.Duration) fakeServer {
		created := isNew()
		created.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return fakeServer{cached: created.Obj()}
	}
	notEffective := plan.Result{RetryAfter: time.Second, Templates: []plan.Outcome{{
		Template: "team", Waiting: []template.Problem{{Template: "team", Reason: v1alpha1.ReasonQuotaNotCounted}},
	}}}
	withTurnStart := notEffective
	withTurnStart.TurnStart = now
	terminating := apierrors.NewForbidden(corev1.Resource("configmaps"), "config", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := plan.Result{Refusal: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden}}

	tests := map[string]struct {
		server fakeServer
		// isOther is true for the request of the other one of the two controllers.
		isOther    bool
		isBusy     bool
		isStale    bool
		result     plan.Result
		err        error
		isApplied  bool
		want       time.Duration
		wantWrites []string
		wantEvents []string
		// wantChanged is true if the status of the template changes.
		wantChanged bool
		wantError   string
	}{
		"the namespace does not exist":         {server: fakeServer{getError: errNotFound}},
		"the namespace cannot be read":         {server: fakeServer{getError: errOutage}, wantError: errOutage.Error()},
		"a terminating namespace":              {server: fakeServer{cached: isNew().Terminating(now).Obj()}},
		"a new one, for the other controller":  {server: fakeServer{cached: isNew().Obj()}, isOther: true},
		"an old one, for the other controller": {server: fakeServer{cached: namespace().Obj()}, isOther: true},
		"an exempt namespace":                  {server: fakeServer{cached: wrappers.MakeNamespace("kube-system").UID("x-uid").Obj()}},
		"the turn of another initializer":      {server: fakeServer{cached: namespace().Initializers(own, templates).Obj()}},
		"a failed initialization":              {server: fakeServer{cached: isNew().Result(`{"status":"Failure"}`).Obj()}},
		"another pass has not ended":           {server: fakeServer{cached: isNew().Obj()}, isBusy: true, want: conflictRetry},
		"the cache lacks the own write":        {server: fakeServer{cached: withRecord("a").Obj()}, isStale: true},
		"the pass fails":                       {server: fakeServer{cached: isNew().Obj()}, err: errOutage, isApplied: true, wantError: errOutage.Error()},
		"the deletion starts in the pass":      {server: fakeServer{cached: isNew().Obj()}, err: terminating, isApplied: true},
		"nothing has changed":                  {server: fakeServer{cached: withRecord("b").Obj()}, result: outcome(), isApplied: true, want: time.Hour, wantChanged: true},
		"the templates have been refused":      {server: fakeServer{cached: isNew().Obj()}, result: refused, isApplied: true, wantWrites: []string{refusal}},
		"another client was faster":            {server: fakeServer{cached: isNew().Obj(), statusError: errRecreated}, result: refused, isApplied: true, wantWrites: []string{refusal}},
		"an object is not effective":           {server: waiting(waitingReportDelay), result: notEffective, isApplied: true, want: time.Second, wantWrites: []string{waitingPatch + v1alpha1.ReasonQuotaNotCounted}, wantChanged: true},
		"an object is not effective yet":       {server: waiting(waitingReportDelay - 1), result: notEffective, isApplied: true, want: time.Second, wantChanged: true},
		"a deadline counts from this turn":     {server: waiting(waitingReportDelay), result: withTurnStart, isApplied: true, want: time.Second, wantWrites: []string{waitingPatch + v1alpha1.ReasonQuotaNotCounted + " turn-started-at=" + initialization.FormatTurnStart(templates, now)}, wantChanged: true},
		"an object of a new one fails": {
			server: waiting(0), result: outcome(forbidden), isApplied: true, want: firstTemplateRetry,
			wantWrites: []string{waitingPatch + v1alpha1.ReasonForbidden}, wantEvents: []string{failedEvent}, wantChanged: true,
		},
		"an object of an old one fails": {
			server: fakeServer{cached: withRecord("a").Obj()}, result: outcome(forbidden), isApplied: true,
			want: firstTemplateRetry, wantWrites: []string{recordPatch}, wantEvents: []string{failedEvent}, wantChanged: true,
		},
		"the record has changed": {
			server: fakeServer{cached: withRecord("a").Obj()}, result: outcome(), isApplied: true, want: time.Hour,
			wantWrites: []string{recordPatch}, wantChanged: true,
		},
		"the record cannot be written": {
			server: fakeServer{cached: withRecord("a").Obj(), statusError: errOutage}, result: outcome(), isApplied: true,
			wantWrites: []string{recordPatch}, wantEvents: []string{"Warning TemplateNotRecorded template \"team\""},
			wantChanged: true, wantError: `failed to record the templates of namespace "x": failed to update the status of namespace "x": ` +
				errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, recorder := NewWithT(t), events.NewFakeRecorder(10)
			applier := &fakeApplier{Applier: &apply.Applier{}, result: test.result, err: test.err}
			changed := &fakeQueue{}
			reconciler := &TemplatedNamespaceReconciler{
				Client: test.server.client(), Live: test.server.client(), Applier: applier, Recorder: recorder,
				Records: &apply.Records{Clock: clocktesting.NewFakePassiveClock(now)},
				Clock:   clocktesting.NewFakePassiveClock(now),
				Exempt:  exempt, retries: newRetryLimiter(firstTemplateRetry),
				Templates: &Requests{queues: []priorityqueue.PriorityQueue[reconcile.Request]{changed}},
			}
			isForInitialized := test.isOther
			if current := test.server.cached; current != nil {
				isForInitialized = (initialization.ParseState(current).Phase == initialization.PhaseInitialized) != test.isOther
				record := reconciler.Records.Begin(current)
				if test.isStale {
					later := current.DeepCopy()
					later.ResourceVersion = "8"
					reconciler.Records.Recorded(record, later, stateWith("b"))
				}
				if !test.isBusy {
					reconciler.Records.End(record)
				}
			}
			result, err := reconciler.reconcile(t.Context(), requestFor("x"), isForInitialized)
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			g.Expect(applier.passes).To(Equal(map[bool]int{true: 1}[test.isApplied]))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(changed.names).To(Equal(map[bool][]string{true: {"team"}}[test.wantChanged]))
			g.Expect(recorded(recorder)).To(matchEvents(test.wantEvents...))
		})
	}
}

func stateWith(revision string) template.State {
	return template.State{"team": {Revision: revision}}
}

// A new Namespace that contains everything is initialized by the request that records it.
func TestTemplatedNamespaceIsInitialized(t *testing.T) {
	g, recorder := NewWithT(t), events.NewFakeRecorder(10)
	created := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers(v1alpha1.TemplatesInitializer)
	server := fakeServer{cached: created.Obj()}
	records := &apply.Records{Clock: clocktesting.NewFakePassiveClock(now)}
	reconciler := &TemplatedNamespaceReconciler{
		Client: server.client(), Live: server.client(), Records: records, Recorder: recorder,
		Applier: &fakeApplier{result: plan.Result{State: stateWith("b"), Templates: []plan.Outcome{{Template: "team"}}}},
		Clock:   clocktesting.NewFakePassiveClock(now), retries: newRetryLimiter(firstTemplateRetry),
		Templates: &Requests{},
	}
	result, err := reconciler.reconcile(t.Context(), requestFor("x"), false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}))
	g.Expect(server.writes).To(HaveExactElements(And(
		ContainSubstring(`applied-templates={"team":{"revision":"b"}}`), ContainSubstring("pending-initializers="),
		ContainSubstring("Initializing=False/Initialized"),
	)))
	g.Expect(recorder.Events).NotTo(Receive(), "an Event for each namespace would cost as much as an object")
	g.Expect(records.IsStale(created.Obj())).To(BeTrue(), "the cache does not contain the record yet")
	state, err := records.State(created.Obj())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state).To(Equal(stateWith("b")))

	server.getError = errNotFound
	_, err = reconciler.reconcile(t.Context(), requestFor("x"), true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(records.IsStale(created.Obj())).To(BeFalse(), "the record is forgotten")
}

func TestRetryLimiter(t *testing.T) {
	g := NewWithT(t)
	limiter := newRetryLimiter(50 * time.Millisecond)
	one := requestFor("one")
	var last time.Duration
	for attempt := range 20 {
		delay := limiter.When(one)
		g.Expect(delay).To(Equal(min(50*time.Millisecond<<min(attempt, 10), maxTemplateRetry)))
		last = delay
	}
	g.Expect(last).To(Equal(5*time.Second), "one failing request")
	for i := range 2999 {
		limiter.When(requestFor(strconv.Itoa(i)))
	}
	g.Expect(limiter.When(one)).To(Equal(30*time.Second), "3000 failing requests")
	for i := range 2999 {
		limiter.Forget(requestFor(strconv.Itoa(i)))
	}
	g.Expect(limiter.When(one)).To(Equal(maxTemplateRetry))
	limiter.Forget(one)
	g.Expect(limiter.When(one)).To(Equal(50 * time.Millisecond))
	g.Expect(limiter.failing).To(HaveLen(1))
}

func TestLongestRetry(t *testing.T) {
	g := NewWithT(t)
	for failing, want := range map[int]time.Duration{
		0: maxTemplateRetry, 1: maxTemplateRetry, 500: maxTemplateRetry, 501: 5010 * time.Millisecond,
		6000: maxRetryDelay, 1_000_000: maxRetryDelay,
	} {
		g.Expect(longestRetry(failing)).To(Equal(want), "%d", failing)
	}
}

func TestCacheCheck(t *testing.T) {
	reader := func(templates ...client.Object) client.Client {
		return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(templates...).Build()
	}
	team := func(uid types.UID, generation int64) client.Object {
		object := &v1alpha1.NamespaceTemplate{}
		object.Name, object.UID, object.Generation = "team", uid, generation
		return object
	}
	tests := map[string]struct {
		cached, live []client.Object
		want         bool
	}{
		"no template":                {want: true},
		"equal":                      {cached: []client.Object{team("a", 2)}, live: []client.Object{team("a", 2)}, want: true},
		"the template is missing":    {live: []client.Object{team("a", 1)}},
		"the template has changed":   {cached: []client.Object{team("a", 1)}, live: []client.Object{team("a", 2)}},
		"the template was recreated": {cached: []client.Object{team("a", 2)}, live: []client.Object{team("b", 1)}},
		"the template was deleted":   {cached: []client.Object{team("a", 1)}, want: true},
		"the response is older":      {cached: []client.Object{team("a", 2)}, live: []client.Object{team("a", 1)}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var check cacheCheck
			cached, templates := reader(test.cached...), &v1alpha1.NamespaceTemplateList{}
			g.Expect(check.verify(t.Context(), cached, reader(test.live...), templates) == nil).To(Equal(test.want))
			live := reader(team("c", 1))
			g.Expect(check.verify(t.Context(), cached, live, templates) == nil).To(Equal(test.want), "the cache remains current")
		})
	}
}
