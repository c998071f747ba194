// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestStoredTypes(t *testing.T) {
	g := NewWithT(t)
	make := func(group, resource string, verbs ...string) resourcetypes.Type {
		made := resourcetypes.Type{Verbs: verbs}
		made.Group, made.Resource = group, resource
		return made
	}
	kept := StoredTypes([]resourcetypes.Type{
		make("", "configmaps", "list", "delete"), make("", "bindings", "create"), make("metrics.k8s.io", "pods", "list"),
		make("", "events", "list", "delete"), make("events.k8s.io", "events", "list", "delete"),
	})
	g.Expect(kept).To(HaveLen(2))
	g.Expect(kept[1].String()).To(Equal("events"))
}

type discovered []*metav1.APIResourceList

func (d discovered) ServerPreferredNamespacedResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	return d, nil
}

func TestFind(t *testing.T) {
	object := func(kind, namespace, name string) runtime.Object {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		}
	}
	for namespace, want := range map[string][]string{
		"": {"deleted-1/a", "deleted-2/b"}, "deleted-2": {"deleted-2/b"}, "existing": nil, "empty": nil,
	} {
		t.Run(namespace, func(t *testing.T) {
			g := NewWithT(t)
			scheme := metadatafake.NewTestScheme()
			g.Expect(metav1.AddMetaToScheme(scheme)).To(Succeed())
			finder := &Finder{
				Discoverer: discovered{{GroupVersion: "v1", APIResources: []metav1.APIResource{
					{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
				}}},
				Client: metadatafake.NewSimpleMetadataClient(scheme, object("Namespace", "", "existing"),
					object("ConfigMap", "existing", "c"), object("ConfigMap", "deleted-1", "a"), object("ConfigMap", "deleted-2", "b")),
				Namespace: namespace,
			}
			result, err := finder.Find(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Unread).To(BeEmpty())
			var found []string
			for _, orphan := range result.Orphans {
				found = append(found, orphan.Namespace+"/"+orphan.Name)
			}
			g.Expect(found).To(Equal(want))
		})
	}
}

func TestCountNamespaces(t *testing.T) {
	NewWithT(t).Expect(CountNamespaces([]Orphan{{Namespace: "a"}, {Namespace: "b"}, {Namespace: "a"}})).To(Equal(2))
}
