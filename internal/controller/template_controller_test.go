// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// templateServer is a fake API server with one template and its revisions. It records writes.
type templateServer struct {
	getError, statusError, reviewError error
	isDenied                           bool

	writes []string
}

// reconciler returns a reconciler that has all objects in its cache.
func (s *templateServer) reconciler(objects ...client.Object) *TemplateReconciler {
	clock := clocktesting.NewFakePassiveClock(now)
	api := newFakeClient(interceptor.Funcs{
		Get: s.get, Create: s.create, Patch: s.patch, SubResourcePatch: s.patchStatus,
	}, append(objects, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "account"}})...)
	revisions := &observe.Revisions{Client: api, Cached: api, Live: api, SystemNamespace: systemNamespace}
	observer := &observe.Observer{
		Programs: &observe.Programs{Revisions: revisions}, Writes: &observe.Writes{Clock: clock},
		Rollouts: &observe.Rollouts{Clock: clock}, Objects: observe.NewObjects(nil, nil, clock, nil),
		Sources: observe.NewSources(nil, api, sourceNamespace, nil),
	}
	return &TemplateReconciler{
		Client: api, Clock: clock, ServerClock: servertime.NewClock(clock), Requests: &Requests{}, Revisions: revisions, Programs: observer.Programs,
		Writes: observer.Writes, Rollouts: observer.Rollouts, Recorder: events.NewFakeRecorder(10), Namespaces: &Requests{},
		Exempt: exempt, Observer: observer,
		Authorizer: &authorization.Authorizer{
			DryRunner: &execute.Writer{},
			Client:    api, ServiceAccounts: api, Revisions: revisions, SystemNamespace: systemNamespace, IsOperator: true, Clock: clock,
		},
	}
}

func (s *templateServer) get(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	if _, ok := object.(*v1alpha1.NamespaceTemplate); ok && s.getError != nil {
		return s.getError
	}
	return c.Get(ctx, key, object, opts...)
}

func (s *templateServer) create(
	ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption,
) error {
	switch object := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		object.Status.Allowed = true
		return s.reviewError
	case *authorizationv1.SubjectAccessReview:
		object.Status.Allowed = !s.isDenied
		return s.reviewError
	}
	s.writes = append(s.writes, "create "+object.GetName())
	return c.Create(ctx, object, opts...)
}

func (s *templateServer) patch(
	ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	s.writes = append(s.writes, "patch "+object.GetName())
	return c.Patch(ctx, object, patch, opts...)
}

// patchStatus records the conditions that differ from those of a template that is applied.
func (s *templateServer) patchStatus(
	ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch,
	_ ...client.SubResourcePatchOption,
) error {
	body, err := bodyOf[v1alpha1.NamespaceTemplate](object, patch)
	if err != nil {
		return err
	}
	words := []string{"status of " + object.GetName()}
	if body.ResourceVersion == "" {
		words = append(words, "without resourceVersion")
	}
	if body.Status.CurrentRevision != "" {
		words = append(words, "current="+body.Status.CurrentRevision)
	}
	for _, condition := range body.Status.Conditions {
		if condition.Type != v1alpha1.ConditionConflicted && condition.Reason != condition.Type {
			words = append(words, fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason))
		}
		if strings.Contains(condition.Message, "canaries") && condition.Type == v1alpha1.ConditionProgressing {
			words[len(words)-1] += ": canaries"
		}
	}
	s.writes = append(s.writes, strings.Join(words, " "))
	if s.statusError != nil {
		return s.statusError
	}
	return c.Update(ctx, object)
}

