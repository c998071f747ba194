// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package contentrole

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const (
	// effectiveTimeout limits how long an addition waits until the API server applies it, which takes milliseconds.
	effectiveTimeout  = time.Second
	effectiveInterval = 5 * time.Millisecond
	// failureInterval is the minimum time between attempts to update a role after a failure, for example because the
	// operator lacks the verb escalate.
	failureInterval = 30 * time.Second
	// checkInterval is how long Add assumes that a role has not changed.
	checkInterval = time.Minute
)

// Profiles of the two roles.
var (
	content = Profile{Verbs: []string{"delete", "list", "watch"}, Needs: "delete", HasCollections: true}
	objects = Profile{Verbs: []string{"list", "watch"}, Needs: "list"}
)

// Keeper keeps one ClusterRole. A missing role, or one that the operator may not read, is not an error: an operator
// without it has its permissions from elsewhere.
type Keeper struct {
	profile Profile
	// name is the name of the role; empty if there is none.
	name string
	// subject is the operator, as in the arguments of kubectl create clusterrolebinding.
	subject   string
	client    client.Client
	discovery *discovery.DiscoveryClient
	clock     clock.PassiveClock
	log       logr.Logger

	// updates is held during an update.
	updates  sync.Mutex
	failedAt time.Time

	// mutex guards the fields below.
	mutex sync.Mutex
	// known are the types in the role when it was last read, and wanted the types that the role should have contained.
	known, wanted map[schema.GroupResource]entry
	refused       map[schema.GroupResource]string
	readAt        time.Time
}

// Config configures a Keeper. All fields are required.
type Config struct {
	// User is the user name of the operator.
	User string
	// Client reads from the API server, not from a cache.
	Client    client.Client
	Discovery *discovery.DiscoveryClient
	Clock     clock.PassiveClock
	Log       logr.Logger
}

// NewContent returns the keeper of the ClusterRole content.
func NewContent(config Config) *Keeper { return newKeeper(config, content, "content") }

// NewTemplateObjects returns the keeper of the ClusterRole template-objects.
func NewTemplateObjects(config Config) *Keeper { return newKeeper(config, objects, "template-objects") }

func newKeeper(config Config, profile Profile, name string) *Keeper {
	k := &Keeper{
		profile: profile, client: config.Client, discovery: config.Discovery, clock: config.Clock,
		log: config.Log.WithName("roles"), subject: "user=" + config.User,
	}
	if namespace, account, err := serviceaccount.SplitUsername(config.User); err == nil {
		k.name, k.subject = roleName(account, name), "serviceaccount="+namespace+":"+account
	}
	return k
}

// roleName returns the name of a role, with the prefix in the name of the ServiceAccount. Another installation of this
// manager in the cluster has other names.
func roleName(account, name string) string {
	for _, suffix := range []string{"controller-manager", "finalization"} {
		if prefix, ok := strings.CutSuffix(account, suffix); ok {
			return prefix + name
		}
	}
	return ""
}

// ensure adds the types that discovery shows and that isWanted selects to the role. It returns when the API server
// applies the change.
func (k *Keeper) ensure(ctx context.Context, found Discovery, isWanted func(schema.GroupResource) bool) error {
	if k.name == "" {
		return nil
	}
	k.updates.Lock()
	defer k.updates.Unlock()
	var added *schema.GroupResource
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var err error
		added, err = k.update(ctx, &found, isWanted)
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to update ClusterRole %q: %w", k.name, err)
	}
	if added != nil {
		k.waitUntilEffective(ctx, *added)
	}
	return nil
}

// update updates the role if necessary, and returns one of the added types.
func (k *Keeper) update(
	ctx context.Context, found *Discovery, isWanted func(schema.GroupResource) bool,
) (*schema.GroupResource, error) {
	role, err := k.read(ctx)
	if role == nil || err != nil {
		return nil, err
	}
	if !k.profile.isOutdated(role.Rules, *found, isWanted) || k.clock.Since(k.failedAt) < failureInterval {
		return nil, nil
	}
	if found.Servers == nil {
		if found.Servers, err = ListServers(ctx, k.client); err != nil {
			return nil, err
		}
	}
	rules, refused := k.profile.Compute(role.Rules, *found, isWanted)
	k.setWanted(rules, refused)
	if apiequality.Semantic.DeepEqual(rules, role.Rules) {
		return nil, nil
	}
	before := k.profile.parse(role.Rules)
	role.Rules = rules
	if err := k.client.Update(ctx, role, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		if !apierrors.IsConflict(err) {
			k.failedAt = k.clock.Now()
		}
		return nil, err
	}
	k.setKnown(rules)
	for one := range k.profile.parse(rules) {
		if _, ok := before[one]; !ok {
			k.log.Info("Added types to a ClusterRole", "name", k.name, "rules", len(rules))
			return &one, nil
		}
	}
	return nil, nil
}

