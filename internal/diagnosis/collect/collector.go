// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// responseTimeout is how long a response may take. Usually, only an unresponsive aggregated API server
// exceeds it. Such a server must not prevent the rest of the diagnosis.
const responseTimeout = 5 * time.Second

// Collector reads the facts about namespaces.
type Collector struct {
	// ProgressDeadline is copied into the facts.
	ProgressDeadline time.Duration
	// IsPublic is copied into the facts. If it is set, workloads in other namespaces are not read.
	IsPublic bool
	// WithoutPatches skips the dry runs of patches. If the client has no permission to patch, this
	// avoids denied requests in the audit log.
	WithoutPatches bool

	client    client.Client
	discovery *discovery.DiscoveryClient
	metadata  metadata.Interface
	dynamic   dynamic.Interface
	now       func() time.Time
}

// New returns a Collector for the given configuration. The Collector does not limit the rate of its
// requests, because API Priority and Fairness does.
func New(config *rest.Config) (*Collector, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	// Timestamps that the API server sets are compared with its own time: the local clock can differ by minutes.
	serverClock := servertime.NewClock(clock.RealClock{})
	config.Wrap(serverClock.Wrap)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create an HTTP client: %w", err)
	}
	known := scheme.New()
	utilruntime.Must(apiextensionsv1.AddToScheme(known))
	typed, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: known, Mapper: newMapper(known)})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	// These clients receive responses from aggregated API servers. Such responses can have any size.
	limited := *httpClient
	limited.Transport = metadataclient.LimitResponses(httpClient.Transport)
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, &limited)
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), &limited)
	if err != nil {
		return nil, fmt.Errorf("failed to create a metadata client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, &limited)
	if err != nil {
		return nil, fmt.Errorf("failed to create a dynamic client: %w", err)
	}
	return &Collector{
		ProgressDeadline: diagnosis.DefaultProgressDeadline,
		client:           typed, discovery: discoveryClient, metadata: metadataclient.New(metadataClient),
		dynamic: dynamicClient, now: serverClock.Now,
	}, nil
}

// Diagnose collects the facts about a namespace and applies the rules. It returns the same errors as
// Collect.
func (c *Collector) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	facts, err := c.Collect(ctx, name)
	if err != nil {
		return nil, err
	}
	return rules.Diagnose(facts), nil
}

// Collect reads the facts about a namespace. It returns an error only if the Namespace cannot be read
// or the context is canceled. If the Namespace does not exist, the error is a NotFound error.
func (c *Collector) Collect(ctx context.Context, name string) (*diagnosis.Facts, error) {
	namespace, err := c.readNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	state := &collection{Collector: c, facts: &diagnosis.Facts{
		Now: c.now(), ProgressDeadline: c.ProgressDeadline, IsPublic: c.IsPublic, Namespace: namespace,
		DirectDiscovery: map[schema.GroupVersion]error{}, Backends: map[types.NamespacedName]diagnosis.Backend{},
		Fields: map[diagnosis.FieldKey]string{}, ServiceAccounts: map[types.NamespacedName]bool{},
		Permissions: map[diagnosis.DeniedPermission]bool{},
	}}
	switch {
	case rules.MayHaveFindings(state.facts):
		for _, step := range steps[diagnosis.StateOf(namespace)] {
			inParallel(step, func(collect func(*collection, context.Context)) { collect(state, ctx) })
		}
	case !c.IsPublic && namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] != "":
		state.readInitializers(ctx) // Their timeouts.
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("failed to collect the facts about namespace %q: %w", name, err)
	}
	return state.facts, nil
}

