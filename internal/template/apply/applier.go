// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const (
	// syncRetry is the time until the next pass if a watch has not listed all objects yet.
	syncRetry = 50 * time.Millisecond
	// syncTimeout is the time after which this is a problem. Other templates are then applied.
	syncTimeout = 2 * time.Second
)

// Recorder records the writes of an Applier.
type Recorder interface {
	// Wrote counts a request that the API server has accepted.
	Wrote(templateName string, action plan.Action)
}

// Applier applies templates to Namespaces.
type Applier struct {
	Objects  *Objects
	Writer   *Writer
	Sources  *Sources
	Grants   *Grants
	Programs *Programs
	Records  *Records
	Limits   *Limits
	Recorder Recorder
	Clock    clock.PassiveClock
	// ServiceAccounts reads the ServiceAccounts in the system namespace.
	ServiceAccounts client.Reader
	// Live confirms deletions with the API server.
	Live client.Reader
	// WatchPermissions are the types that the operator may watch.
	WatchPermissions WatchPermissions
	// SystemNamespace is the namespace of the operator.
	SystemNamespace string
	// FullPass is the time between two full passes over a Namespace.
	FullPass time.Duration
}

// pass is one pass over a Namespace.
type pass struct {
	*Applier
	*plan.Pass
	record *Record
}

// Apply applies all applicable templates to a Namespace: it first reads what they and the Namespace contain, then
// writes what differs, asks whether it is effective, and deletes what no template contains any more. It returns an
// error if the Namespace cannot be processed at all; errors that concern one object are problems in the result.
func (a *Applier) Apply(
	ctx context.Context, record *Record, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) (plan.Result, error) {
	state, err := a.Records.State(namespace)
	if err != nil {
		return plan.Result{}, err
	}
	p := &pass{Applier: a, Pass: plan.NewPass(&record.Memory, namespace, state, a.Clock.Now()), record: record}
	selected := a.applicable(templates, namespace, state)
	if p.IsInitializing {
		refusal, err := a.Limits.admit(ctx, record, namespace, templates)
		if err != nil || refusal != nil {
			return plan.Result{Refusal: refusal, RetryAfter: syncRetry}, err
		}
	}
	p.Begin(selected, a.FullPass)
	if err := p.collect(ctx, selected); err != nil {
		return plan.Result{RetryAfter: syncRetry}, err
	}
	if err := p.write(ctx); err != nil {
		return plan.Result{RetryAfter: syncRetry}, err
	}
	if err := p.awaitEffective(ctx); err != nil {
		return plan.Result{RetryAfter: syncRetry}, err
	}
	removals := p.Removals(templates)
	for _, removal := range removals {
		p.remove(ctx, removal)
	}
	result := p.Conclude(templates, removals, a.FullPass, a.Records.start)
	if p.IsInitializing {
		a.Records.setState(record, result.State, "")
	}
	return result, nil
}

// fail adds a problem of a template, or of the object with the given name, to the result. It returns errors that
// concern the whole pass.
func (p *pass) fail(selected *plan.Selected, object string, err error) error {
	if errors.Is(err, context.Canceled) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		errors.Is(err, template.ErrNotSynced) && plan.ElapsedSince(&p.Memory.UnsyncedSince, p.Now) < syncTimeout {
		return err
	}
	selected.AddProblem(object, err)
	return nil
}

// applicable returns the templates to apply to a Namespace, sorted by name. A template that does not fit into the set
// is not added to a Namespace, because the admission policies do not check who selects it.
func (a *Applier) applicable(
	templates []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state template.State,
) []*v1alpha1.NamespaceTemplate {
	// Most passes add no template.
	omitted := sync.OnceValue(func() sets.Set[string] { return a.Programs.Omitted(templates) })
	var found []*v1alpha1.NamespaceTemplate
	for i := range templates {
		tmpl := &templates[i]
		_, isRecorded := state[tmpl.Name]
		if tmpl.DeletionTimestamp == nil && template.Applies(tmpl, namespace, state) &&
			(isRecorded || !omitted().Has(tmpl.Name)) {
			found = append(found, tmpl)
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.NamespaceTemplate) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// Retain forgets what is known about templates that no longer exist, and stops the watches of kinds that
// no template contains or that the API server does not serve any more. It reports whether watches that no
// template needs are still running; they are stopped after WatchRetention.
func (a *Applier) Retain(ctx context.Context, templates []v1alpha1.NamespaceTemplate) bool {
	uids, kinds := map[types.UID]bool{}, map[schema.GroupVersionKind]bool{}
	for i := range templates {
		uids[templates[i].UID] = true
		for _, kind := range a.Programs.kinds(&templates[i], a.Records.Rollout(templates[i].UID).Current) {
			kinds[kind] = true
		}
	}
	a.Records.retainRollouts(uids)
	a.Programs.retain(uids)
	return a.Objects.retain(ctx, kinds, a.isServed)
}

// Unserved returns the kinds in a template that the API server does not serve, sorted.
func (a *Applier) Unserved(tmpl *v1alpha1.NamespaceTemplate) []string {
	var unserved []string
	for _, kind := range a.Programs.latest(tmpl).kinds {
		if !a.isServed(kind) {
			unserved = append(unserved, kind.String())
		}
	}
	return unserved
}

// MissingSource returns why a source of the copies in the spec of a template, or the namespace of the sources, does not
// exist; "" if all exist or the operator cannot read them.
func (a *Applier) MissingSource(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate) string {
	for _, source := range a.Programs.latest(tmpl).copies {
		var found *template.ReasonError
		if _, err := a.Sources.get(ctx, source); errors.As(err, &found) && found.Reason == v1alpha1.ReasonSourceNotFound {
			return found.Error()
		}
	}
	return ""
}

func (a *Applier) isServed(kind schema.GroupVersionKind) bool {
	_, err := a.Writer.ResourceOf(kind)
	return err == nil || template.ToProblem("", "", err).Reason != v1alpha1.ReasonKindNotFound
}
