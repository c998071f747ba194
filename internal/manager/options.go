// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// Options configure the reconcilers of a manager.
type Options struct {
	// Controllers are the controllers to run. Nil selects the controllers that are on by default.
	Controllers Controllers
	// SystemNamespace is the namespace in which the operator is installed.
	SystemNamespace string
	// SourceNamespace is the namespace of the sources of copies in templates.
	SourceNamespace string
	// OwnNamespace is the namespace of the manager's Pod; empty if the manager runs outside the
	// cluster.
	OwnNamespace string
	// NamespaceFinalizer is the namespace finalizer that finalization removes; "kubernetes" if empty.
	NamespaceFinalizer corev1.FinalizerName
	// GracePeriod is the time between the deletion of a namespace and the removal of its namespace finalizer.
	GracePeriod graceperiod.GracePeriod
	// NamespaceRequirements are requirements of new Namespaces with initializers, in addition to those of the selectors.
	NamespaceRequirements []v1alpha1.NamespaceSelectorRequirement
	// NamespaceWorkers is the number of initializing Namespaces that are reconciled concurrently. The default is 10.
	NamespaceWorkers int
	// TemplateWorkers is the number of new Namespaces to which templates are applied concurrently. The default is 16.
	TemplateWorkers int
	// TemplateFullPass is the time between two comparisons of all objects of templates with the API server.
	// The default is 10 hours.
	TemplateFullPass time.Duration
	// FinalizationWorkers is the number of terminating Namespaces that are reconciled concurrently.
	// The default is DefaultFinalizationWorkers.
	FinalizationWorkers int
	// DiagnosisProgressDeadline is how long a Namespace can make no progress before it is diagnosed.
	// The default is DefaultProgressDeadline.
	DiagnosisProgressDeadline time.Duration
	// DiagnosisWorkers is the number of Namespaces that are diagnosed concurrently. The default is 2.
	DiagnosisWorkers int
	// Hold configures the webhooks. The initialization controllers serve them at the address, unless it is "0". The
	// admission controller uses the URL. Nil selects the defaults, without an address.
	Hold *hold.Options
	// ProbeAddress is the address of /healthz and /readyz, and Metrics describes the server of the metrics. Empty
	// addresses and "0" disable them.
	ProbeAddress string
	Metrics      MetricsOptions
	// Clock is the local clock. It measures durations. It defaults to the real clock.
	Clock clock.PassiveClock
	// ServerClock is compared with timestamps of the API server and of other managers. By default, it is
	// Clock.
	ServerClock *servertime.Clock
}

// UseServerClock sets ServerClock to the clock of the API server, unless Clock is set. It must be called
// before the configuration is used.
func (o *Options) UseServerClock(config *rest.Config) {
	if o.Clock != nil {
		return
	}
	serverClock := servertime.NewClock(clock.RealClock{})
	config.Wrap(serverClock.Wrap)
	o.ServerClock = serverClock
}

// exempt returns the names of the Namespaces that are exempt from initialization.
func (o *Options) exempt() []string {
	return initialization.Exempt(o.SystemNamespace, o.SourceNamespace)
}

// DefaultProgressDeadline is the default of Options.DiagnosisProgressDeadline.
const DefaultProgressDeadline = diagnosis.DefaultProgressDeadline

// DefaultFinalizationWorkers is the default of Options.FinalizationWorkers.
const DefaultFinalizationWorkers = 250

const (
	defaultNamespaceWorkers = 10
	defaultTemplateWorkers  = 16
	defaultDiagnosisWorkers = 2
	defaultTemplateFullPass = 10 * time.Hour
)

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ServerClock == nil {
		o.ServerClock = servertime.NewClock(o.Clock)
	}
	if o.Hold == nil {
		o.Hold = &hold.Options{Options: webhooks.Defaults()}
	}
	o.NamespaceFinalizer = cmp.Or(o.NamespaceFinalizer, corev1.FinalizerKubernetes)
	o.NamespaceWorkers = cmp.Or(o.NamespaceWorkers, defaultNamespaceWorkers)
	o.TemplateWorkers = cmp.Or(o.TemplateWorkers, defaultTemplateWorkers)
	o.TemplateFullPass = cmp.Or(o.TemplateFullPass, defaultTemplateFullPass)
	o.FinalizationWorkers = cmp.Or(o.FinalizationWorkers, DefaultFinalizationWorkers)
	o.DiagnosisProgressDeadline = cmp.Or(o.DiagnosisProgressDeadline, DefaultProgressDeadline)
	o.DiagnosisWorkers = cmp.Or(o.DiagnosisWorkers, defaultDiagnosisWorkers)
}
