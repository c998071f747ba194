// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

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

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// answerTimeout is how long an answer may take. It is generous for everything but an
// aggregated API server that hangs, which must not keep the rest of the diagnosis.
const answerTimeout = 5 * time.Second

// Gatherer reads the facts about namespaces. It changes nothing: it reads, asks about
// rights, and makes dry runs of a few deletions and patches.
type Gatherer struct {
	// Patience is copied into the facts.
	Patience time.Duration
	// IsPublic is copied into the facts. If it is set, workloads in other namespaces are not read.
	IsPublic bool
	// IsWithoutPatches leaves out the dry runs of patches, for one who has no right to patch:
	// the audit log would have a refusal of each.
	IsWithoutPatches bool

	lister     lister
	discoverer discoverer
	metadata   metadata.Interface
	dynamic    dynamic.Interface
	trier      trier
	reviewer   reviewer
	now        func() time.Time
}

// NewGatherer returns a Gatherer that works with the rights of a configuration, without a
// limit to the rate of its requests: API priority and fairness is the limit.
func NewGatherer(config *rest.Config) (*Gatherer, error) {
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
		return nil, fmt.Errorf("creating an HTTP client: %w", err)
	}
	scheme := newScheme()
	whole, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: newMapper(scheme)})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	// Aggregated API servers answer the requests of these clients.
	limited := *httpClient
	limited.Transport = metadataclient.LimitResponses(httpClient.Transport)
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, &limited)
	if err != nil {
		return nil, fmt.Errorf("creating a discovery client: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), &limited)
	if err != nil {
		return nil, fmt.Errorf("creating a metadata client: %w", err)
	}
	metadataClient = metadataclient.New(metadataClient)
	dynamicClient, err := dynamic.NewForConfigAndClient(config, &limited)
	if err != nil {
		return nil, fmt.Errorf("creating a dynamic client: %w", err)
	}
	return &Gatherer{
		Patience: DefaultPatience, lister: whole, discoverer: discoveryClient, metadata: metadataClient,
		dynamic: dynamicClient,
		trier:   dryRunner{metadataClient}, reviewer: accessReviewer{whole}, now: clock.now,
	}, nil
}

// Gather reads the facts about one namespace. It fails if the Namespace cannot be read,
// with an error that apierrors.IsNotFound knows where it does not exist, and if the context
// ends; whatever else cannot be read is a fact.
func (g *Gatherer) Gather(ctx context.Context, name string) (*Facts, error) {
	namespace, err := g.readNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	gathering := &gathering{Gatherer: g, facts: &Facts{
		Now: g.now(), Patience: g.Patience, IsPublic: g.IsPublic, Namespace: namespace,
	}}
	switch stageOf(namespace) {
	case StageTerminating:
		gathering.readDeath(ctx)
	case StageInitializing:
		gathering.readBirth(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("gathering the facts about namespace %q: %w", name, err)
	}
	facts := gathering.facts
	// They come in as the answers do.
	slices.SortFunc(facts.Unread, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Why, b.Why))
	})
	facts.Unread = slices.Compact(facts.Unread)
	return facts, nil
}

// Diagnose gathers the facts about one namespace, and computes what follows from them. Its
// errors are those of Gather.
func (g *Gatherer) Diagnose(ctx context.Context, name string) (*Diagnosis, error) {
	facts, err := g.Gather(ctx, name)
	if err != nil {
		return nil, err
	}
	return Diagnose(facts), nil
}

// readNamespace lists, since that is a right that everybody who looks after namespaces has.
func (g *Gatherer) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := g.lister.List(ctx, list, named(name))
	if apierrors.IsForbidden(err) {
		return g.getNamespace(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %q: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("reading namespace %q: %w", name,
			apierrors.NewNotFound(corev1.Resource("namespaces"), name))
	}
	return &list.Items[0], nil
}

// getNamespace is for who may not list namespaces: in a namespace of one's own one may get
// it, by a RoleBinding there.
func (g *Gatherer) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	object, err := g.dynamic.Resource(corev1.SchemeGroupVersion.WithResource(namespaceResource)).
		Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading namespace %q takes the right to get it: %w", name, err)
	}
	namespace := &corev1.Namespace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, namespace); err != nil {
		return nil, fmt.Errorf("reading namespace %q: %w", name, err)
	}
	return namespace, nil
}

// named selects one object by its name.
func named(name string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }

func atMost(limit int64) client.ListOption { return client.Limit(limit) }

// gathering is one run of Gather.
type gathering struct {
	*Gatherer

	lock  sync.Mutex // for the facts
	facts *Facts
}

// note changes the facts while others read theirs.
func (g *gathering) note(change func(facts *Facts)) {
	g.lock.Lock()
	defer g.lock.Unlock()
	change(g.facts)
}

// list lists objects, and notes why if that fails. A type that is not served has none.
func (g *gathering) list(
	ctx context.Context, source Source, list client.ObjectList, options ...client.ListOption,
) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := g.lister.List(ctx, list, options...)
	if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return true
	}
	listOptions := client.ListOptions{}
	listOptions.ApplyOptions(options)
	g.missed(source, listOptions.Namespace, err)
	return false
}

// missed notes that something could not be read. All missing rights of one source make one
// line: a person who may not read Pods does not want to be told of each namespace.
func (g *gathering) missed(source Source, namespace string, err error) {
	where := ""
	if namespace != "" {
		where = fmt.Sprintf(" in namespace %q", namespace)
	}
	why := fmt.Sprintf("%s%s could not be read: %s", source, where, oneLine(err.Error()))
	switch {
	case apierrors.IsForbidden(err):
		why = fmt.Sprintf("%s%s may not be read: the right to list them is missing", source, where)
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("%s%s could not be read: no answer within %s", source, where, answerTimeout)
	}
	g.note(func(facts *Facts) { facts.Unread = append(facts.Unread, Unread{source, why}) })
}

// sideBySide calls functions at the same time and waits for all.
func sideBySide(functions ...func()) {
	var group sync.WaitGroup
	for _, function := range functions {
		group.Go(function)
	}
	group.Wait()
}
