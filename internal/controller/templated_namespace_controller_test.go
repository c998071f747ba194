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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
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

// fakeEngine returns what is known about template "team" in a Namespace, and executes nothing.
type fakeEngine struct {
	revision string
	objects  []plan.ObjectSnapshot
	deadline *int32
	refusal  *metav1.Status
	// err is that of Observe, and stopped that of Execute.
	err, stopped error
	passes       int
}

func (e *fakeEngine) Observe(
	_ context.Context, namespace *corev1.Namespace, _ []v1alpha1.NamespaceTemplate,
) (plan.Snapshot, error) {
	e.passes++
	if e.err != nil {
		return plan.Snapshot{}, e.err
	}
	state, err := template.ParseRecord(namespace)
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "team-uid"}}
	tmpl.Spec.Initialization.EffectiveTimeoutSeconds = e.deadline
	return plan.Snapshot{
		Namespace: namespace, State: state, Now: now, ServerNow: now, Start: now, FullPassInterval: time.Hour, Refusal: e.refusal,
		Applicable: []plan.TemplateSnapshot{{
			Template: tmpl, Choice: plan.Choice{Revision: e.revision}, Latest: e.revision, Objects: e.objects,
		}},
	}, err
}

func (e *fakeEngine) Execute(_ context.Context, decided plan.Plan) ([]plan.Result, error) {
	return make([]plan.Result, len(decided.Operations)), e.stopped
}

// newTemplatedNamespaceReconciler returns a reconciler with empty stores.
func newTemplatedNamespaceReconciler(server *fakeServer, engine *fakeEngine) *TemplatedNamespaceReconciler {
	clock := clocktesting.NewFakePassiveClock(now)
	return &TemplatedNamespaceReconciler{
		Client: server.client(), Live: server.client(), Observer: engine, Executor: engine, Recorder: events.NewFakeRecorder(10),
		Writes: &observe.Writes{Clock: clock}, Rollouts: &observe.Rollouts{Clock: clock},
		ServerClock: servertime.NewClock(clock), Exempt: exempt, retries: newRetryLimiter(firstTemplateRetry), Templates: &Requests{},
	}
}

func TestTemplatedNamespaceReconcile(t *testing.T) {
	const (
		templates, own = v1alpha1.TemplatesInitializer, "own.corp.com"
		statusPatch    = "status of x: uid=x-uid "
		waitingPatch   = statusPatch + templates + "/Initialized=False/"
		recordPatch    = statusPatch + `version=7 applied-templates={"team":{"revision":"b"}}`
		targetPatch    = statusPatch + `version=7 applied-templates={"team":{"revision":"a","target":"b"}}`
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
	applied := fakeEngine{revision: "b"}
	failing := fakeEngine{revision: "b", objects: []plan.ObjectSnapshot{{
		Name: "config", Manifest: &unstructured.Unstructured{}, Unknown: template.Problemf(v1alpha1.ReasonForbidden, "x"),
	}}}
	waiting := func(age time.Duration) fakeServer {
		created := isNew()
		created.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return fakeServer{cached: created.Obj()}
	}
	quota := &unstructured.Unstructured{}
	quota.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	quota.SetName("quota")
	notEffective := fakeEngine{revision: "b", objects: []plan.ObjectSnapshot{{
		Name: "quota", Manifest: quota, Current: &plan.Observed{UID: "quota-uid"},
	}}}
	withTurnStart := notEffective
	withTurnStart.deadline = ptr.To[int32](3600)
	terminating := apierrors.NewForbidden(corev1.Resource("configmaps"), "config", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := fakeEngine{refusal: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden}}

	tests := map[string]struct {
		server fakeServer
		// isOther is true for the request of the other one of the two controllers.
		isOther    bool
		isBusy     bool
		isStale    bool
		engine     fakeEngine
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
		"the pass fails":                       {server: fakeServer{cached: isNew().Obj()}, engine: fakeEngine{err: errOutage}, isApplied: true, wantError: errOutage.Error()},
		"the deletion starts in the pass":      {server: fakeServer{cached: isNew().Obj()}, engine: fakeEngine{stopped: terminating}, isApplied: true},
		"nothing has changed":                  {server: fakeServer{cached: withRecord("b").Obj()}, engine: applied, isApplied: true, want: time.Hour, wantChanged: true},
		"the templates have been refused":      {server: fakeServer{cached: isNew().Obj()}, engine: refused, isApplied: true, wantWrites: []string{refusal}},
		"another client was faster":            {server: fakeServer{cached: isNew().Obj(), statusError: errRecreated}, engine: refused, isApplied: true, wantWrites: []string{refusal}},
		"an object is not effective":           {server: waiting(waitingReportDelay), engine: notEffective, isApplied: true, want: 5 * time.Millisecond, wantWrites: []string{waitingPatch + v1alpha1.ReasonQuotaNotCounted}, wantChanged: true},
		"an object is not effective yet":       {server: waiting(waitingReportDelay - 1), engine: notEffective, isApplied: true, want: 5 * time.Millisecond, wantChanged: true},
		"a deadline counts from this turn":     {server: waiting(waitingReportDelay), engine: withTurnStart, isApplied: true, want: 5 * time.Millisecond, wantWrites: []string{waitingPatch + v1alpha1.ReasonQuotaNotCounted + " turn-started-at=" + initialization.FormatTurnStart(templates, now)}, wantChanged: true},
		"an object of a new one fails": {
			server: waiting(0), engine: failing, isApplied: true, want: firstTemplateRetry,
			wantWrites: []string{waitingPatch + v1alpha1.ReasonForbidden}, wantEvents: []string{failedEvent}, wantChanged: true,
		},
		"an object of an old one fails": {
			server: fakeServer{cached: withRecord("a").Obj()}, engine: failing, isApplied: true,
			want: firstTemplateRetry, wantWrites: []string{targetPatch}, wantEvents: []string{failedEvent}, wantChanged: true,
		},
		"the record has changed": {
			server: fakeServer{cached: withRecord("a").Obj()}, engine: applied, isApplied: true, want: time.Hour,
			wantWrites: []string{recordPatch}, wantChanged: true,
		},
		"the record cannot be written": {
			server: fakeServer{cached: withRecord("a").Obj(), statusError: errOutage}, engine: applied, isApplied: true,
			wantWrites: []string{recordPatch}, wantEvents: []string{"Warning TemplateNotRecorded template \"team\""},
			wantChanged: true, wantError: `failed to record the templates of namespace "x": failed to update the status of namespace "x": ` +
				errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, changed, engine := NewWithT(t), &fakeQueue{}, test.engine
			reconciler := newTemplatedNamespaceReconciler(&test.server, &engine)
			reconciler.Templates.queues = []priorityqueue.PriorityQueue[reconcile.Request]{changed}
			isForInitialized := test.isOther
			if current := test.server.cached; current != nil {
				isForInitialized = (initialization.ParseState(current).Phase == initialization.PhaseInitialized) != test.isOther
				if test.isStale {
					reconciler.Writes.SetState(current, stateWith("b"), "8")
				}
				memory := plan.Memory{NextFullPass: now.Add(time.Hour)}
				_, isFree := reconciler.memories.begin(current)
				g.Expect(isFree).To(BeTrue())
				if !test.isBusy {
					reconciler.memories.end(current, memory)
				}
			}
			result, err := reconciler.reconcile(t.Context(), requestFor("x"), isForInitialized)
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			g.Expect(engine.passes).To(Equal(map[bool]int{true: 1}[test.isApplied]))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(changed.names).To(Equal(map[bool][]string{true: {"team"}}[test.wantChanged]))
			g.Expect(recorded(reconciler.Recorder)).To(matchEvents(test.wantEvents...))
		})
	}
}

