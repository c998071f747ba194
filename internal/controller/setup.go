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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// syncTimeout is how long the readiness probe waits for the caches.
const syncTimeout = 500 * time.Millisecond

// Options configure the reconcilers.
type Options struct {
	// Server is what the API server can do, as Preflight has found out.
	Server Server
	// Controllers are those that run; all that are on by default if nil.
	Controllers Controllers
	// SystemNamespace is the namespace that the operator is installed in.
	SystemNamespace string
	// OwnNamespace is the namespace that this very program runs in; empty if it runs
	// outside of the cluster.
	OwnNamespace string
	// FinalizerToken is what finalization answers for; "kubernetes" if empty.
	FinalizerToken corev1.FinalizerName
	// SettlingTime is how long after its deletion a namespace may be called empty.
	SettlingTime finalization.SettlingTime
	// NamespaceWorkers is the number of initializing Namespaces worked on at a time.
	NamespaceWorkers int
	// FinalizationWorkers is the number of terminating Namespaces worked on at a time.
	FinalizationWorkers int
	// DiagnosisPatience is how long a Namespace may stand still before it is diagnosed;
	// DefaultPatience if zero.
	DiagnosisPatience time.Duration
	// DiagnosisWorkers is the number of Namespaces diagnosed at a time.
	DiagnosisWorkers int
	// IsExpiryDryRun keeps expiry from deleting anything: it only says what it would delete.
	IsExpiryDryRun bool
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
}

// CacheOptions keep the manager's memory small: no managedFields, and of the
// cluster's admission policies only our own.
func CacheOptions(server Server, controllers Controllers) cache.Options {
	ours, err := labels.NewRequirement(v1alpha1.LabelPolicy, selection.Exists, nil)
	utilruntime.Must(err)
	policies := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	options := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// Of the Leases only those by which API servers tell that they live.
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					LabelSelector: labels.SelectorFromSet(labels.Set{
						finalization.APIServerLeaseLabel: finalization.APIServerLeaseValue,
					}),
				}},
			},
		},
	}
	// A kind that is not served would keep the manager from starting, and nobody has asked the
	// API server about these where initialization does not run.
	switch {
	case controllers.Runs(Initialization):
		for _, object := range policyObjects(server) {
			options.ByObject[object] = policies
		}
	case controllers.Runs(Expiry):
		for _, object := range policyObjects(Server{LacksMutatingPolicies: true}) {
			options.ByObject[object] = policies
		}
	}
	return options
}

// policyObjects are the kinds of policies and bindings that the API server serves.
func policyObjects(server Server) []client.Object {
	objects := []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
	if !server.LacksMutatingPolicies {
		objects = append(objects, &admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{})
	}
	return objects
}

// Setup adds the chosen reconcilers and the probes to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.FinalizerToken == "" {
		options.FinalizerToken = corev1.FinalizerKubernetes
	}
	if options.DiagnosisPatience == 0 {
		options.DiagnosisPatience = DefaultPatience
	}
	informed := []client.Object{&corev1.Namespace{}}
	if options.Controllers.Runs(Initialization) {
		if err := setupInitialization(mgr, options); err != nil {
			return err
		}
		informed = append(informed, &v1alpha1.NamespaceInitializerConfiguration{}, &v1alpha1.NamespaceInitializerSet{})
		informed = append(informed, policyObjects(options.Server)...)
	}
	if options.Controllers.Runs(Finalization) {
		if err := setupFinalization(mgr, options); err != nil {
			return err
		}
		informed = append(informed, &coordinationv1.Lease{}, customResourceDefinitions(), apiServices())
	}
	if options.Controllers.Runs(Diagnosis) {
		if err := setupDiagnosis(mgr, options); err != nil {
			return err
		}
	}
	if err := mgr.Add(metrics.CollectNamespaces(metrics.NamespaceSource{
		Reader: mgr.GetClient(), Finalizer: options.FinalizerToken,
		HasInitialization: options.Controllers.Runs(Initialization), HasFinalization: options.Controllers.Runs(Finalization),
	})); err != nil {
		return fmt.Errorf("setting up the census of namespaces: %w", err)
	}
	if options.Controllers.Runs(Expiry) {
		if err := setupExpiry(mgr, options); err != nil {
			return err
		}
		informed = append(informed,
			&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{})
	}
	return addProbes(ctx, mgr, informed)
}

