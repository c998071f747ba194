// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func (c *collection) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*responseTimeout)
	defer cancel()
	found, err := resourcetypes.Discover(ctx, c.discoverer)
	if err != nil {
		c.addFailure(diagnosis.SourceDiscovery, "", err)
		return
	}
	c.update(func(facts *diagnosis.Facts) { facts.ResourceTypes = found })
}

// discoverDirectly requests the resource types of each group version that discovery lacks, since the
// discovery cache of the API server can be stale.
func (c *collection) discoverDirectly(ctx context.Context) {
	if c.facts.ResourceTypes == nil {
		return
	}
	var requests []func()
	for groupVersion := range c.facts.ResourceTypes.Failed {
		requests = append(requests, func() {
			ctx, cancel := context.WithTimeout(ctx, responseTimeout)
			defer cancel()
			_, err := c.discoverer.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
			c.update(func(facts *diagnosis.Facts) {
				if facts.DirectDiscovery == nil {
					facts.DirectDiscovery = map[schema.GroupVersion]error{}
				}
				facts.DirectDiscovery[groupVersion] = err
			})
		})
	}
	inParallel(requests...)
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
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, ok := condition.(map[string]any)
		if !ok || fields["type"] != "Available" {
			continue
		}
		service.Available = fields["status"] == "True"
		service.Reason, _ = fields["reason"].(string)
		service.Message, _ = fields["message"].(string)
		since, _ := fields["lastTransitionTime"].(string)
		service.Since, _ = time.Parse(time.RFC3339, since)
	}
	return service, service.Service.Name == ""
}