func TestTemplateReconcile(t *testing.T) {
	latest := template.Revision(&teamTemplate().Spec)
	// with returns a template whose status describes a revision of this generation.
	with := func(revision string, change func(*v1alpha1.NamespaceTemplate)) *v1alpha1.NamespaceTemplate {
		current := teamTemplate()
		current.Status = v1alpha1.NamespaceTemplateStatus{
			ObservedGeneration: current.Generation, UpdateRevision: revision, CurrentRevision: revision,
		}
		current.Spec.Rollout.CanarySelector = nil
		change(current)
		return current
	}
	unchanged := func(*v1alpha1.NamespaceTemplate) {}
	forbidden := plan.TemplateOutcome{Template: "team", UID: "team-uid", Revision: latest, Problems: []template.Problem{{Reason: v1alpha1.ReasonForbidden}}}
	const recordRevision, status = "create team-", "status of team"

	tests := map[string]struct {
		// template is nil if it does not exist. Its current revision is stored.
		template *v1alpha1.NamespaceTemplate
		// enforced is the condition Enforced of the set that contains the template; True if it is empty.
		enforced metav1.Condition
		// isNotInSet is true if the set does not contain the template.
		isNotInSet bool
		namespace  *wrappers.NamespaceWrapper
		// outcome is that of the last pass over the Namespace; empty if there was none.
		outcome    plan.TemplateOutcome
		server     templateServer
		want       time.Duration
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"it does not exist": {},
		"it cannot be read": {server: templateServer{getError: errOutage}, wantError: errOutage.Error()},
		"it is being deleted": {
			template: with(latest, deleted), want: reviewInterval, wantWrites: []string{status + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
		"it must get a finalizer": {
			template: with(latest, func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.ObjectRetentionPolicy.WhenDeleted = v1alpha1.RetentionDelete
			}),
			wantWrites: []string{"patch team"},
		},
		"its first revision": {
			template: with("", unchanged), want: reviewInterval,
			wantWrites: []string{recordRevision + latest, status + " current=" + latest + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
		"the counts are not known yet": {
			template: with(latest, unchanged), namespace: namespaceOf(latest), want: templateStatusInterval,
		},
		"its generation was not applied yet": {
			template:  with(latest, func(t *v1alpha1.NamespaceTemplate) { t.Generation++ }),
			namespace: namespaceOf(latest), outcome: plan.TemplateOutcome{Template: "team", Revision: latest}, want: templateStatusInterval,
			wantWrites: []string{status + " Ready=False/Updating Progressing=True/Updating"},
		},
		"all namespaces are updated": {
			template: with("a", unchanged), namespace: namespaceOf(latest),
			outcome: plan.TemplateOutcome{Template: "team", Revision: latest}, want: reviewInterval,
			wantWrites: []string{recordRevision + latest, status + " current=" + latest + " Ready=True/UpToDate Progressing=False/UpToDate"},
			wantEvents: []string{"Normal RolloutCompleted All 1 desired namespaces contain"},
		},
		"a namespace is outdated": {
			template: with("a", unchanged), namespace: namespaceOf("a"),
			outcome: plan.TemplateOutcome{Template: "team", Revision: "a"}, want: reviewInterval,
			wantWrites: []string{recordRevision + latest, status + " Ready=False/Updating Progressing=True/Updating"},
			wantEvents: []string{"Normal RolloutStarted"},
		},
		"a canary is outdated": {
			template:  with("a", func(t *v1alpha1.NamespaceTemplate) { t.Spec.Rollout = teamTemplate().Spec.Rollout }),
			namespace: namespaceOf("a").Label("canary", "true"), outcome: plan.TemplateOutcome{Template: "team", Revision: "a"},
			want: reviewInterval, wantWrites: []string{recordRevision + latest, status + " Ready=False/Updating Progressing=True/Updating: canaries"},
			wantEvents: []string{"Normal RolloutStarted"},
		},
		"the rollout is paused": {
			template:  with("a", func(t *v1alpha1.NamespaceTemplate) { t.Spec.Rollout.Paused = true }),
			namespace: namespaceOf("a"), outcome: plan.TemplateOutcome{Template: "team", Revision: "a"}, want: reviewInterval,
			wantWrites: []string{recordRevision + latest, status + " Ready=False/Paused Progressing=Unknown/Paused"},
			wantEvents: []string{"Normal RolloutPaused The rollout is paused. ... New namespaces get revision a."},
		},
		"a namespace has failed": {
			template: with(latest, unchanged), namespace: namespaceOf(latest), outcome: forbidden, want: incompleteReviewInterval,
			wantWrites: []string{status + " Ready=False/Failing Progressing=True/Failing"},
			wantEvents: []string{`Warning TemplateForbidden namespace "x": `},
		},
		"a failure pauses the rollout": {
			template: with("a", unchanged), namespace: namespaceOf("a"), outcome: forbidden, want: incompleteReviewInterval,
			wantWrites: []string{recordRevision + latest, status + " Ready=False/PausedAfterFailures Progressing=Unknown/PausedAfterFailures"},
			wantEvents: []string{"Warning TemplateForbidden", "Warning RolloutPausedAfterFailures"},
		},
		"API servers do not add it to namespaces": {
			template: with(latest, unchanged), want: incompleteReviewInterval,
			enforced:   metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPolicyMissing},
			wantWrites: []string{status + " Ready=False/PolicyMissing Progressing=False/UpToDate"},
		},
		"API servers add it to namespaces, in audit mode": {
			template: with(latest, unchanged), want: reviewInterval,
			enforced:   metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAuditMode},
			wantWrites: []string{status + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
		"the set does not contain it yet": {
			template: with(latest, unchanged), isNotInSet: true, want: templateStatusInterval,
			wantWrites: []string{status + " Ready=False/EnforcementPending Progressing=False/UpToDate"},
		},
		"API servers have added it to namespaces before": {
			template: with(latest, func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
			}),
			isNotInSet: true, want: reviewInterval,
			wantWrites: []string{status + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
		"it is invalid": {
			template: with("a", func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Variables = []v1alpha1.TemplateVariable{{Name: "x", Expression: "("}}
			}),
			namespace: namespaceOf("a"), outcome: plan.TemplateOutcome{Template: "team", Revision: "a"}, want: reviewInterval,
			wantWrites: []string{status + " Ready=False/Invalid Valid=False/Invalid Progressing=Unknown/Invalid Stalled=True/Invalid"},
			wantEvents: []string{"Warning InvalidTemplate spec.variables[0].expression"},
		},
		"its permissions are missing": {
			template: with(latest, unchanged), server: templateServer{isDenied: true}, want: incompleteReviewInterval,
			wantWrites: []string{status + " Ready=False/Unauthorized Authorized=False/Unauthorized Progressing=False/UpToDate"},
			wantEvents: []string{`Warning Unauthorized ServiceAccount "account" lacks permissions`},
		},
		"its permissions are unknown": {
			template: with(latest, unchanged), server: templateServer{reviewError: errOutage}, want: incompleteReviewInterval,
			wantWrites: []string{status + " Ready=True/UpToDate Authorized=Unknown/AuthorizationUnknown Progressing=False/UpToDate"},
		},
		"another client was faster": {
			template: with(latest, unchanged), server: templateServer{statusError: errConflict}, want: conflictRetry,
			wantWrites: []string{status + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
		"the status cannot be written": {
			template: with(latest, unchanged), server: templateServer{statusError: errOutage},
			wantError:  `failed to update the status of NamespaceTemplate "team": ` + errOutage.Error(),
			wantWrites: []string{status + " Ready=True/UpToDate Progressing=False/UpToDate"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var objects []client.Object
			if current := test.template; current != nil {
				set := policytest.Set()
				if !test.isNotInSet {
					set.Templates = templateset.Compute([]v1alpha1.NamespaceTemplate{*current}, nil)
				}
				test.enforced.Type = internalv1alpha1.ConditionEnforced
				test.enforced.Status = cmp.Or(test.enforced.Status, metav1.ConditionTrue)
				set.Status.Conditions = []metav1.Condition{test.enforced}
				objects = append(objects, current, set)
				if revision := current.Status.CurrentRevision; revision != "" {
					objects = append(objects, storedRevision(current, revision))
				}
			}
			if test.namespace != nil {
				objects = append(objects, test.namespace.Obj())
			}
			reconciler := test.server.reconciler(objects...)
			if test.outcome.Template != "" {
				reconciler.Rollouts.Report(test.namespace.Obj(), plan.Outcome{Templates: []plan.TemplateOutcome{test.outcome}})
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor("team"))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(reconciler.Recorder)).To(matchEvents(test.wantEvents...))
			if test.want >= incompleteReviewInterval {
				_, err = reconciler.Reconcile(t.Context(), requestFor("team"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(test.server.writes).To(HaveLen(len(test.wantWrites)), "nothing has changed")
			}
		})
	}
}

// storedRevision returns the ControllerRevision of the current revision of a template.
func storedRevision(current *v1alpha1.NamespaceTemplate, revision string) client.Object {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, Name: current.Name + "-" + revision,
			Labels: map[string]string{v1alpha1.LabelManagedByTemplate: current.Name},
			Annotations: map[string]string{
				v1alpha1.AnnotationCurrentRevision: "1", v1alpha1.AnnotationServiceAccount: current.Spec.ServiceAccountName,
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(current, v1alpha1.GroupVersion.WithKind("NamespaceTemplate")),
			},
		},
		Data: runtime.RawExtension{Raw: []byte(`{"objects":null}`)}, Revision: 1,
	}
}

// deleted makes a template terminating, which another client holds.
func deleted(current *v1alpha1.NamespaceTemplate) {
	current.DeletionTimestamp = &metav1.Time{Time: now}
	current.Finalizers = append(current.Finalizers, "test.example.com/hold")
}

// namespaceOf returns an initialized Namespace that the template "team" selects, and that records a revision of it
// unless the revision is empty.
func namespaceOf(revision string) *wrappers.NamespaceWrapper {
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Label("team", "x")
	if revision != "" {
		namespace.Annotation(v1alpha1.AnnotationAppliedTemplates, stateWith(revision).String())
	}
	return namespace
}

// teamTemplate returns a template for all Namespaces with the label "team".
func teamTemplate() *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "team-uid", Generation: 2},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Scope: v1alpha1.ScopeAllNamespaces, ServiceAccountName: "account",
			NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "x"}},
			Rollout: v1alpha1.TemplateRollout{
				CanarySelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"canary": "true"}},
			},
		},
	}
}

