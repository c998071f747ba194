// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// The Events of initializers that are taken off a list.
const (
	eventTimedOut     = "InitializerTimedOut"
	eventDeregistered = "InitializerDeregistered"
)

// Overruler goes on without initializers that take longer than their configuration lets them,
// and without those that no configuration names any more. It opens gates and fails namespaces,
// so nothing is done by what a cache says: Namespace and configurations are read again from the
// API server before every write, and the write is refused if the Namespace has changed since.
type Overruler struct {
	client.Client
	// Live reads from the API server and not from a cache.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	memo     registrations
	absences absences
}

// Turn returns the condition that the limit of the first initializer is counted from, where it
// has to be written.
func (o *Overruler) Turn(
	ctx context.Context, namespace *corev1.Namespace, state initialization.State,
) (*corev1.NamespaceCondition, error) {
	if o == nil {
		return nil, nil
	}
	var limit *initialization.Limit
	if state.Stage == initialization.StagePending {
		registered, err := o.registered(ctx)
		if err != nil {
			return nil, err
		}
		limit = initialization.LimitOf(state, registered)
	}
	return initialization.TurnCondition(namespace, limit, metav1.NewTime(o.Clock.Now())), nil
}

// Overrule does what has to be done about a Namespace that waits. It returns when to look again.
func (o *Overruler) Overrule(
	ctx context.Context, namespace *corev1.Namespace, state initialization.State,
) (time.Duration, error) {
	if o == nil || state.Stage != initialization.StagePending {
		return 0, nil
	}
	registered, err := o.registered(ctx)
	if err != nil {
		return 0, err
	}
	now := o.Clock.Now()
	absent, after := o.absences.observe(state.Pending, initialization.Unregistered(state.Pending, registered), now)
	overruling := initialization.Overrule(namespace, state, registered, absent, now)
	if len(overruling.Dropped) == 0 && overruling.Expired == nil {
		return earlier(after, overruling.After), nil
	}
	retry, err := o.overruleLive(ctx, namespace, absent)
	if apierrors.IsConflict(err) {
		return conflictRetry, nil
	}
	return earlier(after, retry), nswrite.IgnoreStale(err)
}

// overruleLive decides again, by what the API server says now, and acts on it.
func (o *Overruler) overruleLive(
	ctx context.Context, seen *corev1.Namespace, absent []string,
) (time.Duration, error) {
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := o.Live.List(ctx, &configurations); err != nil {
		return 0, fmt.Errorf("listing the configurations: %w", err)
	}
	registered := initialization.Registered(configurations.Items)
	for _, name := range absent {
		if _, isBack := registered[name]; isBack {
			o.absences.forget(name)
		}
	}
	live := &corev1.Namespace{}
	if err := o.Live.Get(ctx, client.ObjectKeyFromObject(seen), live); err != nil {
		return 0, fmt.Errorf("reading namespace %q: %w", seen.Name, err)
	}
	if live.UID != seen.UID {
		return 0, nil // The watch event of the new Namespace is still to come.
	}
	var after time.Duration
	err := nswrite.RetryOnConflict(ctx, o.Live, live, func(live *corev1.Namespace, resourceVersion string) error {
		state := initialization.Observe(live)
		if state.Repair != nil {
			return nil // The repair comes first.
		}
		overruling := initialization.Overrule(live, state, registered, absent, o.Clock.Now())
		after = overruling.After
		if names, reason, message := overruling.Skipped(); len(names) > 0 {
			return o.skip(ctx, live, resourceVersion, names, reason, message)
		}
		if overruling.Expired != nil {
			return o.fail(ctx, live, resourceVersion, overruling.Expired)
		}
		return nil
	})
	return after, err
}

// skip removes names from the pending list and reports that in their conditions, in one write: no
// client sees a shorter list without the conditions.
func (o *Overruler) skip(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string, names []string, reason, message string,
) error {
	before := namespace.DeepCopy()
	// An empty list opens the namespace. An absent one would be restored by the API server.
	left := initialization.Without(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], names)
	conditions := initialization.SkippedConditions(names, reason, message, metav1.NewTime(o.Clock.Now()))
	err := o.write(ctx, namespace, resourceVersion, v1alpha1.AnnotationPendingInitializers, left, conditions)
	if err != nil {
		return fmt.Errorf("failed to remove initializers from the pending list of namespace %q: %w", namespace.Name, err)
	}
	metrics.InitializersSkippedTotal.WithLabelValues(reason).Add(float64(len(names)))
	log.FromContext(ctx).Info("Went on without initializers", "uid", namespace.UID, "initializers", names,
		"reason", reason, "pending", left)
	eventReason := eventTimedOut
	if reason == v1alpha1.ReasonDeregistered {
		eventReason = eventDeregistered
	}
	// One Event for all of them: those that are alike but for the note would be taken for one.
	nswrite.RecordEvent(o.Recorder, before, corev1.EventTypeWarning, eventReason, actionInitialize,
		fmt.Sprintf("%s %s %s", initialization.Enumerate(names), initialization.WasOrWere(names), message))
	return nil
}

