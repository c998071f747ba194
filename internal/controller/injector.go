// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
)

// Injector gives new Namespaces their list where the API server has no policy that does.
type Injector struct {
	client.Client
	// Live reads the set from the API server: the cache may not have what was in force
	// when a Namespace was created that it has already.
	Live client.Reader
	// Admission knows whether it is the operator's turn.
	Admission       *Admission
	Recorder        events.EventRecorder
	Clock           clock.PassiveClock
	SystemNamespace string
}

// Inject gives a Namespace that the operator has not seen before its list, if it has to
// have one. It returns when to look again if the Namespace should have got it and could not:
// nothing else is to be done about it until then. Zero is no reason to look again.
func (i *Injector) Inject(ctx context.Context, namespace *corev1.Namespace) (time.Duration, error) {
	if i == nil || initialization.IsSeen(namespace) {
		return 0, nil
	}
	installed, err := i.Admission.policies(ctx)
	if err != nil || !i.Admission.operatorInjects(installed) {
		return 0, err
	}
	var set v1alpha1.NamespaceInitializerSet
	err = i.Live.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, &set)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	if len(initialization.ComputeInjection(namespace, &set, i.SystemNamespace)) == 0 {
		return 0, nil
	}
	if why := i.Admission.whyNotInject(installed); why != "" {
		// A list that nobody protects would only look like one.
		i.warn(namespace, why)
		return settleRetry, nil
	}
	return 0, nswrite.RetryOnConflict(ctx, i.Live, namespace, func(namespace *corev1.Namespace, resourceVersion string) error {
		initializers := initialization.ComputeInjection(namespace, &set, i.SystemNamespace)
		if len(initializers) == 0 {
			return nil
		}
		return i.write(ctx, namespace, resourceVersion, initializers)
	})
}

// warn says on a Namespace that it has no list and should have one.
func (i *Injector) warn(namespace *corev1.Namespace, why string) {
	nswrite.RecordEvent(i.Recorder, namespace, corev1.EventTypeWarning, "NotInitialized", actionInitialize,
		"The namespace is open and should not be, because the operator cannot give it its initializers yet: "+why)
}

func (i *Injector) write(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string,
	initializers []v1alpha1.EffectiveInitializer,
) error {
	base := namespace.DeepCopy()
	now := i.Clock.Now()
	hasTokens := len(initialization.MissingFinalizers(namespace, initializers)) > 0
	initialization.Inject(namespace, initializers, now)
	var err error
	if hasTokens {
		// A PUT to /finalize writes labels and annotations as well, so the pending list and the
		// namespace finalizers are added in one request. It always carries the UID and the resource
		// version, since it replaces the changes of other clients.
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
		return fmt.Errorf("giving namespace %q its initializers: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("Gave a new namespace its initializers", "initializers",
		initialization.Names(initializers), "openFor", now.Sub(namespace.CreationTimestamp.Time))
	return nil
}

// patch writes the difference between two states of a Namespace.
func (i *Injector) patch(ctx context.Context, namespace, base *corev1.Namespace, resourceVersion string) error {
	// Without a UID in the base, the patch contains the UID.
	base = base.DeepCopy()
	base.UID = ""
	patch := client.MergeFrom(base)
	if resourceVersion != "" {
		patch = client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	}
	return i.Patch(ctx, namespace, patch, client.FieldOwner(nswrite.FieldOwner))
}

// operatorInjects tells whether it is the operator that gives new Namespaces their list:
// where the API server cannot, and where it could but has only been given the policies of
// config/compat, as after an upgrade of the API server.
func (a *Admission) operatorInjects(installed installedPolicies) bool {
	return a.Server.LacksMutatingPolicies || installed.isForOperator && !installed.hasMutating()
}

// whyNotInject returns why the operator must not give a Namespace its list, or "".
func (a *Admission) whyNotInject(installed installedPolicies) string {
	if missing := installed.missing(validatingPolicies()); len(missing) > 0 {
		return fmt.Sprintf("the API server lacks %s; run: %s", strings.Join(missing, ", "), compatCommand)
	}
	if !installed.isForOperator {
		return "policy guard is the one for API servers that serve MutatingAdmissionPolicy v1, and this one does not; run: " +
			compatCommand
	}
	return ""
}

// errNoTime says that the API server did not tell its time.
var errNoTime = errors.New("the API server returned a new namespace without creationTimestamp")