func TestTemplateFinalizer(t *testing.T) {
	const retain, deletes = v1alpha1.RetentionRetain, v1alpha1.RetentionDelete
	tests := map[string]struct {
		policy       v1alpha1.RetentionPolicy
		hasFinalizer bool
		isDeleting   bool
		namespace    *wrappers.NamespaceWrapper
		wantChanged  bool
		// want is true if the template has the finalizer afterwards.
		want      bool
		wantError bool
	}{
		"objects must be deleted":                     {policy: deletes, wantChanged: true, want: true},
		"it has the finalizer":                        {policy: deletes, hasFinalizer: true, want: true},
		"objects remain":                              {policy: retain},
		"objects remain since the spec has changed":   {policy: retain, hasFinalizer: true, wantChanged: true},
		"deleted, no namespace records it":            {policy: deletes, hasFinalizer: true, isDeleting: true, namespace: namespaceOf(""), wantChanged: true},
		"deleted, a namespace records it":             {policy: deletes, hasFinalizer: true, isDeleting: true, namespace: namespaceOf("a"), want: true},
		"deleted, a terminating namespace records it": {policy: deletes, hasFinalizer: true, isDeleting: true, namespace: namespaceOf("a").Terminating(now), wantChanged: true},
		"deleted, objects remain":                     {policy: retain, hasFinalizer: true, isDeleting: true, namespace: namespaceOf("a"), wantChanged: true},
		"deleted, an unknown record names it": {
			policy: deletes, hasFinalizer: true, isDeleting: true, want: true, wantError: true,
			namespace: namespaceOf("").Annotation(v1alpha1.AnnotationAppliedTemplates, `{"team":1}`),
		},
		"deleted, an unknown record does not name it": {
			policy: deletes, hasFinalizer: true, isDeleting: true, wantChanged: true,
			namespace: namespaceOf("").Annotation(v1alpha1.AnnotationAppliedTemplates, `{"other":1}`),
		},
		"deleted, without the finalizer": {policy: deletes, isDeleting: true, namespace: namespaceOf("a")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, current := NewWithT(t), teamTemplate()
			current.Spec.ObjectRetentionPolicy.WhenDeleted = test.policy
			if test.hasFinalizer {
				current.Finalizers = []string{v1alpha1.FinalizerTemplateObjects}
			}
			if test.isDeleting {
				deleted(current)
			}
			reconciler := (&templateServer{}).reconciler(current)
			g.Expect(reconciler.Get(t.Context(), client.ObjectKeyFromObject(current), current)).To(Succeed())
			var namespaces []corev1.Namespace
			if test.namespace != nil {
				namespaces = append(namespaces, *test.namespace.Obj())
			}
			changed, err := reconciler.updateFinalizer(t.Context(), current, namespaces)
			g.Expect(err != nil).To(Equal(test.wantError), "%v", err)
			g.Expect(changed).To(Equal(test.wantChanged))
			g.Expect(reconciler.Get(t.Context(), client.ObjectKeyFromObject(current), current)).To(Succeed())
			g.Expect(slices.Contains(current.Finalizers, v1alpha1.FinalizerTemplateObjects)).To(Equal(test.want))
		})
	}
}

