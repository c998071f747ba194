// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
)

// CacheOptions returns the options of a cache that strips managedFields and bounds Namespaces: the client of the
// manager must be that of nscache.NewClient. Of all policies and Leases, the cache contains only the policies of this
// project and the Leases of API servers. Of all webhook configurations, it contains only those of the hold webhooks and
// of the webhook for templates.
func CacheOptions(controllers Controllers) cache.Options {
	ours := cache.ByObject{Label: policies.Selector()}
	var state []string
	if controllers.Runs(Initialization) {
		state = initialization.StateAnnotations
	}
	options := cache.Options{
		DefaultTransform: stripDefault,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}: {Transform: nscache.BoundNamespace(state)},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					LabelSelector: labels.SelectorFromSet(labels.Set{
						graceperiod.APIServerLeaseLabel: graceperiod.APIServerLeaseValue,
					}),
				}},
			},
		},
	}
	if controllers.Runs(Admission) {
		options.ByObject[&admissionv1.MutatingWebhookConfiguration{}] = cache.ByObject{
			Field: fields.OneTermEqualSelector("metadata.name", internalv1alpha1.HoldConfiguration),
		}
		options.ByObject[&admissionv1.ValidatingWebhookConfiguration{}] = cache.ByObject{
			Field: fields.OneTermEqualSelector("metadata.name", internalv1alpha1.TemplatesConfiguration),
		}
		for _, object := range policies.Objects() {
			options.ByObject[object] = ours
		}
	}
	return options
}

func stripDefault(object any) (any, error) {
	object, err := cache.TransformStripManagedFields()(object)
	if err != nil {
		return nil, err
	}
	return nscache.StripMetadata(object)
}
