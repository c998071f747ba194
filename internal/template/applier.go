// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

const (
	// maxObjects limits the objects of all templates in a Namespace, whose annotation records them.
	maxObjects = 256

	// syncRetry is the time until the next pass if a watch has not listed all objects yet.
	syncRetry = 50 * time.Millisecond
)

// Applier applies templates to Namespaces.
type Applier struct {
	Objects  *Objects
	Writer   *Writer
	Sources  *Sources
	Grants   *Grants
	Programs *Programs
	Rollouts *Rollouts
	Clock    clock.PassiveClock
	// ServiceAccounts reads the ServiceAccounts in the system namespace.
	ServiceAccounts client.Reader
	// Live confirms deletions with the API server.
	Live client.Reader
	// SystemNamespace is the namespace of the operator.
	SystemNamespace string

	rounds  rounds
	waiting waiting
	partial partial
}

// Result is the outcome of a pass over one Namespace.
type Result struct {
	// State is what the Namespace contains now.
	State State
	// Templates are the outcomes of the applicable templates, sorted by name.
	Templates []Outcome
	// Resumed are the templates whose rollout was paused because of failures, and no longer is.
	Resumed []string
	// RetryAfter is the time until the next pass; 0 if a watch event triggers it.
	RetryAfter time.Duration
}

// Outcome is the outcome of a pass for one template.
type Outcome struct {
	Template string
	// Revision is the revision that the Namespace should contain now.
	Revision string
	// Problems are why the Namespace does not contain all objects.
	Problems []Problem
	// Waiting are objects that exist but are not effective. A new Namespace does not open before.
	Waiting []Problem
	// TimedOut are objects that are not effective within the time limit of the template.
	TimedOut []Problem
}

// Blocking returns the first problem because of which a new Namespace does not open, or nil. An object
// that another template contains exists.
func (r Result) Blocking() *Problem {
	for _, result := range r.Templates {
		for _, found := range slices.Concat(result.Problems, result.Waiting) {
			if found.Reason != ReasonClaimed {
				return &found
			}
		}
	}
	return nil
}

// retry sets the time until the next pass if it is earlier.
func (r *Result) retry(after time.Duration) {
	if after > 0 && (r.RetryAfter == 0 || after < r.RetryAfter) {
		r.RetryAfter = after
	}
}

// pass is one pass over a Namespace.
type pass struct {
	*Applier
	namespace      *corev1.Namespace
	isInitializing bool
	state          State
	result         Result
	// claims has the templates that contain an object.
	claims map[objectKey]int
	count  int
}

// errNotSynced means that a watch has not listed all objects yet.
var errNotSynced = errors.New("the watch has not listed all objects yet")

