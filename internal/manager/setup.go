// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	policywebhooks "github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/diagnoser"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/parts"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/validation"
)

// reportingController is the reporting controller of Events.
const reportingController = "nslifecycle"

// Setup adds the selected reconcilers and the probes to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	options.setDefaults()
	cached, err := collectNamespaces(mgr, options)
	if err != nil {
		return err
	}
	var validator *validation.Validator
	var installer *mutation.Installer
	if options.Controllers.Runs(Admission) {
		if installer, err = newInstaller(mgr, options); err != nil {
			return err
		}
		if err := setupAdmission(mgr, options, installer); err != nil {
			return err
		}
		cached = append(cached, &internalv1alpha1.NamespaceInitializerSet{})
		cached = append(cached, policyverifier.Objects()...)
	}
	if options.Controllers.Runs(Initialization) {
		if validator, err = setupInitialization(ctx, mgr, options); err != nil {
			return err
		}
		cached = append(cached, &v1alpha1.NamespaceInitializerConfiguration{}, &internalv1alpha1.NamespaceInitializerSet{})
	}
	if validator != nil {
		cached = append(cached, &v1alpha1.NamespaceTemplate{})
	}
	if options.Controllers.Runs(Finalization) {
		if err := setupFinalization(ctx, mgr, options); err != nil {
			return err
		}
		cached = append(cached, &coordinationv1.Lease{}, controller.CustomResourceDefinitions(), controller.APIServices())
	}
	if options.Controllers.Runs(Diagnosis) {
		if err := setupDiagnosis(mgr, options); err != nil {
			return err
		}
	}
	ready, err := setupServer(ctx, mgr, options, validator, installer)
	if err != nil {
		return err
	}
	if err := addMetrics(ctx, mgr, options.Metrics); err != nil {
		return err
	}
	return addProbes(ctx, mgr, options.ProbeAddress, cached, ready)
}

// setupServer adds the server of the webhooks, if it is configured, and what configures the webhooks. It returns the
// checks of the readiness.
func setupServer(
	ctx context.Context, mgr ctrl.Manager, options Options, validator *validation.Validator, installer *mutation.Installer,
) (map[string]healthz.Checker, error) {
	server, err := setupWebhooks(ctx, mgr, options, validator)
	if err != nil {
		return nil, err
	}
	ready := map[string]healthz.Checker{}
	if server != nil {
		ready["hold"] = server.IsReady
	}
	return ready, policywebhooks.Setup(ctx, mgr.GetCache(), installer, server, options.Hold.URL)
}