func stateWith(revision string) template.Record {
	return template.Record{"team": {Revision: revision}}
}

// A new Namespace that contains everything is initialized by the request that records it.
func TestTemplatedNamespaceIsInitialized(t *testing.T) {
	g := NewWithT(t)
	created := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers(v1alpha1.TemplatesInitializer)
	server := fakeServer{cached: created.Obj()}
	reconciler := newTemplatedNamespaceReconciler(&server, &fakeEngine{revision: "b"})
	result, err := reconciler.reconcile(t.Context(), requestFor("x"), false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}))
	g.Expect(server.writes).To(HaveExactElements(And(
		ContainSubstring(`applied-templates={"team":{"revision":"b"}}`), ContainSubstring("pending-initializers="),
		ContainSubstring("Initializing=False/Initialized"),
	)))
	g.Expect(recorded(reconciler.Recorder)).To(BeEmpty(), "an Event for each namespace would cost as much as an object")
	g.Expect(reconciler.Writes.IsStale(created.Obj())).To(BeTrue(), "the cache does not contain the record yet")
	state, err := reconciler.Writes.State(created.Obj())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state).To(Equal(stateWith("b")))

	server.getError = errNotFound
	_, err = reconciler.reconcile(t.Context(), requestFor("x"), true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reconciler.Writes.IsStale(created.Obj())).To(BeFalse(), "the record is forgotten")
}

// What a pass has remembered is known to the next one, unless the Namespace was deleted between them.
func TestMemories(t *testing.T) {
	namespace := wrappers.MakeNamespace("x").UID("x-uid").Obj()
	recreated := wrappers.MakeNamespace("x").UID("recreated").Obj()
	for name, test := range map[string]struct {
		during, after func(*memories)
		next          *corev1.Namespace
		isRemembered  bool
	}{
		"the next pass":                 {next: namespace, isRemembered: true},
		"another Namespace was deleted": {after: func(m *memories) { m.forget("other") }, next: namespace, isRemembered: true},
		"the Namespace was recreated":   {next: recreated},
		"it was deleted":                {after: func(m *memories) { m.forget("x") }, next: namespace},
		"it was deleted in the pass":    {during: func(m *memories) { m.forget("x") }, next: namespace, isRemembered: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, m := NewWithT(t), &memories{}
			memory, isFree := m.begin(namespace)
			g.Expect(isFree).To(BeTrue())
			_, isFree = m.begin(namespace)
			g.Expect(isFree).To(BeFalse(), "one pass at a time")
			if test.during != nil {
				test.during(m)
			}
			_, isFree = m.begin(recreated)
			g.Expect(isFree).To(BeFalse(), "one pass at a time, also after a deletion")
			memory.FirstPass = now
			m.end(namespace, memory)
			if test.after != nil {
				test.after(m)
			}
			memory, _ = m.begin(test.next)
			g.Expect(memory.FirstPass.IsZero()).To(Equal(!test.isRemembered))
		})
	}
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