// readNamespace sends a list request, because more users have permission to list Namespaces than to
// get them. If the list request is forbidden, readNamespace sends a get request, because a
// RoleBinding in a namespace can grant permission to get that Namespace.
func (c *Collector) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := c.client.List(ctx, list, named(name))
	switch {
	case apierrors.IsForbidden(err):
		list.Items = make([]corev1.Namespace, 1)
		err = c.client.Get(ctx, client.ObjectKey{Name: name}, &list.Items[0])
	case err == nil && len(list.Items) == 0:
		err = apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	if err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

func named(name string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// collection is the state of one call of Collect.
type collection struct {
	*Collector

	lock  sync.Mutex // protects facts
	facts *diagnosis.Facts
}

// update changes the facts while it holds the lock.
func (c *collection) update(change func(facts *diagnosis.Facts)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	change(c.facts)
}

func (c *collection) addUnread(source diagnosis.Source, why string) {
	c.update(func(facts *diagnosis.Facts) {
		facts.Unread = append(facts.Unread, diagnosis.Unread{Source: source, Why: why})
	})
}

// list lists objects. If the request fails, it adds the reason to the facts and returns false. A type
// that is not served has no objects.
func (c *collection) list(
	ctx context.Context, source diagnosis.Source, list client.ObjectList, options ...client.ListOption,
) bool {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	err := c.client.List(ctx, list, options...)
	if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return true
	}
	listOptions := client.ListOptions{}
	listOptions.ApplyOptions(options)
	c.addFailure(source, listOptions.Namespace, err)
	return false
}

// addFailure records why a source could not be read.
func (c *collection) addFailure(source diagnosis.Source, namespace string, err error) {
	what := string(source)
	if namespace != "" {
		what += fmt.Sprintf(" in namespace %q", namespace)
	}
	why := fmt.Sprintf("%s could not be read: %s", what, diagnosis.OneLine(err.Error()))
	switch {
	case apierrors.IsForbidden(err) && !namesOtherPermission(err, source):
		why = fmt.Sprintf("%s cannot be read: permission to list them is missing", what)
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("%s could not be read: no response within %s", what, responseTimeout)
	}
	c.addUnread(source, why)
}

// namesOtherPermission reports whether an error names a missing permission other than to list the objects. Aggregated
// API servers can require other permissions.
func namesOtherPermission(err error, source diagnosis.Source) bool {
	missing := denial.MissingPermissions(err.Error())
	return len(missing) > 0 && (missing[0].Verb != "list" || missing[0].GroupResource() != string(source))
}

// sortBy sorts items by the given strings, which identify an item.
func sortBy[T any](items []T, keys func(item T) []string) {
	slices.SortStableFunc(items, func(a, b T) int { return slices.Compare(keys(a), keys(b)) })
}

// inParallel calls a function for all items in parallel, and waits until all calls have returned.
func inParallel[T any](items []T, function func(T)) {
	var group sync.WaitGroup
	for _, item := range items {
		group.Go(func() { function(item) })
	}
	group.Wait()
}

// steps lists the functions that collect the facts in each state. The functions of one step run in parallel. They use
// the facts of the steps before it.
var steps = map[diagnosis.NamespaceState][][]func(*collection, context.Context){
	diagnosis.StateInitializing: {
		{
			(*collection).readClusterRoleBindings, (*collection).readClusterRoles, (*collection).readInitializers,
			(*collection).readRejectedWrites,
		},
		{(*collection).readInitializerPods},
	},
	diagnosis.StateTerminating: {
		{
			(*collection).discover, (*collection).readAPIServices, (*collection).readCRDNames,
			(*collection).readInitializersOfFinalizers, (*collection).readRejectedWrites,
		},
		{(*collection).readContent},
		{
			(*collection).readProgress, (*collection).discoverDirectly, (*collection).readCRDs, (*collection).readPods,
			(*collection).sendDryRuns, (*collection).readReports, (*collection).readLeases, (*collection).readWorkloads,
			(*collection).readRolesOfOwners, (*collection).readPermissions,
		},
		{(*collection).readAdmission, (*collection).readAccessReviews, (*collection).readServiceAccounts},
		{(*collection).readBackends},
	},
}
