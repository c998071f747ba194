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
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		c.unread("types that could not be discovered: %v", err)
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
		c.unread("objects that might have been deleted: %v", err)
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
		c.unread("the number of Secrets: %v", err)
		return
	}
	for _, content := range resourcetypes.List(ctx, metadataclient.New(client), c.namespace, all[index:index+1], 1) {
		// An unknown number is not an error, because the user does not back up Secrets.
		c.backup.Skipped[ReasonSecret] = content.Count
	}
}

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

type selection struct {
	// uids are the UIDs of all objects that were found.
	uids sets.Set[types.UID]
	// services are the names of Services whose Endpoints the cluster creates.
	services sets.Set[string]
	// notListed are kinds that were not listed. An object whose controller is of such a kind is
	// treated as controlled.
	notListed sets.Set[schema.GroupKind]
}

func newSelection(found []*unstructured.Unstructured, listed, known []resourcetypes.Type) *selection {
	s := &selection{
		uids: sets.New[types.UID](), services: sets.New[string](), notListed: sets.New[schema.GroupKind](),
	}
	for _, object := range found {
		s.uids.Insert(object.GetUID())
		if groupKind(object).String() == "Service" && len(mapAt(object.Object, "spec", "selector")) > 0 {
			s.services.Insert(object.GetName())
		}
	}
	for _, one := range known {
		s.notListed.Insert(one.GroupVersionKind().GroupKind())
	}
	for _, one := range listed {
		s.notListed.Delete(one.GroupVersionKind().GroupKind())
	}
	return s
}

// skipReason returns why an object is not in the backup, or "" if it is.
func (s *selection) skipReason(object *unstructured.Unstructured) Reason {
	switch {
	case s.isControlled(object):
		return ReasonControlled
	case s.isGenerated(object):
		return ReasonGenerated
	case isCompleted(object):
		return ReasonCompleted
	}
	return ""
}

// isControlled reports whether the controller of an object is also in the namespace. If the
// controller no longer exists or could not be read, the backup includes the object.
func (s *selection) isControlled(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	if groupKind(object).String() == "PersistentVolumeClaim" && owner.Kind != "Pod" {
		// Users change the size and the labels of the claims of a StatefulSet, which adopts a restored claim. A Pod rejects a
		// restored claim for its ephemeral volume.
		return false
	}
	return s.uids.Has(owner.UID) ||
		s.notListed.Has(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
}

// isGenerated reports whether the cluster creates an object by itself.
func (s *selection) isGenerated(object *unstructured.Unstructured) bool {
	switch groupKind(object).String() {
	case "Event", "Event.events.k8s.io", "Lease.coordination.k8s.io", "PodCertificateRequest.certificates.k8s.io":
		return true
	case "ConfigMap":
		return object.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return object.GetName() == "default" && isUnmodified(object)
	case "Endpoints":
		return s.services.Has(object.GetName())
	}
	return false
}

// isUnmodified reports whether a ServiceAccount has not been changed since the cluster created it.
func isUnmodified(account *unstructured.Unstructured) bool {
	for _, field := range []string{"imagePullSecrets", "secrets", "automountServiceAccountToken"} {
		if _, ok := account.Object[field]; ok {
			return false
		}
	}
	return len(account.GetLabels()) == 0 && len(account.GetAnnotations()) == 0
}

// isCompleted reports whether an object is a Job or a Pod that has completed.
func isCompleted(object *unstructured.Unstructured) bool {
	switch groupKind(object).String() {
	case "Pod":
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed"
	case "Job.batch":
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return (fields["type"] == "Complete" || fields["type"] == "Failed") && fields["status"] == "True"
		})
	}
	return false
}
