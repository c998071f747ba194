// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

var errOutage = errors.New("the API server is unavailable")

func TestPreflight(t *testing.T) {
	const (
		ours     = "nslifecycle.dev/v1alpha1"
		internal = "internal.nslifecycle.dev/v1alpha1"
		policies = "admissionregistration.k8s.io/v1"
	)
	everything := map[string][]string{
		ours:     {"namespaceinitializerconfigurations", "namespaceinitializerconfigurations/status"},
		internal: {"namespaceinitializersets", "namespaceinitializersets/status"},
		policies: {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies", "validatingadmissionpolicies/status", "validatingadmissionpolicybindings",
			"validatingwebhookconfigurations",
		},
	}
	only := func(groupVersions ...string) map[string][]string {
		served := map[string][]string{}
		for _, groupVersion := range groupVersions {
			served[groupVersion] = everything[groupVersion]
		}
		return served
	}
	without := func(groupVersion string, resources ...string) map[string][]string {
		served := only(ours, internal, policies)
		served[groupVersion] = slices.DeleteFunc(slices.Clone(served[groupVersion]), func(resource string) bool {
			return slices.Contains(resources, resource)
		})
		return served
	}

	tests := map[string]struct {
		served  map[string][]string
		problem error
		want    string
	}{
		"all types are served": {served: everything},
		"no CustomResourceDefinitions": {
			served: only(policies),
			want: "the API server does not serve namespaceinitializerconfigurations in " +
				"nslifecycle.dev/v1alpha1: " + messageInstallDefinitions,
		},
		"one CustomResourceDefinition is missing": {
			served: without(internal, "namespaceinitializersets"),
			want: "the API server does not serve namespaceinitializersets in internal.nslifecycle.dev/v1alpha1: " +
				messageInstallDefinitions,
		},
		"an API server without mutating policies": {
			served: without(policies, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
		},
		"an API server without any policies": {
			served: only(ours, internal),
			want: "the API server does not serve validatingadmissionpolicies, validatingadmissionpolicybindings in " +
				"admissionregistration.k8s.io/v1: " + messageUpgradeServer,
		},
		"the API server returns an error": {
			served:  everything,
			problem: errOutage,
			want:    "failed to discover the resources of nslifecycle.dev/v1alpha1: " + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			fakeServer := &clienttesting.Fake{}
			if test.problem != nil {
				fakeServer.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.problem
				})
			}
			for groupVersion, resources := range test.served {
				list := &metav1.APIResourceList{GroupVersion: groupVersion}
				for _, resource := range resources {
					list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
				}
				fakeServer.Resources = append(fakeServer.Resources, list)
			}

			err := Preflight(t.Context(), &fake.FakeDiscovery{Fake: fakeServer})
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.want))
			}
		})
	}
}
