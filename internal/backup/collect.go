// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// listsAtOnce is how many types are listed side by side. Whole objects are larger than
	// metadata.
	listsAtOnce = 16
	// pageSize is the most objects that one request asks for.
	pageSize = 250
)

// Options say what goes into a backup.
type Options struct {
	// All keeps what others make anew: what is controlled by another object, has ended, or
	// is made by the cluster. Nothing is left out then but Secrets.
	All bool
	// IncludeSecrets keeps Secrets, with what is in them.
	IncludeSecrets bool
	// Types limits the backup to these, as kubectl calls them: deployments.apps, pods. The
	// Namespace itself is not in such a backup. Empty means everything.
	Types []string
}

// Backup is what Collect has found.
type Backup struct {
	// Objects are clean and in the order in which they can be created.
	Objects []*unstructured.Unstructured
	// LeftOut counts objects that are not in the backup, by the reason. Secrets of which
	// the number is not known are there with 0.
	LeftOut map[Reason]int
	// Unread says what could not be read and so is missing, sorted.
	Unread []string
}

// Collect reads a namespace. It fails where there is no such namespace, or where the API
// server names no type; whatever else goes wrong is told by the Backup.
func Collect(ctx context.Context, config *rest.Config, namespace string, options Options) (*Backup, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the lists that are made at once are few
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	collector := &collector{client: client, config: config, namespace: namespace, options: options}
	return collector.collect(ctx, discoverer)
}

// collector reads one namespace.
type collector struct {
	client    dynamic.Interface
	config    *rest.Config
	namespace string
	options   Options

	backup Backup
	types  []inventory.Type
	found  []*unstructured.Unstructured
}

func (c *collector) collect(ctx context.Context, discoverer inventory.Discoverer) (*Backup, error) {
	c.backup.LeftOut = map[Reason]int{}
	if err := c.readNamespace(ctx); err != nil {
		return nil, err
	}
	discovered, err := inventory.Discover(ctx, discoverer)
	if err != nil {
		return nil, err
	}
	if err := discovered.Err(); err != nil {
		c.unread("types that the API server does not tell: %v", err)
	}
	if err := c.chooseTypes(discovered.Types); err != nil {
		return nil, err
	}
	c.listAll(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.countSecrets(ctx, discovered.Types)
	c.selectAndClean(discovered.Types)
	slices.Sort(c.backup.Unread)
	sortObjects(c.backup.Objects)
	return &c.backup, nil
}

func (c *collector) unread(format string, args ...any) {
	c.backup.Unread = append(c.backup.Unread, fmt.Sprintf(format, args...))
}

// readNamespace puts the Namespace itself into the backup, unless only certain types are
// asked for.
func (c *collector) readNamespace(ctx context.Context) error {
	object, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, c.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case len(c.options.Types) > 0:
		return nil
	case err != nil:
		c.unread("the Namespace itself: %v", err)
		return nil
	}
	c.backup.Objects = append(c.backup.Objects, Clean(object))
	return nil
}

// chooseTypes picks the types that can be restored and are asked for. A type that cannot
// be created holds no object of anybody's, such as the metrics of pods.
func (c *collector) chooseTypes(all []inventory.Type) error {
	for _, name := range c.options.Types {
		if !slices.ContainsFunc(all, func(one inventory.Type) bool { return one.IsNamed(name) }) {
			return fmt.Errorf("the API server has no namespaced type %q; "+
				"`kubectl api-resources --namespaced` lists those that it has", name)
		}
	}
	for _, one := range all {
		if c.isAskedFor(one) && one.Can("list") && one.Can("create") && (c.options.IncludeSecrets || !isSecrets(one)) {
			c.types = append(c.types, one)
		}
	}
	return nil
}

func (c *collector) isAskedFor(one inventory.Type) bool {
	return len(c.options.Types) == 0 ||
		slices.ContainsFunc(c.options.Types, func(name string) bool { return one.IsNamed(name) })
}

func isSecrets(one inventory.Type) bool {
	return one.GroupResource() == corev1.Resource("secrets")
}

// listAll lists the chosen types.
func (c *collector) listAll(ctx context.Context) {
	objects := make([][]*unstructured.Unstructured, len(c.types))
	errs := make([]error, len(c.types))
	group := errgroup.Group{}
	group.SetLimit(listsAtOnce)
	for i, one := range c.types {
		group.Go(func() error {
			objects[i], errs[i] = c.list(ctx, one)
			return nil
		})
	}
	_ = group.Wait() // What went wrong stands in errs.
	seen := map[types.UID]bool{}
	for i, one := range c.types {
		if errs[i] != nil {
			c.unread("%s: %v", one, errs[i])
		}
		for _, object := range objects[i] {
			// Some objects are served by two groups, such as Events.
			if !seen[object.GetUID()] {
				seen[object.GetUID()] = true
				c.found = append(c.found, object)
			}
		}
	}
}

// list returns the objects of a type, and with an error those that were read before it.
func (c *collector) list(ctx context.Context, one inventory.Type) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.client.Resource(one.GroupVersionResource).Namespace(c.namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err): // The type has gone, or is about to.
			return objects, nil
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// It took longer than storage keeps old states. Once more, in one piece.
			objects, options = nil, metav1.ListOptions{}
			continue
		case err != nil:
			return objects, err
		}
		for i := range page.Items {
			objects = append(objects, &page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return objects, nil
		}
	}
}

// countSecrets tells how many Secrets are left out, without reading what is in them.
func (c *collector) countSecrets(ctx context.Context, all []inventory.Type) {
	index := slices.IndexFunc(all, isSecrets)
	if c.options.IncludeSecrets || index < 0 || !c.isAskedFor(all[index]) {
		return
	}
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		c.unread("how many Secrets there are: %v", err)
		return
	}
	for _, content := range inventory.List(ctx, metadataclient.New(client), c.namespace, all[index:index+1], 1) {
		// 0 where they cannot be counted, which is no gap: nobody has asked for them.
		c.backup.LeftOut[ReasonSecret] = content.Count
	}
}

// selectAndClean fills the backup with what was found.
func (c *collector) selectAndClean(known []inventory.Type) {
	choice := newSelection(c.found, c.types, known)
	for _, object := range c.found {
		if reason := choice.whyLeftOut(object); reason != "" && !c.options.All {
			c.backup.LeftOut[reason]++
			continue
		}
		c.backup.Objects = append(c.backup.Objects, Clean(object))
	}
}