func setupInitialization(mgr ctrl.Manager, options Options) error {
	admission := &Admission{Client: mgr.GetClient(), Clock: options.Clock, Server: options.Server}
	if err := (&ConfigurationReconciler{
		Client:          mgr.GetClient(),
		Admission:       admission,
		Service:         &Service{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.Clock},
		SystemNamespace: options.SystemNamespace,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of configurations: %w", err)
	}
	if err := (&NamespaceReconciler{
		Client:          mgr.GetClient(),
		Live:            mgr.GetAPIReader(),
		Recorder:        mgr.GetEventRecorder(reportingController),
		Clock:           options.Clock,
		SystemNamespace: options.SystemNamespace,
		Workers:         options.NamespaceWorkers,

		ProgressInterval: progressInterval,

		Injector: &Injector{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Admission: admission,
			Recorder: mgr.GetEventRecorder(reportingController), Clock: options.Clock,
			SystemNamespace: options.SystemNamespace,
		},
		Overruler: &Overruler{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
			Recorder: mgr.GetEventRecorder(reportingController), Clock: options.Clock,
		},
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of initialization: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("creating a discovery client: %w", err)
	}
	watch := &serverWatch{Discovery: discoveryClient, Server: options.Server, Interval: serverWatchInterval}
	if err := mgr.Add(watch); err != nil {
		return fmt.Errorf("adding the watch of what the API server can do: %w", err)
	}
	return nil
}

func setupFinalization(mgr ctrl.Manager, options Options) error {
	restConfig := rest.CopyConfig(mgr.GetConfig())
	// Deleting everything means to use deprecated types too: each request would be warned of.
	restConfig.WarningHandler = rest.NoWarnings{}
	httpClient := *mgr.GetHTTPClient()
	httpClient.Transport = finalization.NotePostponements(httpClient.Transport)
	// Aggregated API servers answer lists and discovery.
	limited := httpClient
	limited.Transport = metadataclient.LimitResponses(httpClient.Transport)
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(restConfig, &limited)
	if err != nil {
		return fmt.Errorf("creating a discovery client: %w", err)
	}
	content, err := metadata.NewForConfigAndClient(metadata.ConfigFor(restConfig), &limited)
	if err != nil {
		return fmt.Errorf("creating a metadata client: %w", err)
	}
	live, err := client.New(restConfig, client.Options{
		HTTPClient: &httpClient, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("creating a client without a cache: %w", err)
	}
	catalog := finalization.NewCatalog(discoveryClient, options.Clock)
	reconciler := &FinalizationReconciler{
		Client:       mgr.GetClient(),
		Live:         live,
		Recorder:     mgr.GetEventRecorder(reportingController),
		Clock:        options.Clock,
		Token:        options.FinalizerToken,
		SettlingTime: options.SettlingTime,
		OwnNamespace: options.OwnNamespace,
		Workers:      options.FinalizationWorkers,
		Catalog:      catalog,
		Deleter: finalization.NewDeleter(catalog, content, liveNamespaces{live},
			options.FinalizerToken, options.Clock, isAggregated(mgr.GetClient())).WithMeter(metrics.FinalizationRecorder{}),
	}
	reconciler.Watches = finalization.NewWatches(content, reconciler.deletions.wake,
		mgr.GetLogger().WithName("watches"))
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of finalization: %w", err)
	}
	return nil
}

func setupDiagnosis(mgr ctrl.Manager, options Options) error {
	budget := newRequestBudget()
	diagnoser, err := newClusterDiagnoser(mgr.GetConfig(), options.DiagnosisPatience, budget)
	if err != nil {
		return err
	}
	if err := (&DiagnosisReconciler{
		Client:    mgr.GetClient(),
		Diagnoser: diagnoser,
		Recorder:  mgr.GetEventRecorder(reportingController),
		Clock:     options.Clock,
		Patience:  options.DiagnosisPatience,
		Workers:   options.DiagnosisWorkers,
		Budget:    budget,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of diagnosis: %w", err)
	}
	return nil
}

func setupExpiry(mgr ctrl.Manager, options Options) error {
	httpClient := *mgr.GetHTTPClient()
	httpClient.Transport = servertime.NewTransport(httpClient.Transport)
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: &httpClient, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("creating a client without a cache: %w", err)
	}
	if err := (&ExpiryReconciler{
		Client:          mgr.GetClient(),
		Live:            live,
		Recorder:        mgr.GetEventRecorder(reportingController),
		Clock:           options.Clock,
		SystemNamespace: options.SystemNamespace,
		OwnNamespace:    options.OwnNamespace,
		IsDryRun:        options.IsExpiryDryRun,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the reconciler of expiry: %w", err)
	}
	return nil
}

// addProbes makes the manager ready once its caches hold what the reconcilers read.
// The informers are asked for here and not by the reconcilers, which only the leader
// runs: a standby is ready with caches that are as warm.
func addProbes(ctx context.Context, mgr ctrl.Manager, informed []client.Object) error {
	for _, object := range informed {
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
