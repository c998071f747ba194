// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	// maxParallelLists is the maximum number of parallel list requests. It is lower than the limit for
	// metadata, because whole objects are larger.
	maxParallelLists = 16
	// pageSize is the maximum number of objects in one response.
	pageSize = 250
)

// Options select the objects in a backup.
type Options struct {
	// All includes objects that have a controller, have completed, or were created by the cluster.
	All bool
	// IncludeSecrets includes Secrets with their data.
	IncludeSecrets bool
	// Types limits the backup to resource types such as deployments.apps or pods. If it is empty, the
	// backup includes all types and the Namespace.
	Types []string
	// AllowTerminating does not report the backup of a terminating Namespace as incomplete.
	AllowTerminating bool
}

// Backup is the result of Collect.
type Backup struct {
	// Objects are cleaned, and sorted in the order in which they can be created.
	Objects []*unstructured.Unstructured
	// Skipped is the number of objects that are not in the backup, by reason. For ReasonSecret, 0
	// means that the number is unknown.
	Skipped map[Reason]int
	// Unread is a sorted list of what is missing because it could not be read.
	Unread []string
}

// Collect reads a namespace. It fails if the namespace does not exist or discovery fails
// completely. The Backup lists other errors.
func Collect(ctx context.Context, config *rest.Config, namespace string, options Options) (*Backup, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // maxParallelLists limits the load instead.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, clientErr := dynamic.NewForConfig(config)
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err := errors.Join(clientErr, err); err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	collector := &collector{
		client: client, config: config, namespace: namespace, options: options,
		backup: Backup{Skipped: map[Reason]int{}},
	}
	return collector.collect(ctx, discoverer)
}

// collector reads one namespace.
type collector struct {
	client    dynamic.Interface
	config    *rest.Config
	namespace string
	options   Options

	backup Backup
	types  []resourcetypes.Type
	found  []*unstructured.Unstructured
}

func (c *collector) collect(ctx context.Context, discoverer resourcetypes.Discoverer) (*Backup, error) {
	uid, err := c.readNamespace(ctx)
	if err != nil {
		return nil, err
	}
	discovered, err := resourcetypes.Discover(ctx, discoverer)
	if err != nil {
		return nil, err
	}
	if err := discovered.Err(); err != nil {
		c.unread(msgUnreadTypes, err)
	}
	if err := c.selectTypes(discovered.Types); err != nil {
		return nil, err
	}
	c.listAll(ctx)
	c.verifyNamespace(ctx, uid)
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

// readNamespace adds the Namespace to the backup unless the user has selected resource types. It returns the UID of
// the Namespace, or "" if the user cannot read it.
func (c *collector) readNamespace(ctx context.Context) (types.UID, error) {
	object, err := c.getNamespace(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "", err
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		if len(c.options.Types) == 0 {
			c.unread(msgUnreadNamespace, err)
		}
		return "", nil
	case len(c.options.Types) == 0:
		c.backup.Objects = append(c.backup.Objects, Clean(object))
	}
	return object.GetUID(), nil
}

func (c *collector) getNamespace(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, c.namespace, metav1.GetOptions{})
}

// verifyNamespace reports the backup as incomplete if the objects might have been deleted while they were listed. If
// the UID is empty, the user cannot read the Namespace.
func (c *collector) verifyNamespace(ctx context.Context, uid types.UID) {
	if uid == "" {
		return
	}
	object, err := c.getNamespace(ctx)
	switch {
	case err != nil:
		c.unread(msgUnreadDeleted, err)
	case object.GetUID() != uid:
		c.unread(msgUnreadRecreated)
	case object.GetDeletionTimestamp() != nil && !c.options.AllowTerminating:
		c.unread(msgUnreadTerminating)
	}
}