// Apply applies all applicable templates to a Namespace. It returns an error if the Namespace cannot be
// processed at all; errors that concern one object are problems in the result.
func (a *Applier) Apply(
	ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) (Result, error) {
	state, err := ParseState(namespace)
	if err != nil {
		return Result{}, err
	}
	isInitializing := IsInitializedHere(namespace)
	if isInitializing {
		state = a.partial.get(namespace.UID, state)
	}
	p := &pass{
		Applier: a, namespace: namespace, isInitializing: isInitializing, state: state,
		result: Result{State: State{}}, claims: map[objectKey]int{},
	}
	for _, template := range applicable(templates, namespace, state) {
		if err := p.applyTemplate(ctx, template); err != nil {
			if errors.Is(err, errNotSynced) {
				return Result{State: state, RetryAfter: syncRetry, Templates: p.result.Templates}, errNotSynced
			}
			return Result{}, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if _, ok := p.result.State[name]; !ok {
			p.removeTemplate(ctx, name, templates)
		}
	}
	if isInitializing {
		a.partial.set(namespace.UID, p.result.State)
	}
	return p.result, nil
}

// IsNotSynced reports whether the pass must be repeated after Result.RetryAfter, because a watch has
// just started.
func IsNotSynced(err error) bool { return errors.Is(err, errNotSynced) }

// Retain forgets what is known about templates that no longer exist.
func (a *Applier) Retain(templates []v1alpha1.NamespaceTemplate) {
	uids, accounts := map[types.UID]bool{}, map[string]bool{}
	for i := range templates {
		uids[templates[i].UID] = true
		accounts[templates[i].Spec.ServiceAccountName] = true
	}
	a.Rollouts.retain(uids)
	a.Sources.retain(a.Programs.retain(uids), accounts)
}

// Forget forgets a Namespace that was deleted.
func (a *Applier) Forget(namespace *corev1.Namespace) {
	a.Objects.forget(namespace.Name)
	a.rounds.forget(namespace.UID)
	a.waiting.forget(namespace.UID)
	a.partial.forget(namespace.UID)
	a.Rollouts.forget(namespace.UID)
	if state, err := ParseState(namespace); err == nil {
		for _, template := range state {
			a.Grants.forget(template.Objects)
		}
	}
}

// applyTemplate applies one template, and adds the outcome to the result.
func (p *pass) applyTemplate(ctx context.Context, template *v1alpha1.NamespaceTemplate) error {
	recorded, isRecorded := p.state[template.Name]
	revision, wait, ok := p.Rollouts.choose(template.UID, p.namespace, p.isInitializing, recorded, p.Clock.Now())
	if !ok {
		return errNotSynced
	}
	p.result.retry(wait)
	position := len(p.result.Templates)
	p.result.Templates = append(p.result.Templates, Outcome{Template: template.Name, Revision: revision})
	if isRecorded && !p.isInitializing && template.Spec.Sync.Mode == v1alpha1.SyncOnce ||
		revision == "" && !p.isInitializing {
		p.keep(template.Name, position, recorded)
		return nil
	}
	want, err := p.desired(ctx, template, revision)
	if err != nil {
		p.keep(template.Name, position, recorded)
		err = p.fail(position, toProblem(template.Name, "", err), err)
		p.report(template, position)
		return err
	}
	next := Entry{Revision: recorded.Revision}
	for _, object := range want {
		applied, err := p.applyObject(ctx, template, position, object, recorded.find(keyOf(object.manifest)))
		if applied != nil {
			next.Objects = append(next.Objects, *applied)
		}
		if err != nil {
			if err := p.fail(position, toProblem(template.Name, object.name, err), err); err != nil {
				return err
			}
		}
	}
	p.finishTemplate(ctx, template, position, recorded, next, want)
	p.report(template, position)
	return nil
}

// report tells the rollout whether the revision could be applied.
func (p *pass) report(template *v1alpha1.NamespaceTemplate, position int) {
	outcome := p.result.Templates[position]
	hasFailed := slices.ContainsFunc(outcome.Problems, func(found Problem) bool { return !found.IsConflict() })
	if p.Rollouts.report(template.UID, p.namespace.UID, outcome.Revision, hasFailed) {
		p.result.Resumed = append(p.result.Resumed, template.Name)
	}
}

// fail adds a problem to the result. It returns errors that concern the whole pass.
func (p *pass) fail(position int, found Problem, err error) error {
	if errors.Is(err, errNotSynced) || errors.Is(err, context.Canceled) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	result := &p.result.Templates[position]
	result.Problems = append(result.Problems, found)
	return nil
}

// keep keeps the recorded state of a template that cannot be, or must not be, applied.
func (p *pass) keep(name string, position int, recorded Entry) {
	for _, object := range recorded.Objects {
		p.claims[object.key()] = position
	}
	p.count += len(recorded.Objects)
	if recorded.Revision != "" || len(recorded.Objects) > 0 {
		p.result.State[name] = recorded
	}
}

// finishTemplate deletes obsolete objects, and records the state, after all objects were applied. After
// a failure, the obsolete objects remain recorded.
func (p *pass) finishTemplate(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, position int, recorded, next Entry, want []desired,
) {
	result := &p.result.Templates[position]
	gone := obsolete(recorded, want, func(key objectKey) bool { _, ok := p.claims[key]; return ok })
	isComplete := !slices.ContainsFunc(result.Problems, func(found Problem) bool { return found.Reason != ReasonClaimed })
	switch {
	case !isComplete || len(want) == 0:
		next.Objects = append(next.Objects, gone...)
	case template.Spec.Removal.FromTemplate != v1alpha1.RemovalKeep:
		remaining, problems := p.prune(ctx, template, template.Name, gone)
		next.Objects = append(next.Objects, remaining...)
		result.Problems = append(result.Problems, problems...)
		isComplete = len(problems) == 0
	}
	if isComplete {
		next.Revision = result.Revision
	} else if next.Revision != result.Revision {
		next.Target = result.Revision
	}
	sortProblems(result.Problems)
	p.result.State[template.Name] = next
}

// desired renders a template for the Namespace. Objects that are created after the Namespace opens are
// omitted before.
func (p *pass) desired(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string,
) ([]desired, error) {
	program := p.Programs.latest(template)
	if revision != "" {
		var err error
		if program, err = p.Programs.get(ctx, template, revision); err != nil {
			return nil, err
		}
	}
	if len(program.errors) > 0 {
		return nil, problemf(ReasonInvalidTemplate, "the template is invalid: %w", program.errors.ToAggregate())
	}
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: p.SystemNamespace, Name: template.Spec.ServiceAccountName}
	switch err := p.ServiceAccounts.Get(ctx, key, account); {
	// The API server would allow the impersonation of a ServiceAccount that does not exist.
	case apierrors.IsNotFound(err):
		return nil, problemf(ReasonServiceAccountNotFound, "ServiceAccount %q does not exist in namespace %q",
			key.Name, key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("failed to get ServiceAccount %q: %w", key, err)
	}
	parameters, err := render.ResolveParameters(program.parameters, p.namespace)
	if err != nil {
		return nil, err
	}
	objects, err := program.program.Render(ctx, render.Input{
		Namespace: p.namespace, Parameters: parameters,
		RequestedBy: p.namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	})
	if err != nil {
		return nil, err
	}
	want := make([]desired, 0, len(objects))
	for _, object := range objects {
		if object.When == v1alpha1.TemplateAfterOpen && p.isInitializing {
			continue
		}
		rendered, err := p.complete(ctx, template, object)
		if err != nil {
			return nil, &render.Error{Object: object.Name, Reason: toProblem("", "", err).Reason, Err: err}
		}
		want = append(want, rendered)
	}
	if p.count += len(want); p.count > maxObjects {
		return nil, problemf(ReasonTooManyObjects,
			"the templates of the namespace contain more than %d objects", maxObjects)
	}
	return want, nil
}

// complete returns the manifest of a rendered object or a copy, and its hash.
func (p *pass) complete(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, object render.Object,
) (desired, error) {
	want := desired{name: object.Name, manifest: object.Manifest, when: object.When, isLocked: object.Locked}
	if object.Copy == nil {
		want.content = ObjectContent(object.Manifest, object.Locked)
		return want, nil
	}
	source, err := p.Sources.get(ctx, template.Spec.ServiceAccountName, *object.Copy)
	if err != nil {
		return desired{}, err
	}
	want.manifest, err = copyOf(source, p.namespace.Name)
	want.content = hashOf(source.GetUID(), source.GetResourceVersion(), object.Locked)
	return want, err
}

// applyObject applies one object if necessary. It returns its state, or the recorded state after an
// error.
func (p *pass) applyObject(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, position int, want desired, recorded *ObjectState,
) (*ObjectState, error) {
	key := keyOf(want.manifest)
	if other, ok := p.claims[key]; ok {
		return nil, p.claimed(other, template.Name, want)
	}
	p.claims[key] = position
	kind := want.manifest.GroupVersionKind()
	if _, err := p.Writer.mapping(kind); err != nil {
		return recorded, err
	}
	if isSynced, err := p.Objects.ensure(ctx, kind); err != nil || !isSynced {
		return recorded, errors.Join(err, notSyncedUnless(isSynced))
	}
	current, err := p.Objects.get(ctx, kind, p.namespace.Name, key.name)
	if err != nil {
		return recorded, err
	}
	applied := recorded
	switch decided := decide(template.Name, p.namespace.UID, want, recorded, current); decided {
	case actionNone:
	case actionWait:
		return recorded, problemf(ReasonTerminating, "the current %s %q is being deleted", kind.Kind, key.name)
	default:
		if applied, current, err = p.write(ctx, template, want, recorded, decided); err != nil {
			return recorded, err
		}
	}
	p.checkReadiness(ctx, template, position, want, current)
	return applied, nil
}

func notSyncedUnless(isSynced bool) error {
	if isSynced {
		return nil
	}
	return errNotSynced
}

// claimed reports on both templates that they contain the same object. The first by name is applied.
func (p *pass) claimed(other int, name string, want desired) error {
	winner := &p.result.Templates[other]
	describe := func(with, applied string) string {
		return fmt.Sprintf("template %q also contains %s %q; template %q is applied, because its name is first",
			with, want.manifest.GetKind(), want.manifest.GetName(), applied)
	}
	winner.Problems = append(winner.Problems, Problem{
		Template: winner.Template, Reason: ReasonClaimed, Message: describe(name, winner.Template),
	})
	return problemf(ReasonClaimed, "%s", describe(winner.Template, winner.Template))
}

// write applies an object, unless other clients keep changing it.
func (p *pass) write(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, want desired, recorded *ObjectState, decided action,
) (*ObjectState, *observed, error) {
	target := target{template: template, namespace: p.namespace, isLocked: want.isLocked}
	adopt := template.Spec.Sync.Adopt
	isForced := decided != actionCreate || adopt == v1alpha1.AdoptAlways
	round := roundKey{namespace: p.namespace.UID, object: keyOf(want.manifest)}
	if decided == actionRestore {
		delay, count := p.rounds.next(round, template.Spec.Sync.Conflicts, p.Clock.Now())
		if p.result.retry(delay); delay > 0 {
			return nil, nil, p.conflict(ctx, target, want, count)
		}
		p.rounds.record(round, p.Clock.Now())
	}
	if decided == actionCreate && adopt == v1alpha1.AdoptNever {
		if err := p.checkAbsent(ctx, target, want); err != nil {
			return nil, nil, err
		}
	}
	response, err := p.Writer.apply(ctx, target, want.manifest, metav1.PatchOptions{Force: &isForced})
	if err != nil {
		return nil, nil, err
	}
	current := p.Objects.record(want.manifest.GroupVersionKind(), p.namespace.Name, response)
	state := &ObjectState{
		Name: want.name, APIVersion: want.manifest.GetAPIVersion(), Kind: want.manifest.GetKind(),
		ObjectName: want.manifest.GetName(), UID: current.uid, Content: want.content, Fields: current.fields,
		IsAdopted: decided == actionCreate && hasOtherManagers(response, template.Name),
	}
	if recorded != nil && recorded.UID == current.uid {
		state.IsAdopted = recorded.IsAdopted
	}
	return state, current, nil
}

// hasOtherManagers reports whether an object that was applied for the first time existed before.
func hasOtherManagers(response *metav1.PartialObjectMetadata, template string) bool {
	return slices.ContainsFunc(response.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != FieldManager(template)
	})
}

// checkAbsent returns a problem if an object exists.
func (p *pass) checkAbsent(ctx context.Context, target target, want desired) error {
	options := metav1.PatchOptions{Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}}
	response, err := p.Writer.apply(ctx, target, want.manifest, options)
	if err == nil && hasOtherManagers(response, target.template.Name) {
		return problemf(ReasonAlreadyExists, "%s %q exists already, and the template does not adopt objects",
			want.manifest.GetKind(), want.manifest.GetName())
	}
	return err
}

// conflict describes which other clients change an object. The API server names them if the operator
// does not force the change.
func (p *pass) conflict(ctx context.Context, target target, want desired, count int) error {
	options := metav1.PatchOptions{Force: ptr.To(false), DryRun: []string{metav1.DryRunAll}}
	_, err := p.Writer.apply(ctx, target, want.manifest, options)
	detail := "another client deletes it"
	if apierrors.IsConflict(err) {
		detail = err.Error()
	}
	return problemf(ReasonConflict, "%s %q was restored %d times, and another client changes it again: %s",
		want.manifest.GetKind(), want.manifest.GetName(), count, detail)
}