func TestProgress(t *testing.T) {
	canary := func(revision string) *wrappers.NamespaceWrapper { return namespaceOf(revision).Label("canary", "true") }
	waiting := namespaceOf("").Initializers(v1alpha1.TemplatesInitializer)
	kubeSystem := namespaceOf("a")
	kubeSystem.Name = "kube-system"
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		isOnce    bool
		// written is the revision that the operator has recorded since.
		written                    string
		wantOutdated, wantCanaries int
	}{
		"updated":                               {namespace: namespaceOf("b")},
		"updated, not in the cache":             {namespace: namespaceOf("a"), written: "b"},
		"outdated":                              {namespace: namespaceOf("a"), wantOutdated: 1},
		"outdated, a canary":                    {namespace: canary("a"), wantOutdated: 1, wantCanaries: 1},
		"without the template":                  {namespace: namespaceOf(""), wantOutdated: 1},
		"applied once":                          {namespace: namespaceOf("a"), isOnce: true},
		"not applied once yet":                  {namespace: namespaceOf(""), isOnce: true, wantOutdated: 1},
		"not selected":                          {namespace: namespaceOf("a").Label("team", "other")},
		"terminating":                           {namespace: namespaceOf("a").Terminating(now)},
		"exempt":                                {namespace: kubeSystem},
		"unknown":                               {namespace: namespaceOf("").Annotation(v1alpha1.AnnotationAppliedTemplates, "x")},
		"initializing":                          {namespace: waiting},
		"initialized, not in the cache":         {namespace: waiting, written: "b"},
		"initialized earlier, not in the cache": {namespace: namespaceOf("").Initializers("own.corp.com"), written: "a", wantOutdated: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, current, reconciler := NewWithT(t), teamTemplate(), (&templateServer{}).reconciler()
			if test.isOnce {
				current.Spec.Sync.Mode = v1alpha1.SyncOnce
			}
			namespace := test.namespace.Obj()
			if test.written != "" {
				reconciler.Writes.SetState(namespace, stateWith(test.written), "8")
			}
			progress := reconciler.progress(current, "b", []corev1.Namespace{*namespace})
			g.Expect(progress.Outdated).To(Equal(test.wantOutdated))
			g.Expect(progress.Canaries).To(Equal(test.wantCanaries))
		})
	}
}

