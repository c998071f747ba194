// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const kindClusterRole = "ClusterRole"

// maxCheckedSubjects limits the number of requests for one RoleBinding. The API server recognizes all
// subjects of a RoleBinding at the same time.
const maxCheckedSubjects = 3

// sampleLifetime is how long the rules of a ClusterRole are assumed not to change, and missingLifetime how long a
// missing one is assumed not to be created.
const (
	sampleLifetime  = time.Minute
	missingLifetime = time.Second
)

// Grants determines whether the API server grants the permissions of RoleBindings.
type Grants struct {
	// Client sends SubjectAccessReviews. Live reads roles from the API server.
	Client client.Client
	Live   client.Reader

	Clock clock.PassiveClock

	mutex sync.Mutex
	// samples are the samples of ClusterRoles, by name.
	samples map[string]sample
}

// sample is what is known about a role.
type sample struct {
	// exists is false if the role does not exist.
	exists bool
	// attributes describe a request for a resource that the role permits, without a namespace; nil if there is none.
	attributes *authorizationv1.ResourceAttributes
	// end is until when this is assumed not to change.
	end time.Time
}

// Check returns a problem if a RoleBinding is not effective yet. A role without rules for resources
// grants nothing that could be checked.
func (g *Grants) Check(
	ctx context.Context, namespace *corev1.Namespace, manifest *unstructured.Unstructured,
) error {
	binding, found, err := g.role(ctx, namespace, manifest)
	if err != nil || found.attributes == nil {
		return err
	}
	attributes := *found.attributes
	attributes.Namespace = namespace.Name
	for _, subject := range binding.Subjects[:min(len(binding.Subjects), maxCheckedSubjects)] {
		isAllowed, err := review(ctx, g.Client, subject, &attributes)
		switch {
		case err != nil:
			return err
		case !isAllowed:
			return template.Problemf(v1alpha1.ReasonPermissionsNotGranted,
				"waiting until the API server grants the permissions of RoleBinding %q", binding.Name)
		}
	}
	return nil
}

// review reports whether the API server would allow a request of a subject.
func review(
	ctx context.Context, reviewer client.Client, subject rbacv1.Subject, attributes *authorizationv1.ResourceAttributes,
) (bool, error) {
	request := &authorizationv1.SubjectAccessReview{Spec: permissions.Review(subject, attributes)}
	if err := reviewer.Create(ctx, request); err != nil {
		return false, fmt.Errorf("failed to review the access of %s %q: %w", subject.Kind, subject.Name, err)
	}
	return request.Status.Allowed, nil
}

// role returns the decoded RoleBinding of a manifest, and what is known about its role. If the role does not exist, it
// returns a problem.
func (g *Grants) role(
	ctx context.Context, namespace *corev1.Namespace, manifest *unstructured.Unstructured,
) (binding rbacv1.RoleBinding, found sample, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, &binding); err != nil {
		return binding, found, fmt.Errorf("failed to decode RoleBinding %q: %w", manifest.GetName(), err)
	}
	ref := binding.RoleRef
	if found, err = g.sample(ctx, namespace.Name, ref); err == nil && !found.exists {
		err = template.Problemf(v1alpha1.ReasonRoleNotFound,
			"RoleBinding %q grants nothing, because %s %q does not exist", binding.Name, ref.Kind, ref.Name)
	}
	return binding, found, err
}

// sample returns what is known about a role. ClusterRoles are read once for all Namespaces.
func (g *Grants) sample(ctx context.Context, namespace string, ref rbacv1.RoleRef) (sample, error) {
	// The operator may list, but not get, roles.
	byName := client.MatchingFields{metav1.ObjectNameField: ref.Name}
	if ref.Kind != kindClusterRole {
		var roles rbacv1.RoleList
		if err := g.Live.List(ctx, &roles, client.InNamespace(namespace), byName); err != nil {
			return sample{}, fmt.Errorf("failed to read Role %q: %w", ref.Name, err)
		}
		for _, role := range roles.Items {
			return sample{exists: true, attributes: sampleOf(role.Rules)}, nil
		}
		return sample{}, nil
	}
	g.mutex.Lock()
	known, ok := g.samples[ref.Name]
	g.mutex.Unlock()
	if ok && !g.Clock.Now().After(known.end) {
		return known, nil
	}
	var roles rbacv1.ClusterRoleList
	if err := g.Live.List(ctx, &roles, byName); err != nil {
		return sample{}, fmt.Errorf("failed to read ClusterRole %q: %w", ref.Name, err)
	}
	known = sample{end: g.Clock.Now().Add(missingLifetime)}
	for _, role := range roles.Items {
		known = sample{exists: true, attributes: sampleOf(role.Rules), end: g.Clock.Now().Add(sampleLifetime)}
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	template.Put(&g.samples, ref.Name, known)
	return known, nil
}

// sampleOf returns a request that the first rule for resources permits.
func sampleOf(rules []rbacv1.PolicyRule) *authorizationv1.ResourceAttributes {
	for _, rule := range rules {
		if len(rule.Verbs) == 0 || len(rule.Resources) == 0 || len(rule.APIGroups) == 0 {
			continue
		}
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		attributes := &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		}
		if len(rule.ResourceNames) > 0 {
			attributes.Name = rule.ResourceNames[0]
		}
		return attributes
	}
	return nil
}

// findRole returns a problem if an object is a RoleBinding to a ClusterRole that does not exist. It is for initialized
// Namespaces: it reads a ClusterRole once for all of them.
func (g *Grants) findRole(ctx context.Context, namespace *corev1.Namespace, manifest *unstructured.Unstructured) error {
	kind, _, _ := unstructured.NestedString(manifest.Object, "roleRef", "kind")
	if manifest.GroupVersionKind().GroupKind() != plan.RoleBindings || kind != kindClusterRole {
		return nil
	}
	_, _, err := g.role(ctx, namespace, manifest)
	return err
}

// The operator watches the objects of templates with its own permissions, which a ClusterRole grants for the types that
// templates contain.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=nslifecycle-template-objects,verbs=get;update;escalate
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=list
// The ServiceAccounts of templates, and of objects in templates.
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch
// The permissions of RoleBindings in templates.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;roles,verbs=list

// WatchPermissions is the ClusterRole with the types that the operator may watch.
type WatchPermissions interface {
	Has(ctx context.Context, resource schema.GroupResource) bool
	Add(ctx context.Context, resource schema.GroupResource) error
}

// Permissions let the operator watch the types of objects.
type Permissions struct {
	WatchPermissions
	// Client sends SubjectAccessReviews.
	Client client.Client
	// SystemNamespace is the namespace of the ServiceAccounts of templates.
	SystemNamespace string
}

// Permit lets the operator watch the type of an object, if the ServiceAccount of the template has a verb for it.
// Otherwise, an author whose template is not authorized could extend the permissions of the operator.
func (p *Permissions) Permit(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, verb string, resource schema.GroupResource,
	namespace, name string,
) error {
	if p.Has(ctx, resource) {
		return nil
	}
	account := tmpl.Spec.ServiceAccountName
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: p.SystemNamespace, Name: account}
	isAllowed, err := review(ctx, p.Client, subject, &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: resource.Group, Resource: resource.Resource, Name: name,
	})
	switch {
	case err != nil:
		return err
	case !isAllowed:
		return template.Problemf(v1alpha1.ReasonForbidden,
			"ServiceAccount %q cannot %s %s %q in namespace %q", account, verb, resource, name, namespace)
	}
	return p.Add(ctx, resource)
}