// collectNamespaces adds the collector of namespace metrics if a controller runs that reads Namespaces. It returns what
// the collector reads.
func collectNamespaces(mgr ctrl.Manager, options Options) ([]client.Object, error) {
	controllers := options.Controllers
	if !controllers.readNamespaces() {
		return nil, nil
	}
	if err := mgr.Add(metrics.CollectNamespaces(metrics.NamespaceSource{
		Reader: mgr.GetClient(), Finalizer: options.NamespaceFinalizer,
		HasInitialization: controllers.Runs(Initialization), HasFinalization: controllers.Runs(Finalization),
		HasTemplates: controllers.Runs(Templates),
	})); err != nil {
		return nil, fmt.Errorf("failed to add the collector of namespace metrics: %w", err)
	}
	return []client.Object{&corev1.Namespace{}}, nil
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=selfsubjectreviews,verbs=create

// ownUser returns the user name of the operator.
func ownUser(ctx context.Context, mgr ctrl.Manager) (string, error) {
	self := &authenticationv1.SelfSubjectReview{}
	if err := mgr.GetClient().Create(ctx, self); err != nil {
		return "", fmt.Errorf("failed to determine the user name of the operator: %w", err)
	}
	return self.Status.UserInfo.Username, nil
}

// setupInitialization adds the reconcilers of initializers and, if they are selected, of templates. It returns the
// validator of templates, or nil without them.
func setupInitialization(ctx context.Context, mgr ctrl.Manager, options Options) (*validation.Validator, error) {
	self, err := ownUser(ctx, mgr)
	if err != nil {
		return nil, err
	}
	if !options.Controllers.Runs(Templates) {
		return nil, setupInitializers(mgr, options, self, nil, nil)
	}
	system, err := addCache(mgr, observe.SystemCacheOptions(options.SystemNamespace))
	if err != nil {
		return nil, err
	}
	revisions := &observe.Revisions{
		Client: mgr.GetClient(), Cached: system, Live: mgr.GetAPIReader(), SystemNamespace: options.SystemNamespace,
	}
	if err := setupInitializers(mgr, options, self, system, revisions); err != nil {
		return nil, err
	}
	return setupTemplates(mgr, options, self, system, revisions)
}

// setupInitializers adds the reconcilers of initializers. The cache and the revisions of templates are nil without
// them.
func setupInitializers(
	mgr ctrl.Manager, options Options, self string, templates cache.Cache, revisions *observe.Revisions,
) error {
	if err := (&controller.ConfigurationReconciler{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Clock:    options.Clock,
		Recorder: mgr.GetEventRecorder(reportingController),
		HealthChecker: &initializerhealth.Checker{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.ServerClock,
		},
		SystemNamespace:       options.SystemNamespace,
		SourceNamespace:       options.SourceNamespace,
		NamespaceRequirements: options.NamespaceRequirements,
		Operators:             parts.Users(options.SystemNamespace, self),
		Revisions:             revisions,
		RevisionCache:         templates,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the configuration reconciler: %w", err)
	}
	if err := (&controller.NamespaceReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Recorder:     mgr.GetEventRecorder(reportingController),
		Clock:        options.ServerClock,
		Exempt:       options.exempt(),
		Workers:      options.NamespaceWorkers,
		HasTemplates: options.Controllers.Runs(Templates),

		ProgressInterval: controller.ProgressInterval,
		ProgressLimiter:  controller.NewProgressLimiter(),
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the initialization reconciler: %w", err)
	}
	return nil
}

func setupFinalization(ctx context.Context, mgr ctrl.Manager, options Options) error {
	self, err := ownUser(ctx, mgr)
	if err != nil {
		return err
	}
	restConfig := rest.CopyConfig(mgr.GetConfig())
	// Finalization also uses deprecated types. For them, the API server returns a warning with each
	// response.
	restConfig.WarningHandler = rest.NoWarnings{}
	httpClient := *mgr.GetHTTPClient()
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
	live, err := client.New(restConfig, client.Options{
		HTTPClient: &httpClient, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("failed to create a client without a cache: %w", err)
	}
	role := contentrole.NewContent(contentrole.Config{
		User: self, Client: live, Discovery: discoveryClient, Clock: options.Clock, Log: mgr.GetLogger(),
	})
	finalizer := finalization.New(finalization.Config{
		NamespaceFinalizer: options.NamespaceFinalizer,
		Clock:              options.Clock,
		Discoverer:         role,
		Content:            content,
		Namespaces:         liveNamespaces{live},
		GracePeriods: &graceperiod.Source{
			Config: options.GracePeriod, Leases: mgr.GetClient(), Live: live,
			Clock: options.Clock, ServerClock: options.ServerClock,
		},
		IsAggregated:      isAggregated(mgr.GetClient()),
		ConfirmAggregated: contentrole.IsAggregated(live),
		PermissionRemedy:  role.Remedy,
		Metrics:           metrics.FinalizationRecorder{},
		Durations:         metrics.FinalizationRecorder{},
		Log:               mgr.GetLogger(),
	})
	reconciler := &controller.FinalizationReconciler{
		Client:             mgr.GetClient(),
		Live:               live,
		Recorder:           mgr.GetEventRecorder(reportingController),
		Clock:              options.Clock,
		NamespaceFinalizer: options.NamespaceFinalizer,
		OwnNamespace:       options.OwnNamespace,
		Workers:            options.FinalizationWorkers,
		Finalizer:          finalizer,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the finalization reconciler: %w", err)
	}
	return nil
}

func setupDiagnosis(mgr ctrl.Manager, options Options) error {
	budget := diagnoser.NewBudget()
	clusterDiagnoser, err := diagnoser.New(mgr.GetConfig(), options.DiagnosisProgressDeadline, budget)
	if err != nil {
		return err
	}
	if err := (&controller.DiagnosisReconciler{
		Client:           mgr.GetClient(),
		Diagnoser:        clusterDiagnoser,
		Recorder:         mgr.GetEventRecorder(reportingController),
		Clock:            options.Clock,
		ProgressDeadline: options.DiagnosisProgressDeadline,
		Workers:          options.DiagnosisWorkers,
		Budget:           budget,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the diagnosis reconciler: %w", err)
	}
	return nil
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
