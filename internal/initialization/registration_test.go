// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// withTimeout returns a configuration in which all initializers have the same timeout.
func withTimeout(name string, seconds int32, initializers ...string) *wrappers.ConfigurationWrapper {
	configuration := wrappers.MakeConfiguration(name).Initializers(initializers...)
	for i := range configuration.NamespaceInitializerConfiguration.Initializers {
		configuration.NamespaceInitializerConfiguration.Initializers[i].TimeoutSeconds = ptr.To(seconds)
	}
	return configuration
}

func TestComputeRegistrations(t *testing.T) {
	var many []string
	for i := range internalv1alpha1.MaxInitializers {
		many = append(many, fmt.Sprintf("i%d.corp.com", i))
	}
	tests := map[string]struct {
		configurations []*wrappers.ConfigurationWrapper
		want           map[string]string
	}{
		"none": {want: map[string]string{}},
		"one configuration": {
			configurations: []*wrappers.ConfigurationWrapper{withTimeout("a", 1, rbac, quota)},
			want:           map[string]string{rbac: "a 1", quota: "a 1"},
		},
		"the settings in the first configuration by name are used, regardless of the order": {
			configurations: []*wrappers.ConfigurationWrapper{withTimeout("b", 2, rbac), withTimeout("a", 1, rbac)},
			want:           map[string]string{rbac: "a 1"},
		},
		"the settings in a terminating configuration are not used if another configuration registers the initializer": {
			configurations: []*wrappers.ConfigurationWrapper{
				withTimeout("a", 1, rbac).Terminating(now, "corp.com/hold"), withTimeout("b", 2, rbac),
			},
			want: map[string]string{rbac: "b 2"},
		},
		"a terminating configuration still registers its initializers": {
			configurations: []*wrappers.ConfigurationWrapper{withTimeout("a", 1, rbac).Terminating(now, "corp.com/hold")},
			want:           map[string]string{rbac: "a 1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := map[string]string{}
			registrations := ComputeRegistrations(objects(test.configurations), true)
			g.Expect(registrations).To(HaveKeyWithValue(v1alpha1.TemplatesInitializer, Registration{}))
			delete(registrations, v1alpha1.TemplatesInitializer)
			g.Expect(ComputeRegistrations(objects(test.configurations), false)).To(Equal(registrations))
			for initializer, registration := range registrations {
				got[initializer] = fmt.Sprintf("%s %d", registration.Configuration, *registration.Settings.TimeoutSeconds)
			}
			g.Expect(got).To(Equal(test.want))
		})
	}

	t.Run("an excluded configuration also registers its initializers", func(t *testing.T) {
		g := NewWithT(t)
		got := ComputeRegistrations(objects([]*wrappers.ConfigurationWrapper{
			wrappers.MakeConfiguration("b").Initializers(many...), withTimeout("c", 3, rbac, many[0]),
		}), true)
		g.Expect(got).To(HaveLen(len(many) + 2))
		g.Expect(got[rbac].Configuration).To(Equal("c"))
		g.Expect(got[many[0]].Configuration).To(Equal("b"))
		g.Expect(got[many[0]].Settings.TimeoutSeconds).To(BeNil())
	})
}

func objects(configurations []*wrappers.ConfigurationWrapper) []v1alpha1.NamespaceInitializerConfiguration {
	var items []v1alpha1.NamespaceInitializerConfiguration
	for _, configuration := range configurations {
		items = append(items, *configuration.Obj())
	}
	return items
}
