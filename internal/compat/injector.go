// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// actionInitialize is the action of Events.
const actionInitialize = "Initialize"

// Injector adds the pending list to new Namespaces if the API server does not add it.
type Injector struct {
	client.Client
	// Live reads the set from the API server. The cached set might be older than a Namespace that
	// is already in the cache.
	Live            client.Reader
	Verifier        *Verifier
	Recorder        events.EventRecorder
	Clock           clock.PassiveClock
	SystemNamespace string
}

// Inject adds the pending list to a Namespace that the operator has not reconciled before, if the
// Namespace needs a list. If Inject cannot add the list, it returns the time until the retry, and
// the caller must not reconcile the Namespace before the retry. Inject returns 0 if no retry is
// needed.
func (i *Injector) Inject(ctx context.Context, namespace *corev1.Namespace) (time.Duration, error) {
	if !isCandidate(namespace, i.SystemNamespace) {
		return 0, nil
	}
	installed, err := i.Verifier.list(ctx)
	if err != nil || !i.Verifier.operatorInjects(installed) {
		return 0, err
	}
	var set v1alpha1.NamespaceInitializerSet
	err = i.Live.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, &set)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	if len(computeInjection(namespace, &set, i.SystemNamespace)) == 0 {
		return 0, nil
	}
	if _, message := checkInstalled(installed); message != "" {
		i.warn(namespace, message)
		return policyverifier.RetryInterval, nil
	}
	write := func(namespace *corev1.Namespace, resourceVersion string) error {
		initializers := computeInjection(namespace, &set, i.SystemNamespace)
		if len(initializers) == 0 {
			return nil
		}
		return i.write(ctx, namespace, resourceVersion, &set, initializers)
	}
	return 0, nswrite.RetryOnConflict(ctx, i.Live, namespace, write)
}

// warn records an Event about a Namespace that should have a pending list.
func (i *Injector) warn(namespace *corev1.Namespace, reason string) {
	nswrite.RecordEvent(i.Recorder, namespace, corev1.EventTypeWarning, eventNotInitialized, actionInitialize,
		noteNotInitialized+reason)
}

func (i *Injector) write(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string,
	set *v1alpha1.NamespaceInitializerSet, initializers []v1alpha1.EffectiveInitializer,
) error {
	base := namespace.DeepCopy()
	now := i.Clock.Now()
	needsFinalizers := len(initialization.MissingFinalizers(namespace, initializers)) > 0
	inject(namespace, set, initializers, now)
	var err error
	if needsFinalizers {
		// A PUT to /finalize also writes labels and annotations, so one request adds the pending list
		// and the namespace finalizers. The request always contains the UID and the resource version,
		// because it would otherwise overwrite the changes of other clients.
		err = i.SubResource("finalize").Update(ctx, namespace, client.FieldOwner(nswrite.FieldOwner))
	} else {
		err = i.patch(ctx, namespace, base, resourceVersion)
	}
	if nswrite.IsUIDMismatch(err) {
		err = apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, err)
	}
	if err != nil {
		if nswrite.IgnoreStale(err) != nil {
			i.warn(base, err.Error())
		}
		return fmt.Errorf("failed to add initializers to namespace %q: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("Added initializers to a new namespace", "initializers",
		initialization.Names(initializers), "duration", now.Sub(namespace.CreationTimestamp.Time))
	return nil
}

// patch writes the changes to a Namespace as a merge patch.
func (i *Injector) patch(ctx context.Context, namespace, base *corev1.Namespace, resourceVersion string) error {
	// The UID is removed from the base, so the patch contains the UID as a precondition.
	base = base.DeepCopy()
	base.UID = ""
	patch := client.MergeFrom(base)
	if resourceVersion != "" {
		patch = client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	}
	return i.Patch(ctx, namespace, patch, client.FieldOwner(nswrite.FieldOwner))
}
