// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package contentrole

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the rules of a role: an aggregated API server can list any number of types in discovery.
const (
	maxTypes         = 4096
	maxTypesPerGroup = 256 // of types that kube-apiserver does not serve
	maxBytes         = 256 << 10
)

// Server is what serves a group version.
type Server int

const (
	// ServerUnknown means that no APIService exists for the group version.
	ServerUnknown Server = iota
	// ServerLocal is kube-apiserver itself, also for CustomResourceDefinitions.
	ServerLocal
	// ServerAggregated is an aggregated API server.
	ServerAggregated
)

// Resource is a resource type in one version.
type Resource struct {
	schema.GroupVersionResource
	IsNamespaced bool
	Verbs        []string
}

// Discovery is what an API server shows.
type Discovery struct {
	// Resources are the types in all versions, without subresources.
	Resources []Resource
	// FailedGroups are the groups with a version that could not be discovered.
	FailedGroups sets.Set[string]
	// Servers has an entry for each APIService. Nil means that they are unknown.
	Servers map[schema.GroupVersion]Server
}

// Profile is what a role is for.
type Profile struct {
	// Verbs are sorted. A type that does not support Needs is not added.
	Verbs []string
	Needs string
	// HasCollections adds the verb deletecollection where finalization requires it.
	HasCollections bool
}

// Reasons why a type is not added to a role.
const (
	refusedServer   = "only kube-apiserver may serve its API group"
	refusedScope    = "a version of it is cluster-scoped"
	refusedUnknown  = "another version of its API group cannot be discovered"
	refusedTooMany  = "the ClusterRole contains too many types"
	refusedReserved = "the operator never writes objects of its API group"
	refusedName     = "its name is invalid"
)

type entry struct {
	rank              int
	deletesCollection bool
}

// The order in which types are added until the role is full.
const (
	rankLocal = iota
	rankAggregated
	rankAbsent // in the role, but not shown by discovery
)

// Compute returns the rules of a role: for its current types, and for the types in discovery for which isWanted returns
// true. It also returns why it does not add other types.
func (p Profile) Compute(
	current []rbacv1.PolicyRule, found Discovery, isWanted func(schema.GroupResource) bool,
) (rules []rbacv1.PolicyRule, refused map[schema.GroupResource]string) {
	types := p.parse(current)
	clusterScoped, localGroups := sets.New[schema.GroupResource](), sets.New[string]()
	for _, resource := range found.Resources {
		if !resource.IsNamespaced {
			clusterScoped.Insert(resource.GroupResource())
			delete(types, resource.GroupResource())
		}
		if found.Servers[resource.GroupVersion()] == ServerLocal {
			localGroups.Insert(resource.Group)
		}
	}
	refused = map[schema.GroupResource]string{}
	for _, resource := range found.Resources {
		one := resource.GroupResource()
		if !resource.IsNamespaced || !slices.Contains(resource.Verbs, p.Needs) || !isWanted(one) {
			continue
		}
		server := found.Servers[resource.GroupVersion()]
		known, ok := types[one]
		if reason := refusal(one, server, clusterScoped, localGroups, found.FailedGroups); reason != "" {
			if !ok {
				refused[one] = reason
			}
			continue
		}
		delete(refused, one)
		if !ok {
			known.rank = rankAbsent
		}
		rank := rankLocal
		if server == ServerAggregated {
			rank = rankAggregated
		}
		known.rank = min(known.rank, rank)
		known.deletesCollection = known.deletesCollection || p.HasCollections && needsCollection(resource, server)
		types[one] = known
	}
	fit(types, refused)
	return p.format(types), refused
}

// refusal returns why a version of a type is not added, or the empty string.
func refusal(
	one schema.GroupResource, server Server, clusterScoped sets.Set[schema.GroupResource],
	localGroups, failedGroups sets.Set[string],
) string {
	isReserved := isBuiltIn(one.Group) && (localGroups.Has(one.Group) || !strings.Contains(one.Group, "."))
	switch {
	case !isValid(one):
		return refusedName
	case one.Group == admissionv1.GroupName:
		return refusedReserved
	case clusterScoped.Has(one):
		return refusedScope
	case server != ServerLocal && isReserved:
		return refusedServer
	case server != ServerLocal && failedGroups.Has(one.Group):
		return refusedUnknown
	}
	return ""
}

// isBuiltIn reports whether the name of a group is reserved for Kubernetes.
func isBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// isValid reports whether RBAC can name a type without naming others.
func isValid(one schema.GroupResource) bool {
	isValidGroup := one.Group == "" || len(validation.IsDNS1123Subdomain(one.Group)) == 0
	return isValidGroup && len(validation.IsDNS1123Label(one.Resource)) == 0
}

// needsCollection reports whether finalization may send deletecollection requests for a type: the type cannot be
// listed, or its aggregated API server may ignore the deletion of single objects.
func needsCollection(resource Resource, server Server) bool {
	return !isBuiltIn(resource.Group) && slices.Contains(resource.Verbs, verbCollection) &&
		(server == ServerAggregated || !slices.Contains(resource.Verbs, "list"))
}

const verbCollection = "deletecollection"

// parse returns the types of a role. It ignores what Compute does not write.
func (p Profile) parse(rules []rbacv1.PolicyRule) map[schema.GroupResource]entry {
	types := map[schema.GroupResource]entry{}
	for _, rule := range rules {
		if len(rule.ResourceNames) > 0 || !sets.New(rule.Verbs...).HasAll(p.Verbs...) {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				one := schema.GroupResource{Group: group, Resource: resource}
				if !isValid(one) || group == admissionv1.GroupName {
					continue
				}
				deletes := p.HasCollections && !isBuiltIn(group) && slices.Contains(rule.Verbs, verbCollection)
				types[one] = entry{rankAbsent, deletes || types[one].deletesCollection}
			}
		}
	}
	return types
}

// fit removes the types that exceed the limits.
func fit(types map[schema.GroupResource]entry, refused map[schema.GroupResource]string) {
	byRank := slices.SortedFunc(maps.Keys(types), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(types[a].rank, types[b].rank), compare(a, b))
	})
	inGroup, count, bytes := map[string]int{}, 0, 0
	for _, one := range byRank {
		rank, size := types[one].rank, len(one.Group)+len(one.Resource)
		isOverLimit := count == maxTypes || bytes+size > maxBytes ||
			rank != rankLocal && inGroup[one.Group] == maxTypesPerGroup
		switch {
		case !isOverLimit:
			count, bytes = count+1, bytes+size
			if rank != rankLocal {
				inGroup[one.Group]++
			}
			continue
		case rank != rankAbsent:
			refused[one] = refusedTooMany
		}
		delete(types, one)
	}
}

func compare(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}

// format returns one rule for each API group and set of verbs.
func (p Profile) format(types map[schema.GroupResource]entry) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, deletesCollection := range []bool{false, true} {
		verbs := p.Verbs
		if deletesCollection {
			verbs = slices.Sorted(slices.Values(append(slices.Clone(p.Verbs), verbCollection)))
		}
		for _, one := range slices.SortedFunc(maps.Keys(types), compare) {
			if types[one].deletesCollection != deletesCollection {
				continue
			}
			if last := len(rules) - 1; last >= 0 && rules[last].APIGroups[0] == one.Group &&
				slices.Equal(rules[last].Verbs, verbs) {
				rules[last].Resources = append(rules[last].Resources, one.Resource)
				continue
			}
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{one.Group}, Resources: []string{one.Resource}, Verbs: verbs,
			})
		}
	}
	slices.SortStableFunc(rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.APIGroups[0], b.APIGroups[0]) })
	return rules
}
