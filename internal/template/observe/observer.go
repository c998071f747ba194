// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Observer reads what the decision about a Namespace depends on.
type Observer struct {
	Kinds       *Kinds
	Objects     *Objects
	Sources     *Sources
	Grants      *Grants
	Programs    *Programs
	Writes      *Writes
	Rollouts    *Rollouts
	Limits      *Limits
	Permissions *Permissions
	// ObjectOf returns what a preview knows about a rendered object, instead of caches and watches; nil in the operator.
	ObjectOf func(in *plan.Snapshot, rendered render.Object) plan.ObjectSnapshot
	// ServiceAccounts reads the ServiceAccounts in the system namespace.
	ServiceAccounts client.Reader
	SystemNamespace string
	// FullPassInterval is the time between two full passes over a Namespace.
	FullPassInterval time.Duration
	Clock            clock.PassiveClock
	ServerClock      *servertime.Clock

	start sync.Once
	// started is when the first observation began.
	started time.Time
}

// Observe reads what the decision about a Namespace depends on: which templates apply, their revisions, and what is
// known about their objects. It starts the watches that this needs. It returns an error if nothing can be decided.
func (o *Observer) Observe(
	ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) (plan.Snapshot, error) {
	o.start.Do(func() { o.started = o.ServerClock.Now() })
	state, err := o.Writes.State(namespace)
	if err != nil {
		return plan.Snapshot{}, err
	}
	snapshot := plan.Snapshot{
		Namespace: namespace, State: state, Templates: templates, Now: o.Clock.Now(),
		ServerNow: o.ServerClock.Now(), Start: o.started, FullPassInterval: o.FullPassInterval,
	}
	if template.AwaitsTemplates(namespace) {
		if snapshot.Refusal, err = o.Limits.admit(ctx, namespace, templates); err != nil || snapshot.Refusal != nil {
			return snapshot, err
		}
	}
	for _, tmpl := range o.applicable(templates, namespace, state) {
		snapshot.Applicable = append(snapshot.Applicable, o.observeTemplate(ctx, &snapshot, tmpl))
	}
	return snapshot, ctx.Err()
}