// read returns the role, or nil if there is none.
func (k *Keeper) read(ctx context.Context) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	err := k.client.Get(ctx, client.ObjectKey{Name: k.name}, role)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	k.setKnown(role.Rules)
	return role, nil
}

func (k *Keeper) setKnown(rules []rbacv1.PolicyRule) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.known, k.readAt = k.profile.parse(rules), k.clock.Now()
}

func (k *Keeper) setWanted(rules []rbacv1.PolicyRule, refused map[schema.GroupResource]string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.wanted, k.refused = k.profile.parse(rules), refused
}

// waitUntilEffective waits until the API server applies the role with a type. Another API server may be slower; its
// response is then repeated like any other error.
func (k *Keeper) waitUntilEffective(ctx context.Context, one schema.GroupResource) {
	err := wait.PollUntilContextTimeout(ctx, effectiveInterval, effectiveTimeout, true,
		func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: one.Group, Resource: one.Resource, Verb: "list",
				},
			}}
			err := k.client.Create(ctx, review)
			return review.Status.Allowed, err
		})
	if err != nil {
		k.log.Error(err, "The API server does not grant the permissions of a ClusterRole", "name", k.name,
			"type", one.String())
	}
}

// isOutdated reports whether a role lacks a type, or contains what Compute does not write.
func (p Profile) isOutdated(
	current []rbacv1.PolicyRule, found Discovery, isWanted func(schema.GroupResource) bool,
) bool {
	types := p.parse(current)
	if !apiequality.Semantic.DeepEqual(p.format(types), current) {
		return true
	}
	return slices.ContainsFunc(found.Resources, func(resource Resource) bool {
		_, ok := types[resource.GroupResource()]
		if !resource.IsNamespaced {
			return ok
		}
		return !ok && slices.Contains(resource.Verbs, p.Needs) && isWanted(resource.GroupResource())
	})
}

// Remedy returns what an administrator can do if the operator lacks the permissions for a type. It returns the empty
// string if the role contains the type: then, an aggregated API server requires another permission.
func (k *Keeper) Remedy(one schema.GroupResource) string {
	k.mutex.Lock()
	_, found := k.known[one]
	reason, verbs := k.refused[one], slices.Clone(k.profile.Verbs)
	if k.wanted[one].deletesCollection {
		verbs = append(verbs, verbCollection)
	}
	k.mutex.Unlock()
	switch {
	case found:
		return ""
	case reason != "":
		return fmt.Sprintf("the operator does not add the type to ClusterRole %q: %s", k.name, reason)
	}
	role := "nslifecycle-content-" + one.String()
	return "to grant the permission, run: " +
		shell.Then(shell.Then(
			shell.Command("kubectl create clusterrole %s --verb=%s --resource=%s", role, strings.Join(verbs, ","), one.String()),
			shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s --%s", role, role, k.subject)),
			shell.Command("kubectl label clusterrole/%s clusterrolebinding/%s %s=%s", role, role,
				internalv1alpha1.LabelName, internalv1alpha1.Name))
}

// ListServers returns what serves the group versions of the selected APIServices.
func ListServers(
	ctx context.Context, reader client.Reader, selectors ...client.ListOption,
) (map[schema.GroupVersion]Server, error) {
	services := &unstructured.UnstructuredList{}
	services.SetAPIVersion("apiregistration.k8s.io/v1")
	services.SetKind("APIServiceList")
	if err := reader.List(ctx, services, selectors...); err != nil {
		return nil, fmt.Errorf("failed to list APIServices: %w", err)
	}
	servers := map[schema.GroupVersion]Server{}
	for i := range services.Items {
		service := services.Items[i].Object
		group, _, _ := unstructured.NestedString(service, "spec", "group")
		version, _, _ := unstructured.NestedString(service, "spec", "version")
		backend, _, _ := unstructured.NestedMap(service, "spec", "service")
		server := ServerLocal
		if len(backend) > 0 {
			server = ServerAggregated
		}
		servers[schema.GroupVersion{Group: group, Version: version}] = server
	}
	return servers, nil
}

// IsAggregated returns a function that reports whether an APIService refers to an aggregated API server. It lists the
// APIService, because the operator has no permission to get it. Without the API of APIServices, kube-apiserver serves
// all types.
func IsAggregated(live client.Reader) func(context.Context, schema.GroupVersion) (bool, error) {
	return func(ctx context.Context, groupVersion schema.GroupVersion) (bool, error) {
		name := groupVersion.Version + "." + groupVersion.Group
		servers, err := ListServers(ctx, live, client.MatchingFields{metav1.ObjectNameField: name})
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return servers[groupVersion] == ServerAggregated, err
	}
}

// ServerPreferredNamespacedResourcesWithContext discovers the namespaced types, and adds those whose objects can be
// deleted to the role before it returns them. It implements resourcetypes.Discoverer.
func (k *Keeper) ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error) {
	recorded := &recorder{DiscoveryClient: k.discovery, lists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, recorded)
	all := func(schema.GroupResource) bool { return true }
	if ensureErr := k.ensure(ctx, recorded.discovery(err), all); ensureErr != nil {
		// The types that the role lacks are reported on the namespaces.
		k.log.Error(ensureErr, "Failed to add types to a ClusterRole", "name", k.name)
	}
	return lists, err
}

