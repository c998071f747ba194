// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// responseTimeout is how long a response may take. It is generous for all servers except an
// aggregated API server that hangs, which must not prevent the rest of the diagnosis.
const responseTimeout = 5 * time.Second

// Collector reads the facts about namespaces.
type Collector struct {
	// ProgressDeadline is copied into the facts.
	ProgressDeadline time.Duration
	// IsPublic is copied into the facts. If it is set, workloads in other namespaces are not read.
	IsPublic bool
	// WithoutPatches skips the dry runs of patches. Without permission to patch, the audit log would
	// have a denied request for each.
	WithoutPatches bool

	lister     lister
	discoverer discoverer
	metadata   metadata.Interface
	dynamic    dynamic.Interface
	dryRunner  dryRunner
	reviewer   accessReviewer
	now        func() time.Time
}

// New returns a Collector with the permissions of a configuration. It does not limit the rate of
// its requests: API Priority and Fairness does.
func New(config *rest.Config) (*Collector, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	clock := &serverClock{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		clock.next = next
		return clock
	})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create an HTTP client: %w", err)
	}
	scheme := newScheme()
	typed, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: newMapper(scheme)})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	// These clients receive responses from aggregated API servers, which may be of any size.
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
	metadataClient = metadataclient.New(metadataClient)
	dynamicClient, err := dynamic.NewForConfigAndClient(config, &limited)
	if err != nil {
		return nil, fmt.Errorf("failed to create a dynamic client: %w", err)
	}
	return &Collector{
		ProgressDeadline: diagnosis.DefaultProgressDeadline,
		lister:           typed, discoverer: discoveryClient, metadata: metadataClient, dynamic: dynamicClient,
		dryRunner: clusterDryRunner{metadataClient}, reviewer: clusterAccessReviewer{typed}, now: clock.now,
	}, nil
}

// Diagnose collects the facts about one namespace and applies the rules. It returns the errors of
// Collect.
func (c *Collector) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	facts, err := c.Collect(ctx, name)
	if err != nil {
		return nil, err
	}
	return rules.Diagnose(facts), nil
}

// Collect reads the facts about one namespace. It fails if the Namespace cannot be read, with a
// NotFound error if it does not exist, and if the context is canceled. Anything else that cannot be
// read is a fact.
func (c *Collector) Collect(ctx context.Context, name string) (*diagnosis.Facts, error) {
	namespace, err := c.readNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	collection := &collection{Collector: c, facts: &diagnosis.Facts{
		Now: c.now(), ProgressDeadline: c.ProgressDeadline, IsPublic: c.IsPublic, Namespace: namespace,
	}}
	collection.run(ctx, steps[diagnosis.StageOf(namespace)], rules.Needs(rules.All(), collection.facts))
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("failed to collect the facts about namespace %q: %w", name, err)
	}
	facts := collection.facts
	// The responses arrive in any order.
	slices.SortFunc(facts.Unread, func(a, b diagnosis.Unread) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Why, b.Why))
	})
	facts.Unread = slices.Compact(facts.Unread)
	return facts, nil
}

// readNamespace uses a list request, for which more users have permission than for a get request.
func (c *Collector) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := c.lister.List(ctx, list, named(name))
	if apierrors.IsForbidden(err) {
		return c.getNamespace(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read namespace %q: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("failed to read namespace %q: %w", name,
			apierrors.NewNotFound(corev1.Resource(namespaceResource), name))
	}
	return &list.Items[0], nil
}

// getNamespace is for users who cannot list namespaces: a RoleBinding in a namespace can grant
// permission to get it.
func (c *Collector) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	object, err := c.dynamic.Resource(corev1.SchemeGroupVersion.WithResource(namespaceResource)).
		Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get namespace %q: %w", name, err)
	}
	namespace := &corev1.Namespace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, namespace); err != nil {
		return nil, fmt.Errorf("failed to read namespace %q: %w", name, err)
	}
	return namespace, nil
}

const namespaceResource = "namespaces"

// named selects one object by its name.
func named(name string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }

func atMost(limit int64) client.ListOption { return client.Limit(limit) }

// collection is one run of Collect.
type collection struct {
	*Collector

	lock  sync.Mutex // protects the facts
	facts *diagnosis.Facts
}

// update changes the facts.
func (c *collection) update(change func(facts *diagnosis.Facts)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	change(c.facts)
}

func (c *collection) addUnread(unread diagnosis.Unread) {
	c.update(func(facts *diagnosis.Facts) { facts.Unread = append(facts.Unread, unread) })
}

// list lists objects, and returns false if that fails, after adding the reason to the facts. A type
// that is not served has no objects.
func (c *collection) list(
	ctx context.Context, source diagnosis.Source, list client.ObjectList, options ...client.ListOption,
) bool {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	err := c.lister.List(ctx, list, options...)
	if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return true
	}
	listOptions := client.ListOptions{}
	listOptions.ApplyOptions(options)
	c.addFailure(source, listOptions.Namespace, err)
	return false
}

// addFailure adds the reason why a source could not be read.
func (c *collection) addFailure(source diagnosis.Source, namespace string, err error) {
	where := ""
	if namespace != "" {
		where = fmt.Sprintf(" in namespace %q", namespace)
	}
	why := unreadError(source, where, err)
	switch {
	case apierrors.IsForbidden(err):
		why = unreadForbidden(source, where)
	case errors.Is(err, context.DeadlineExceeded):
		why = unreadTimeout(source, where)
	}
	c.addUnread(diagnosis.Unread{Source: source, Why: why})
}

// inParallel calls functions in parallel and waits for all of them.
func inParallel(functions ...func()) {
	var group sync.WaitGroup
	for _, function := range functions {
		group.Go(function)
	}
	group.Wait()
}
