// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// isOverdue reports whether the deletion exceeds the progress deadline. The diagnosis searches for
// the owners of finalizers only in this case.
func (c *collection) isOverdue() bool {
	return c.facts.IsOverdue(c.facts.Namespace.DeletionTimestamp.Time)
}

func (c *collection) hasExternalFinalizers() bool {
	return c.isOverdue() && len(owners.ExternalFinalizers(c.facts)) > 0
}

// ownerNamespace returns the namespace to search for owners, or "" for all namespaces.
func (c *collection) ownerNamespace() string { return c.facts.UnlessPublic("", c.facts.Namespace.Name) }

// readLeases reads the Leases of the control plane. It skips the Leases of nodes, because there can be
// thousands.
func (c *collection) readLeases(ctx context.Context) {
	list := &coordinationv1.LeaseList{}
	notOfNodes := client.MatchingFieldsSelector{
		Selector: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease),
	}
	if !c.isOverdue() || !c.list(ctx, diagnosis.SourceLeases, list, notOfNodes) {
		return
	}
	c.update(func(facts *diagnosis.Facts) {
		facts.Leases = slices.DeleteFunc(list.Items, func(lease coordinationv1.Lease) bool {
			return !owners.IsControlPlaneLease(&lease)
		})
	})
}

func (c *collection) readClusterRoleBindings(ctx context.Context) {
	list := &rbacv1.ClusterRoleBindingList{}
	if c.list(ctx, diagnosis.SourceClusterRoleBindings, list) {
		c.update(func(facts *diagnosis.Facts) { facts.ClusterRoleBindings = list.Items })
	}
}

func (c *collection) readRolesOfOwners(ctx context.Context) {
	if c.hasExternalFinalizers() {
		inParallel([]func(context.Context){c.readClusterRoleBindings, c.readClusterRoles},
			func(read func(context.Context)) { read(ctx) })
	}
}

func (c *collection) readWorkloads(ctx context.Context) {
	if !c.hasExternalFinalizers() {
		return
	}
	deployments, statefulSets, daemonSets := &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}
	lists := map[diagnosis.Source]client.ObjectList{
		diagnosis.SourceDeployments: deployments, diagnosis.SourceStatefulSets: statefulSets,
		diagnosis.SourceDaemonSets: daemonSets,
	}
	inParallel(slices.Collect(maps.Keys(lists)), func(source diagnosis.Source) {
		c.list(ctx, source, lists[source], client.InNamespace(c.ownerNamespace()))
	})
	var workloads []diagnosis.Workload
	add := func(source diagnosis.Source, of metav1.Object, pods *corev1.PodTemplateSpec, desired, ready int32) {
		workloads = append(workloads, makeWorkload(source, of, pods, desired, ready))
	}
	for _, of := range deployments.Items {
		add(diagnosis.SourceDeployments, &of, &of.Spec.Template, ptr.Deref(of.Spec.Replicas, 1), of.Status.ReadyReplicas)
	}
	for _, of := range statefulSets.Items {
		add(diagnosis.SourceStatefulSets, &of, &of.Spec.Template, ptr.Deref(of.Spec.Replicas, 1), of.Status.ReadyReplicas)
	}
	for _, of := range daemonSets.Items {
		add(diagnosis.SourceDaemonSets, &of, &of.Spec.Template, of.Status.DesiredNumberScheduled, of.Status.NumberReady)
	}
	c.update(func(facts *diagnosis.Facts) {
		facts.Workloads = append(facts.Workloads, workloads...)
		sortBy(facts.Workloads, func(of diagnosis.Workload) []string {
			return []string{string(of.Source), of.Namespace, of.Name}
		})
	})
}

// makeWorkload collects what identifies a workload. It ignores commands, arguments and environment
// variables, which can be confidential.
func makeWorkload(
	source diagnosis.Source, object metav1.Object, template *corev1.PodTemplateSpec, desired, ready int32,
) diagnosis.Workload {
	account := cmp.Or(template.Spec.ServiceAccountName, "default")
	workload := diagnosis.Workload{
		Source: source, Namespace: object.GetNamespace(), Name: object.GetName(),
		ServiceAccount: types.NamespacedName{Namespace: object.GetNamespace(), Name: account},
		Desired:        desired, Ready: ready, Labels: labelsOf(object, template), Releases: diagnosis.ReleasesOf(object),
	}
	for _, container := range template.Spec.Containers {
		workload.Containers = append(workload.Containers, container.Name)
		workload.Images = append(workload.Images, container.Image)
	}
	return workload
}

func labelsOf(object metav1.Object, template *corev1.PodTemplateSpec) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	maps.Copy(labels, template.Labels)
	return labels
}