// Has reports whether the role contains a type, or is not kept.
func (k *Keeper) Has(ctx context.Context, one schema.GroupResource) bool {
	if k.name == "" {
		return true
	}
	k.mutex.Lock()
	isFresh := !k.readAt.IsZero() && k.clock.Since(k.readAt) < checkInterval
	k.mutex.Unlock()
	if !isFresh {
		// Without the role, or if it cannot be read, the requests themselves show whether they are allowed.
		if role, err := k.read(ctx); role == nil || err != nil {
			return true
		}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	_, ok := k.known[one]
	return ok
}

// Add adds a type to the role.
func (k *Keeper) Add(ctx context.Context, one schema.GroupResource) error {
	recorded := &recorder{DiscoveryClient: k.discovery, lists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	_, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, recorded)
	return k.ensure(ctx, recorded.discovery(err), func(other schema.GroupResource) bool { return other == one })
}

// recorder is a discovery client that keeps the types of all versions. One version that is cluster-scoped suffices to
// refuse a type, and the preferred version may be another one.
type recorder struct {
	*discovery.DiscoveryClient

	mutex sync.Mutex
	lists map[schema.GroupVersion]*metav1.APIResourceList
}

// GroupsAndMaybeResourcesWithContext implements discovery.AggregatedDiscoveryInterfaceWithContext.
func (r *recorder) GroupsAndMaybeResourcesWithContext(ctx context.Context) (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	groups, lists, failed, err := r.DiscoveryClient.GroupsAndMaybeResourcesWithContext(ctx)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.Copy(r.lists, lists)
	return groups, lists, failed, err
}

// ServerResourcesForGroupVersionWithContext implements discovery.ServerResourcesInterfaceWithContext.
func (r *recorder) ServerResourcesForGroupVersionWithContext(
	ctx context.Context, groupVersion string,
) (*metav1.APIResourceList, error) {
	list, err := r.DiscoveryClient.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
	if parsed, parseErr := schema.ParseGroupVersion(groupVersion); parseErr == nil && list != nil {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.lists[parsed] = list
	}
	return list, err
}

// discovery returns what was recorded, after a discovery that returned an error.
func (r *recorder) discovery(err error) Discovery {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := Discovery{FailedGroups: sets.New[string]()}
	for groupVersion, list := range r.lists {
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue
			}
			found.Resources = append(found.Resources, Resource{
				GroupVersionResource: groupVersion.WithResource(resource.Name),
				IsNamespaced:         resource.Namespaced, Verbs: resource.Verbs,
			})
		}
	}
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for groupVersion := range failed {
		found.FailedGroups.Insert(groupVersion.Group)
	}
	return found
}