// applicable returns the templates to apply to a Namespace, sorted by name. A template that does not fit into the set
// is not added to a Namespace, because the admission policies do not check who selects it.
func (o *Observer) applicable(
	templates []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state template.Record,
) []*v1alpha1.NamespaceTemplate {
	// Most passes add no template.
	omitted := sync.OnceValue(func() sets.Set[string] { return o.Programs.Omitted(templates) })
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

// observeTemplate reads the revision of a template that the Namespace gets, and its objects.
func (o *Observer) observeTemplate(
	ctx context.Context, in *plan.Snapshot, tmpl *v1alpha1.NamespaceTemplate,
) plan.TemplateSnapshot {
	latest, recorded := o.Programs.latest(tmpl), in.State[tmpl.Name]
	s := plan.TemplateSnapshot{Template: tmpl, Latest: latest.revision, LatestContents: latest.contents}
	isInitializing := template.AwaitsTemplates(in.Namespace)
	s.Choice, s.Unknown = o.Rollouts.choose(in.Namespace, tmpl, recorded)
	if s.Unknown != nil || plan.MustKeep(tmpl, s.Choice, recorded, isInitializing) {
		return s
	}
	program := latest
	if s.Choice.Revision != "" {
		if program, s.Unknown = o.Programs.get(ctx, tmpl, s.Choice.Revision); s.Unknown != nil {
			return s
		}
	}
	if program.account != tmpl.Spec.ServiceAccountName {
		earlier := *tmpl
		earlier.Spec.ServiceAccountName = program.account
		s.Template = &earlier
	}
	rendered, err := o.render(ctx, program, in.Namespace)
	if err != nil {
		s.Unknown = err
		return s
	}
	s.Contents, s.Objects = program.contents, plan.MetadataOf(program.labels, program.annotations, in.Namespace)
	for _, object := range rendered {
		switch {
		case isInitializing && object.When == v1alpha1.NamespaceStateInitialized:
			s.IsPartial = true
		case o.ObjectOf != nil:
			s.Objects = append(s.Objects, o.ObjectOf(in, object))
		default:
			s.Objects = append(s.Objects, o.observeObject(ctx, in.Namespace, s.Template, object))
		}
	}
	return s
}

// render returns the objects of a revision of a template.
func (o *Observer) render(
	ctx context.Context, program *compiled, namespace *corev1.Namespace,
) ([]render.Object, error) {
	if len(program.errors) > 0 {
		return nil, template.Problemf(v1alpha1.ReasonInvalidTemplate,
			"the template is invalid: %w", program.errors.ToAggregate())
	}
	key := client.ObjectKey{Namespace: o.SystemNamespace, Name: program.account}
	switch err := o.ServiceAccounts.Get(ctx, key, &corev1.ServiceAccount{}); {
	// The API server would allow the impersonation of a ServiceAccount that does not exist.
	case apierrors.IsNotFound(err):
		return nil, template.Problemf(v1alpha1.ReasonServiceAccountNotFound,
			"ServiceAccount %q does not exist in namespace %q", key.Name, key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("failed to get ServiceAccount %q: %w", key, err)
	}
	return program.render(ctx, namespace)
}

// observeObject reads the source of an object that is a copy, and the metadata of the object in the Namespace. It
// permits and starts the watch of its kind if necessary.
func (o *Observer) observeObject(
	ctx context.Context, namespace *corev1.Namespace, tmpl *v1alpha1.NamespaceTemplate, rendered render.Object,
) plan.ObjectSnapshot {
	object := plan.NewObject(rendered)
	if rendered.IsCopy {
		if object.Unknown = o.Sources.copy(ctx, &object); object.Unknown != nil {
			return object
		}
	}
	kind, name := object.Manifest.GroupVersionKind(), object.Manifest.GetName()
	resource, err := o.Kinds.ResourceOf(kind)
	if err == nil {
		err = o.Permissions.Permit(ctx, tmpl, "patch", resource.GroupResource(), namespace.Name, name)
	}
	if err == nil {
		err = o.Objects.ensure(ctx, kind)
	}
	if err == nil {
		object.Current, err = o.Objects.get(kind, namespace, name)
	}
	object.Unknown = err
	if err == nil && !template.AwaitsTemplates(namespace) {
		object.MissingRole = o.Grants.findRole(ctx, namespace, object.Manifest)
	}
	return object
}

// Retain forgets what is known about templates that no longer exist, and stops the watches of kinds that
// no template contains or that the API server does not serve any more. It reports whether watches that no
// template needs are still running; they are stopped after WatchRetention.
func (o *Observer) Retain(ctx context.Context, templates []v1alpha1.NamespaceTemplate) bool {
	uids, kinds := map[types.UID]bool{}, map[schema.GroupVersionKind]bool{}
	for i := range templates {
		uids[templates[i].UID] = true
		for _, kind := range o.Programs.kinds(&templates[i], o.Rollouts.Get(templates[i].UID).Current) {
			kinds[kind] = true
		}
	}
	o.Rollouts.retain(uids)
	o.Programs.retain(uids)
	return o.Objects.retain(ctx, kinds, o.Kinds.isServed)
}

// Unserved returns the kinds in a template that the API server does not serve, sorted.
func (o *Observer) Unserved(tmpl *v1alpha1.NamespaceTemplate) []string {
	var unserved []string
	for _, kind := range o.Programs.latest(tmpl).kinds {
		if !o.Kinds.isServed(kind) {
			unserved = append(unserved, kind.String())
		}
	}
	return unserved
}

// MissingSource returns why a source of the copies in the spec of a template, or the namespace of the sources, does not
// exist; "" if all exist or the operator cannot read them.
func (o *Observer) MissingSource(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate) string {
	for _, source := range o.Programs.latest(tmpl).copies {
		var found *template.ReasonError
		if _, err := o.Sources.get(ctx, source); errors.As(err, &found) && found.Reason == v1alpha1.ReasonSourceNotFound {
			return found.Error()
		}
	}
	return ""
}
