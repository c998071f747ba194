// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/inject"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/diagnoser"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/parts"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
)

// reportingController is the reporting controller of Events.
const reportingController = "nslifecycle"

// features are the parts of the operator, in the order in which they are added, by the controller that selects them.
var features = []struct {
	controller string
	add        func(context.Context, *shared) error
}{
	{Admission, addAdmission},
	{Initialization, addInitialization},
	{Templates, addTemplates},
	{Finalization, addFinalization},
	{Diagnosis, addDiagnosis},
}

// shared is what features have in common.
type shared struct {
	ctrl.Manager
	Options
	// self is the user name of the operator.
	self string
	// system contains the ServiceAccounts and the revisions of templates in the system namespace; nil if no templates are
	// applied.
	system    cache.Cache
	revisions *observe.Revisions
	// server answers webhooks; nil if this manager serves none.
	server *webhooks.Server
	// cached are the objects that the readiness waits for, and ready are its other checks.
	cached []client.Object
	ready  map[string]healthz.Checker
}

// Setup adds the selected features and the probes to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	options.setDefaults()
	s := &shared{Manager: mgr, Options: options, ready: map[string]healthz.Checker{}}
	if err := s.complete(ctx); err != nil {
		return err
	}
	for _, feature := range features {
		if !options.Controllers.Runs(feature.controller) {
			continue
		}
		if err := feature.add(ctx, s); err != nil {
			return fmt.Errorf("failed to set up the controllers of %s: %w", feature.controller, err)
		}
	}
	if s.server != nil {
		if err := inject.Register(ctx, mgr.GetCache(), s.server); err != nil {
			return err
		}
	}
	if err := addMetrics(ctx, mgr, options.Metrics); err != nil {
		return err
	}
	return addProbes(ctx, mgr, options.ProbeAddress, s.cached, s.ready)
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=selfsubjectreviews,verbs=create

// complete creates what the selected features share.
func (s *shared) complete(ctx context.Context) error {
	runs := s.Controllers.Runs
	if s.Controllers.readNamespaces() {
		s.cached = append(s.cached, &corev1.Namespace{})
		if err := s.Add(metrics.CollectNamespaces(metrics.NamespaceSource{
			Reader: s.GetClient(), Finalizer: s.NamespaceFinalizer, HasInitialization: runs(Initialization),
			HasFinalization: runs(Finalization), HasTemplates: runs(Templates),
		})); err != nil {
			return fmt.Errorf("failed to add the collector of namespace metrics: %w", err)
		}
	}
	if runs(Initialization) || runs(Finalization) {
		review := &authenticationv1.SelfSubjectReview{}
		if err := s.GetClient().Create(ctx, review); err != nil {
			return fmt.Errorf("failed to determine the user name of the operator: %w", err)
		}
		s.self = review.Status.UserInfo.Username
	}
	if runs(Templates) {
		var err error
		if s.system, err = s.addCache(observe.SystemCacheOptions(s.SystemNamespace)); err != nil {
			return err
		}
		s.revisions = &observe.Revisions{
			Client: s.GetClient(), Cached: s.system, Live: s.GetAPIReader(), SystemNamespace: s.SystemNamespace,
		}
	}
	if runs(Initialization) && s.Hold.IsServed() {
		var err error
		if s.server, err = webhooks.NewServer(ctx, s, s.Hold.Options, s.SystemNamespace); err != nil {
			return fmt.Errorf("failed to set up the server of the webhooks: %w", err)
		}
		s.ready["webhooks"] = s.server.IsReady
	}
	return nil
}

// addCache adds another cache to the manager.
func (s *shared) addCache(options cache.Options) (cache.Cache, error) {
	options.Scheme, options.HTTPClient = s.GetScheme(), s.GetHTTPClient()
	added, err := cache.New(s.GetConfig(), options)
	if err == nil {
		err = s.Add(added)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to add a cache for templates: %w", err)
	}
	return added, nil
}

// recorder records Events of the operator.
func (s *shared) recorder() events.EventRecorder { return s.GetEventRecorder(reportingController) }