// fail sets the result that the initializer itself would set. The next reconcile handles it.
func (o *Overruler) fail(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string, limit *initialization.Limit,
) error {
	result, err := json.Marshal(limit.Result())
	if err != nil {
		return fmt.Errorf("failed to encode the result of namespace %q: %w", namespace.Name, err)
	}
	err = o.write(ctx, namespace, resourceVersion, v1alpha1.AnnotationInitializationResult, string(result), nil)
	if err != nil {
		return fmt.Errorf("failed to set the result of namespace %q: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("Failed an initialization, since its time was over", "uid", namespace.UID,
		"initializer", limit.Initializer, "timeout", limit.Timeout.String(), "configuration", limit.Configuration)
	return nil
}

// write changes an annotation and conditions of a Namespace that is still the one that was read.
// A write of the status may change annotations as well, and admission checks it like any other.
func (o *Overruler) write(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion, annotation, value string,
	conditions []corev1.NamespaceCondition,
) error {
	metadata := nswrite.Preconditions(namespace, resourceVersion)
	metadata["annotations"] = map[string]any{annotation: value}
	return nswrite.Patch(ctx, o.Client, namespace, map[string]any{
		"metadata": metadata, "status": map[string]any{"conditions": conditions},
	})
}

// handler has all Namespaces that wait looked at when a configuration changes, and takes notice
// of each initializer that a configuration names, however short that is.
func (o *Overruler) handler() handler.EventHandler {
	observe := func(ctx context.Context, object client.Object, isGone bool, queue requestQueue) {
		configuration, isConfiguration := object.(*v1alpha1.NamespaceInitializerConfiguration)
		if !isConfiguration {
			return
		}
		if !isGone {
			for _, initializer := range configuration.Initializers {
				o.absences.forget(initializer.Name)
			}
		}
		var waiting corev1.NamespaceList
		err := o.List(ctx, &waiting, client.HasLabels{v1alpha1.LabelInitializing}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "Could not list the namespaces that wait for initializers")
		}
		for i := range waiting.Items {
			queue.Add(requestFor(waiting.Items[i].Name))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			observe(ctx, e.Object, false, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			observe(ctx, e.ObjectNew, false, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
			observe(ctx, e.Object, true, queue)
		},
	}
}

// registered returns what the configurations say, by the cache. It is asked for each Namespace
// that waits, and costs much where there are many initializers with large selectors, so it is
// kept until a configuration changes.
func (o *Overruler) registered(ctx context.Context) (map[string]initialization.Registration, error) {
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := o.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the configurations: %w", err)
	}
	return o.memo.get(configurations.Items), nil
}

// registrations are what configurations say, for as long as they stay the same.
type registrations struct {
	lock   sync.Mutex
	of     string
	byName map[string]initialization.Registration
}

func (r *registrations) get(
	configurations []v1alpha1.NamespaceInitializerConfiguration,
) map[string]initialization.Registration {
	of := generations(configurations)
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.byName == nil || r.of != of {
		r.of, r.byName = of, initialization.Registered(configurations)
	}
	return r.byName
}

// absences remember since when initializers that Namespaces wait for have been missing from all
// configurations, without interruption, as this process has seen it. After a restart that
// begins anew.
type absences struct {
	lock  sync.Mutex
	since map[string]time.Time
}

// observe returns which of the missing initializers have been missing for long enough, and
// when the next one will have been.
func (a *absences) observe(names, missing []string, now time.Time) (absent []string, after time.Duration) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	for _, name := range names {
		if !slices.Contains(missing, name) {
			delete(a.since, name)
			continue
		}
		since, isKnown := a.since[name]
		if !isKnown {
			since = now
			a.since[name] = now
		}
		left := since.Add(initialization.DeregistrationDelay).Sub(now)
		if left > 0 {
			after = earlier(after, left)
			continue
		}
		absent = append(absent, name)
	}
	return absent, after
}

func (a *absences) forget(name string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.since, name)
}