// selectTypes selects the resource types that can be restored. Types that cannot be created, such
// as Pod metrics, have no stored objects.
func (c *collector) selectTypes(all []resourcetypes.Type) error {
	for _, name := range c.options.Types {
		if !slices.ContainsFunc(all, func(one resourcetypes.Type) bool { return one.IsNamed(name) }) {
			return errUnknownType(name)
		}
	}
	for _, one := range all {
		if c.isSelected(one) && one.Can("list") && one.Can("create") && (c.options.IncludeSecrets || !isSecrets(one)) {
			c.types = append(c.types, one)
		}
	}
	c.types = resourcetypes.Distinct(c.types)
	return nil
}

func (c *collector) isSelected(one resourcetypes.Type) bool {
	return len(c.options.Types) == 0 ||
		slices.ContainsFunc(c.options.Types, func(name string) bool { return one.IsNamed(name) })
}

func isSecrets(one resourcetypes.Type) bool {
	return one.GroupResource() == corev1.Resource("secrets")
}

// listAll lists the objects of the selected types.
func (c *collector) listAll(ctx context.Context) {
	objects := make([][]*unstructured.Unstructured, len(c.types))
	errs := make([]error, len(c.types))
	workqueue.ParallelizeUntil(ctx, maxParallelLists, len(c.types), func(i int) {
		objects[i], errs[i] = c.list(ctx, c.types[i])
	})
	seen := sets.New[types.UID]()
	for i, one := range c.types {
		if errs[i] != nil {
			c.unread("%s: %v", one, errs[i])
		}
		for _, object := range objects[i] {
			// Two API groups can serve the same object. The objects of aggregated API servers can have no UID.
			if uid := object.GetUID(); uid == "" || !seen.Has(uid) {
				seen.Insert(uid)
				c.found = append(c.found, object)
			}
		}
	}
}

// list returns the objects of a resource type. If a request fails, it returns the error and the
// objects of the previous responses.
func (c *collector) list(ctx context.Context, one resourcetypes.Type) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.client.Resource(one.GroupVersionResource).Namespace(c.namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err): // The resource type no longer exists.
			return objects, nil
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// The continue token has expired. List all objects again, in one response.
			objects, options = nil, metav1.ListOptions{}
			continue
		case err != nil:
			return objects, err
		}
		for i := range page.Items {
			if err := c.validate(one, &page.Items[i]); err != nil {
				return objects, err
			}
			objects = append(objects, &page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return objects, nil
		}
	}
}

// validate returns an error if an item cannot be part of the response to a list request. An aggregated API
// server could otherwise add objects of other groups and namespaces, such as a ClusterRoleBinding, which an
// administrator creates when restoring the backup.
func (c *collector) validate(one resourcetypes.Type, object *unstructured.Unstructured) error {
	if kind := groupKind(object); kind != one.GroupVersionKind().GroupKind() {
		return fmt.Errorf("the response contains an item of kind %s", metadataclient.Quote(kind.String()))
	}
	if namespace := object.GetNamespace(); namespace != c.namespace {
		return fmt.Errorf("the response contains an item in namespace %s", metadataclient.Quote(namespace))
	}
	return nil
}

// countSecrets counts the skipped Secrets without reading their data.
func (c *collector) countSecrets(ctx context.Context, all []resourcetypes.Type) {
	index := slices.IndexFunc(all, isSecrets)
	if c.options.IncludeSecrets || index < 0 || !c.isSelected(all[index]) {
		return
	}
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		c.unread(msgUnreadSecretCount, err)
		return
	}
	for _, content := range resourcetypes.List(ctx, metadataclient.New(client), c.namespace, all[index:index+1], 1) {
		// An unknown number is not an error, because the user does not back up Secrets.
		c.backup.Skipped[ReasonSecret] = content.Count
	}
}

// selectAndClean adds the selected objects to the backup.
func (c *collector) selectAndClean(known []resourcetypes.Type) {
	selected := newSelection(c.found, c.types, known)
	for _, object := range c.found {
		if reason := selected.skipReason(object); reason != "" && !c.options.All {
			c.backup.Skipped[reason]++
			continue
		}
		c.backup.Objects = append(c.backup.Objects, Clean(object))
	}
}
