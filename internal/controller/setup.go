// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// syncTimeout is how long the readiness probe waits for the caches.
const syncTimeout = 500 * time.Millisecond

// Options configure the reconcilers.
type Options struct {
	// SystemNamespace is the namespace that the operator runs in.
	SystemNamespace string
	// NamespaceWorkers is the number of Namespaces worked on at a time.
	NamespaceWorkers int
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
}

// NewScheme returns a scheme with all types that the manager works with.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// CacheOptions keep the manager's memory small: no managedFields, and of the
// cluster's admission policies only our own.
func CacheOptions() cache.Options {
	ours, err := labels.NewRequirement(v1alpha1.LabelPolicy, selection.Exists, nil)
	utilruntime.Must(err)
	policies := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&admissionv1.MutatingAdmissionPolicy{}:          policies,
			&admissionv1.MutatingAdmissionPolicyBinding{}:   policies,
			&admissionv1.ValidatingAdmissionPolicy{}:        policies,
			&admissionv1.ValidatingAdmissionPolicyBinding{}: policies,
		},
	}
}

// Setup adds all reconcilers and the probes to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if err := (&ConfigurationReconciler{
		Client:          mgr.GetClient(),
		Admission:       &Admission{Client: mgr.GetClient(), Clock: options.Clock},
		SystemNamespace: options.SystemNamespace,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of configurations: %w", err)
	}
	if err := (&NamespaceReconciler{
		Client:          mgr.GetClient(),
		Recorder:        mgr.GetEventRecorder(reportingController),
		Clock:           options.Clock,
		SystemNamespace: options.SystemNamespace,
		Workers:         options.NamespaceWorkers,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of namespaces: %w", err)
	}
	return addProbes(ctx, mgr)
}

// addProbes makes the manager ready once its caches hold what the reconcilers read.
// The informers are asked for here and not by the reconcilers, which only the leader
// runs: a standby is ready with caches that are as warm.
func addProbes(ctx context.Context, mgr ctrl.Manager) error {
	for _, object := range []client.Object{
		&corev1.Namespace{}, &v1alpha1.NamespaceInitializerConfiguration{}, &v1alpha1.NamespaceInitializerSet{},
		&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{},
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("starting to watch %T: %w", object, err)
		}
	}
	synced := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not synced with the API server yet")
		}
		return nil
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced))
}