// newLiveClient returns a client without a cache.
func (s *shared) newLiveClient(config *rest.Config, httpClient *http.Client) (client.Client, error) {
	live, err := client.New(config, client.Options{
		HTTPClient: httpClient, Scheme: s.GetScheme(), Mapper: s.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client without a cache: %w", err)
	}
	return live, nil
}

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// addInitialization adds the reconcilers of initializers, and the webhooks that hold writes.
func addInitialization(ctx context.Context, s *shared) error {
	s.cached = append(s.cached, &v1alpha1.NamespaceInitializerConfiguration{}, &internalv1alpha1.NamespaceInitializerSet{})
	configurations := &controller.ConfigurationReconciler{
		Client: s.GetClient(), Live: s.GetAPIReader(), Clock: s.Clock, Recorder: s.recorder(),
		HealthChecker: &initializerhealth.Checker{
			Client: s.GetClient(), Live: s.GetAPIReader(), ServerClock: s.ServerClock,
		},
		SystemNamespace: s.SystemNamespace, SourceNamespace: s.SourceNamespace,
		NamespaceRequirements: s.NamespaceRequirements, Operators: parts.Users(s.SystemNamespace, s.self),
		Revisions: s.revisions, RevisionCache: s.system,
	}
	namespaces := &controller.NamespaceReconciler{
		Client: s.GetClient(), Live: s.GetAPIReader(), Recorder: s.recorder(), ServerClock: s.ServerClock,
		Exempt: s.exempt(), Workers: s.NamespaceWorkers, HasTemplates: s.Controllers.Runs(Templates),
		ProgressInterval: controller.ProgressInterval, ProgressLimiter: controller.NewProgressLimiter(),
	}
	if err := errors.Join(configurations.SetupWithManager(s), namespaces.SetupWithManager(s)); err != nil {
		return err
	}
	if s.server == nil {
		return nil
	}
	return hold.Register(ctx, s.server, s.GetCache(), hold.Config{
		Namespaces: s.GetClient(), Live: s.GetAPIReader(), AccessReviews: s.GetClient(),
		Duration: s.Hold.Duration, Limits: s.Hold.Limits, Metrics: metrics.HoldRecorder{}, Stopping: ctx.Done(),
	})
}

// addFinalization adds the reconciler of terminating Namespaces.
func addFinalization(_ context.Context, s *shared) error {
	s.cached = append(s.cached, &coordinationv1.Lease{}, controller.CustomResourceDefinitions(), controller.APIServices())
	restConfig := rest.CopyConfig(s.GetConfig())
	// Finalization also uses deprecated types. For them, the API server returns a warning with each
	// response.
	restConfig.WarningHandler = rest.NoWarnings{}
	httpClient := *s.GetHTTPClient()
	httpClient.Transport = throttling.NewTransport(httpClient.Transport)
	// Responses to list and discovery requests can come from aggregated API servers and can have any
	// size.
	limited := httpClient
	limited.Transport = metadataclient.LimitResponses(httpClient.Transport)
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(restConfig, &limited)
	if err != nil {
		return fmt.Errorf("failed to create a discovery client: %w", err)
	}
	content, err := metadata.NewForConfigAndClient(metadata.ConfigFor(restConfig), &limited)
	if err != nil {
		return fmt.Errorf("failed to create a metadata client: %w", err)
	}
	live, err := s.newLiveClient(restConfig, &httpClient)
	if err != nil {
		return err
	}
	role := contentrole.NewContent(contentrole.Config{
		User: s.self, Client: live, Discovery: discoveryClient, Clock: s.Clock, Log: s.GetLogger(),
	})
	finalizer := finalization.New(finalization.Config{
		NamespaceFinalizer: s.NamespaceFinalizer,
		Clock:              s.Clock,
		Discoverer:         role,
		Content:            content,
		Namespaces:         liveNamespaces{live},
		GracePeriods: &graceperiod.Source{
			Config: s.GracePeriod, Leases: s.GetClient(), Live: live,
			Clock: s.Clock, ServerClock: s.ServerClock,
		},
		IsAggregated:      isAggregated(s.GetClient()),
		ConfirmAggregated: contentrole.IsAggregated(live),
		PermissionRemedy:  role.Remedy,
		Metrics:           metrics.FinalizationRecorder{},
		Durations:         metrics.FinalizationRecorder{},
		Log:               s.GetLogger(),
	})
	return (&controller.FinalizationReconciler{
		Client:             s.GetClient(),
		Live:               live,
		Recorder:           s.recorder(),
		Clock:              s.Clock,
		NamespaceFinalizer: s.NamespaceFinalizer,
		OwnNamespace:       s.OwnNamespace,
		Workers:            s.FinalizationWorkers,
		Finalizer:          finalizer,
	}).SetupWithManager(s)
}

// addDiagnosis adds the reconciler of Namespaces that make no progress.
func addDiagnosis(_ context.Context, s *shared) error {
	budget := diagnoser.NewBudget()
	clusterDiagnoser, err := diagnoser.New(s.GetConfig(), s.DiagnosisProgressDeadline, budget)
	if err != nil {
		return err
	}
	return (&controller.DiagnosisReconciler{
		Client: s.GetClient(), Diagnoser: clusterDiagnoser, Recorder: s.recorder(), Clock: s.Clock,
		ProgressDeadline: s.DiagnosisProgressDeadline, Workers: s.DiagnosisWorkers, Budget: budget,
	}).SetupWithManager(s)
}

// automanagedLabel is a label of the APIServices for groups that kube-apiserver itself serves,
// including the groups of CustomResourceDefinitions.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// isAggregated returns a function that reports whether an aggregated API server serves a group
// version, according to the cached APIServices. It returns true if the APIService cannot be read.
func isAggregated(reader client.Reader) func(schema.GroupVersion) bool {
	return func(groupVersion schema.GroupVersion) bool {
		service := controller.APIServices()
		key := client.ObjectKey{Name: groupVersion.Version + "." + groupVersion.Group}
		err := reader.Get(context.Background(), key, service)
		return err != nil || service.Labels[automanagedLabel] == ""
	}
}

// liveNamespaces reads Namespaces from the API server instead of a cache.
type liveNamespaces struct{ reader client.Reader }

func (l liveNamespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	return namespace, l.reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
}
