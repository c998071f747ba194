// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func (c *collection) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*responseTimeout)
	defer cancel()
	found, err := resourcetypes.Discover(ctx, c.discovery)
	if err != nil {
		c.addFailure(diagnosis.SourceDiscovery, "", err)
		return
	}
	c.update(func(facts *diagnosis.Facts) { facts.ResourceTypes = found })
}

// discoverDirectly requests the resource types of each group version that discovery lacks, because the
// discovery cache of the API server can be stale.
func (c *collection) discoverDirectly(ctx context.Context) {
	if c.facts.ResourceTypes == nil {
		return
	}
	failed := slices.Collect(maps.Keys(c.facts.ResourceTypes.Failed))
	inParallel(failed, func(groupVersion schema.GroupVersion) {
		ctx, cancel := context.WithTimeout(ctx, responseTimeout)
		defer cancel()
		_, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
		c.update(func(facts *diagnosis.Facts) { facts.DirectDiscovery[groupVersion] = err })
	})
}

func (c *collection) readAPIServices(ctx context.Context) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiServiceKind.GroupVersion().WithKind(apiServiceKind.Kind + "List"))
	if !c.list(ctx, diagnosis.SourceAPIServices, list) {
		return
	}
	var services []diagnosis.APIService
	for i := range list.Items {
		if service, isLocal := toAPIService(&list.Items[i]); !isLocal {
			services = append(services, service)
		}
	}
	c.update(func(facts *diagnosis.Facts) { facts.APIServices = services })
}

// toAPIService converts an APIService; isLocal reports whether kube-apiserver itself serves it.
func toAPIService(object *unstructured.Unstructured) (service diagnosis.APIService, isLocal bool) {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, fields...)
		return value
	}
	service.Name = object.GetName()
	service.GroupVersion = schema.GroupVersion{Group: text("spec", "group"), Version: text("spec", "version")}
	service.Service = types.NamespacedName{
		Namespace: text("spec", "service", "namespace"), Name: text("spec", "service", "name"),
	}
	if condition := meta.FindStatusCondition(conditionsOf(object), "Available"); condition != nil {
		service.Available = condition.Status == metav1.ConditionTrue
		service.Reason, service.Message = condition.Reason, condition.Message
		service.Since = condition.LastTransitionTime.Time
	}
	return service, service.Service.Name == ""
}

// conditionsOf returns the conditions of an object of any type. It ignores values with an unexpected
// type.
func conditionsOf(object *unstructured.Unstructured) []metav1.Condition {
	var conditions []metav1.Condition
	items, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string {
			value, _ := fields[key].(string)
			return value
		}
		since, _ := time.Parse(time.RFC3339, text("lastTransitionTime"))
		conditions = append(conditions, metav1.Condition{
			Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"),
			Message: text("message"), LastTransitionTime: metav1.NewTime(since),
		})
	}
	return conditions
}