// readAccessReviews checks whether the ServiceAccounts of possible owners have the permissions to remove
// finalizers. Public findings must not depend on ServiceAccounts in other namespaces.
func (c *collection) readAccessReviews(ctx context.Context) {
	if c.IsPublic {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	var needed []owners.AccessReview
	// The step for ServiceAccounts, which the search for owners reads, can run at the same time.
	c.update(func(facts *diagnosis.Facts) { needed = owners.AccessReviewsNeeded(facts) })
	inParallel(needed, func(review owners.AccessReview) { c.readAccessReview(ctx, review) })
	c.update(func(facts *diagnosis.Facts) {
		sortBy(facts.AccessReviews, func(review diagnosis.AccessReview) []string {
			return []string{review.ServiceAccount.String(), review.Resource.String()}
		})
	})
}

// readPermissions checks the permissions that errors name as missing. An aggregated API server can deny a request
// although kube-apiserver does not. Public findings must not depend on the permissions of users.
func (c *collection) readPermissions(ctx context.Context) {
	if c.IsPublic {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	inParallel(rules.PermissionsNeeded(c.facts), func(permission diagnosis.DeniedPermission) {
		user := permission.User
		if permission.IsOwn {
			user = ""
		}
		allowed, err := c.reviewAccess(ctx, user, authorizationv1.ResourceAttributes{
			Namespace: c.facts.Namespace.Name, Verb: permission.Verb, Group: permission.Group, Resource: permission.Resource,
		})
		if err != nil {
			c.addFailure(diagnosis.SourcePermissions, "", err)
			return
		}
		c.update(func(facts *diagnosis.Facts) { facts.Permissions[permission] = allowed })
	})
}

func (c *collection) readAccessReview(ctx context.Context, review owners.AccessReview) {
	missing, err := c.reviewOwner(ctx, review, c.facts.Namespace.Name)
	switch {
	case apierrors.IsForbidden(err):
		c.addUnread(diagnosis.SourceAccessReviews, "the permissions of ServiceAccounts could not be checked: permission to "+
			"create "+string(diagnosis.SourceAccessReviews)+" is missing")
	case err != nil:
		c.addFailure(diagnosis.SourceAccessReviews, "", err)
	default:
		c.update(func(facts *diagnosis.Facts) {
			facts.AccessReviews = append(facts.AccessReviews, diagnosis.AccessReview{
				ServiceAccount: review.ServiceAccount, Resource: review.Type.GroupResource(), Missing: missing,
			})
		})
	}
}

// readServiceAccounts determines which ServiceAccounts of possible owners exist.
func (c *collection) readServiceAccounts(ctx context.Context) {
	inParallel(owners.ServiceAccountsNeeded(c.facts), func(name types.NamespacedName) { c.readServiceAccount(ctx, name) })
}

func (c *collection) readServiceAccount(ctx context.Context, account types.NamespacedName) {
	list := &corev1.ServiceAccountList{}
	if !c.list(ctx, diagnosis.SourceServiceAccounts, list, client.InNamespace(account.Namespace), named(account.Name)) {
		return
	}
	c.update(func(facts *diagnosis.Facts) { facts.ServiceAccounts[account] = len(list.Items) > 0 })
}

// maxInitializerPods is the maximum number of running pods of a ServiceAccount that are read.
const maxInitializerPods = 10

func (c *collection) readClusterRoles(ctx context.Context) {
	list := &rbacv1.ClusterRoleList{}
	if c.list(ctx, diagnosis.SourceClusterRoles, list) {
		c.update(func(facts *diagnosis.Facts) { facts.ClusterRoles = list.Items })
	}
}

func (c *collection) readInitializers(ctx context.Context) {
	list := &v1alpha1.NamespaceInitializerConfigurationList{}
	if c.list(ctx, diagnosis.SourceConfigurations, list) {
		c.update(func(facts *diagnosis.Facts) {
			facts.Initializers = initializersOf(list)
			for i := range list.Items {
				facts.WaitingSubjects = append(facts.WaitingSubjects,
					initialization.ComparableSubjects(list.Items[i].WaitingSubjects)...)
			}
		})
	}
}

// readInitializersOfFinalizers reads the initializers if the Namespace has a namespace finalizer that
// can belong to one of them.
func (c *collection) readInitializersOfFinalizers(ctx context.Context) {
	if len(c.facts.ExternalNamespaceFinalizers()) > 0 {
		c.readInitializers(ctx)
	}
}

// initializersOf returns the initializers, sorted by the names of their configurations.
func initializersOf(list *v1alpha1.NamespaceInitializerConfigurationList) []diagnosis.RegisteredInitializer {
	var initializers []diagnosis.RegisteredInitializer
	for _, configuration := range list.Items {
		for _, initializer := range configuration.Initializers {
			initializers = append(initializers,
				diagnosis.RegisteredInitializer{
					Name: initializer.Name, Finalizer: initializer.NamespaceFinalizer, Configuration: configuration.Name,
					Subjects:  initialization.ComparableSubjects(initializer.Subjects),
					Timeout:   time.Duration(ptr.Deref(initializer.TimeoutSeconds, 0)) * time.Second,
					IsSkipped: initializer.FailurePolicy == v1alpha1.FailurePolicyIgnore,
				})
		}
	}
	sortBy(initializers, func(of diagnosis.RegisteredInitializer) []string { return []string{of.Configuration} })
	return initializers
}

// readInitializerPods reads the ServiceAccounts that may initialize the namespace, and their pods.
func (c *collection) readInitializerPods(ctx context.Context) {
	accounts := owners.InitializerAccounts(c.facts)
	inParallel(accounts[:min(len(accounts), owners.MaxChecked)], func(account types.NamespacedName) {
		c.readServiceAccount(ctx, account)
		c.readPodsOfServiceAccount(ctx, account)
	})
}

func (c *collection) readPodsOfServiceAccount(ctx context.Context, account types.NamespacedName) {
	list := &corev1.PodList{}
	running := client.MatchingFieldsSelector{Selector: fields.SelectorFromSet(fields.Set{
		"spec.serviceAccountName": account.Name, "status.phase": string(corev1.PodRunning),
	})}
	if !c.list(ctx, diagnosis.SourcePods, list, client.InNamespace(account.Namespace), running,
		client.Limit(maxInitializerPods)) {
		return
	}
	c.update(func(facts *diagnosis.Facts) {
		for i := range list.Items {
			facts.Workloads = append(facts.Workloads, diagnosis.Workload{
				Source: diagnosis.SourcePods, Namespace: account.Namespace, Name: list.Items[i].Name,
				ServiceAccount: account, Desired: 1, Ready: 1,
			})
		}
	})
}