// The status only matters after a restart, and only for its own revision.
func TestMinReadySecondsAfterRestart(t *testing.T) {
	latest := template.Revision(&teamTemplate().Spec)
	for name, test := range map[string]struct {
		revision       string
		updated        *metav1.Time
		isRunning      bool
		want           time.Time
		wantOnlyCanary bool
	}{
		"the time has passed":    {revision: latest, updated: &metav1.Time{Time: now.Add(-time.Hour)}, want: now.Add(-time.Hour)},
		"the time counts":        {revision: latest, updated: &metav1.Time{Time: now.Add(-time.Minute)}, want: now.Add(-time.Minute), wantOnlyCanary: true},
		"the status is lost":     {want: now, wantOnlyCanary: true},
		"of another revision":    {revision: "b", updated: &metav1.Time{Time: now.Add(-time.Hour)}, want: now, wantOnlyCanary: true},
		"without a restart":      {revision: latest, updated: &metav1.Time{Time: now.Add(-time.Hour)}, isRunning: true, want: now, wantOnlyCanary: true},
		"lost without a restart": {isRunning: true, want: now, wantOnlyCanary: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, current, namespace := NewWithT(t), teamTemplate(), namespaceOf("a").Obj()
			current.Spec.Rollout.MinReadySeconds = 3600
			reconciler := (&templateServer{}).reconciler(current, storedRevision(current, "a"), namespace)
			reconciler.Rollouts.Report(namespace, plan.Outcome{Templates: []plan.TemplateOutcome{{Template: "team", Revision: "a"}}})
			compute := func() {
				g.Expect(reconciler.planRollout(t.Context(), current, []corev1.Namespace{*namespace})).To(Succeed())
			}
			if test.isRunning {
				compute()
			}
			current.Status.UpdateRevision, current.Status.CanariesUpdatedTime = test.revision, test.updated
			compute()
			g.Expect(current.Status.CanariesUpdatedTime).To(HaveValue(HaveField("Time", BeTemporally("==", test.want))))
			g.Expect(current.Status.CurrentRevision).To(Equal("a"))
			g.Expect(reconciler.Rollouts.Get(current.UID).IsCanaryPhase).To(Equal(test.wantOnlyCanary))
		})
	}
}

func TestReviewIsRepeated(t *testing.T) {
	forbidden := plan.TemplateOutcome{
		Template: "team", UID: "team-uid", Problems: []template.Problem{{Template: "team", Reason: v1alpha1.ReasonForbidden}},
	}
	for name, test := range map[string]struct {
		// elapsed is the time from the review, after which the right was revoked, to the next one.
		elapsed time.Duration
		outcome plan.TemplateOutcome
		want    metav1.ConditionStatus
	}{
		"not at once":                          {elapsed: time.Second, want: metav1.ConditionTrue},
		"after the interval":                   {elapsed: reviewInterval, want: metav1.ConditionFalse},
		"at once after the refusal of a write": {elapsed: time.Second, outcome: forbidden, want: metav1.ConditionFalse},
		"not at once after another failed write": {
			elapsed: time.Second, want: metav1.ConditionTrue,
			outcome: plan.TemplateOutcome{Template: "team", UID: "team-uid", Problems: []template.Problem{{Reason: v1alpha1.ReasonApplyFailed}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, server, current := NewWithT(t), &templateServer{}, teamTemplate()
			reconciler := server.reconciler(current)
			g.Expect(reconciler.review(t.Context(), current).authorized).To(Equal(metav1.ConditionTrue))
			server.isDenied = true
			if test.outcome.Template != "" {
				reconciler.Rollouts.Report(namespaceOf("").Obj(), plan.Outcome{Templates: []plan.TemplateOutcome{test.outcome}})
			}
			clock := clocktesting.NewFakePassiveClock(now.Add(test.elapsed))
			reconciler.Clock, reconciler.Authorizer.Clock = clock, clock
			g.Expect(reconciler.review(t.Context(), current).authorized).To(Equal(test.want))
		})
	}
}

// What new Namespaces and new labels change later does not make a template unprocessed again.
func TestObserveGenerations(t *testing.T) {
	g, current := NewWithT(t), teamTemplate()
	missing := []corev1.Namespace{*namespaceOf("").Obj()}
	current.Status.ObservedGeneration = current.Generation
	reconciler := (&templateServer{}).reconciler()
	g.Expect(reconciler.recordGeneration(current, missing)).To(Equal(observedGeneration{generation: 2, isProcessed: true}),
		"an earlier process has reported the generation")
	current.Generation++
	g.Expect(reconciler.recordGeneration(current, missing)).To(Equal(observedGeneration{generation: 3, since: now}))
	reconciler.ServerClock = servertime.NewClock(clocktesting.NewFakePassiveClock(now.Add(time.Minute)))
	g.Expect(reconciler.recordGeneration(current, missing)).To(Equal(observedGeneration{generation: 3, since: now}))
	for name, namespace := range map[string]*wrappers.NamespaceWrapper{
		"not selected": namespaceOf("").Label("team", "other"),
		"terminating":  namespaceOf("").Terminating(now),
		"initializing": namespaceOf("").Initializers("own.corp.com"),
	} {
		g.Expect(reconciler.mustProcess(current, namespace.Obj())).To(BeFalse(), name)
	}
	g.Expect(reconciler.recordGeneration(current, nil)).To(Equal(observedGeneration{generation: 3, since: now, isProcessed: true}))
	g.Expect(reconciler.recordGeneration(current, missing).isProcessed).To(BeTrue(), "a new namespace")
}
