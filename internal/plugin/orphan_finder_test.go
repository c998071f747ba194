// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestStoredTypes(t *testing.T) {
	g := NewWithT(t)
	make := func(group, resource string, verbs ...string) resourcetypes.Type {
		made := resourcetypes.Type{Verbs: verbs}
		made.Group, made.Resource = group, resource
		return made
	}
	kept := storedTypes([]resourcetypes.Type{
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

func TestFindOrphans(t *testing.T) {
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
			finder := &orphanFinder{
				discoverer: discovered{{GroupVersion: "v1", APIResources: []metav1.APIResource{
					{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
				}}},
				client: metadatafake.NewSimpleMetadataClient(scheme, object("Namespace", "", "existing"),
					object("ConfigMap", "existing", "c"), object("ConfigMap", "deleted-1", "a"), object("ConfigMap", "deleted-2", "b")),
				namespace: namespace,
			}
			result, err := finder.find(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.unread).To(BeEmpty())
			var found []string
			for _, orphan := range result.orphans {
				found = append(found, orphan.Namespace+"/"+orphan.Name)
			}
			g.Expect(found).To(Equal(want))
		})
	}
}

// TestDeleteOrphan verifies how delete reports a rejection, and what it reads after the API server has accepted the
// deletion.
func TestDeleteOrphan(t *testing.T) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	remaining := func(uid types.UID, finalizers ...string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, Finalizers: finalizers}}
	}
	notFound := apierrors.NewNotFound(configMaps.GroupResource(), "a")
	conflict := func(text string) error {
		return apierrors.NewConflict(configMaps.GroupResource(), "a", errors.New(text))
	}
	const denial = `admission webhook "usages.example.com" denied the request: in use`
	tests := map[string]struct {
		deleteErr  error
		finalizers []string
		remaining  *metav1.PartialObjectMetadata
		getErr     error
		want       orphanOutcome
		wantErr    string
	}{
		"deleted before":     {deleteErr: notFound, want: outcomeNotFound},
		"recreated before":   {deleteErr: conflict("uid"), want: outcomeNotFound},
		"denied":             {deleteErr: conflict(denial), wantErr: "in use"},
		"not found":          {getErr: notFound, want: outcomeDeleted},
		"recreated":          {remaining: remaining("2", "example.com/a"), want: outcomeDeleted},
		"finalizer":          {finalizers: []string{"example.com/a"}, remaining: remaining("1", "example.com/a"), want: outcomeHeld},
		"finalizer removed":  {finalizers: []string{"example.com/a"}, remaining: remaining("1"), want: outcomeTerminating},
		"no finalizer":       {remaining: remaining("1"), want: outcomeTerminating},
		"unknown, finalizer": {finalizers: []string{"example.com/a"}, getErr: errors.New("timeout"), want: outcomeHeld},
		"unknown":            {getErr: errors.New("timeout"), wantErr: "timeout"},
		"not allowed to get": {
			getErr: apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("no")), want: outcomeUnknown,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
			api.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, test.deleteErr
			})
			api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, test.remaining, test.getErr
			})
			got, err := (&orphanFinder{client: api}).delete(t.Context(), &orphan{
				Namespace: "deleted", Name: "a", UID: "1", Finalizers: test.finalizers, gvr: configMaps,
			})
			if test.wantErr == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.wantErr)))
			}
			g.Expect(got).To(Equal(test.want))
		})
	}
}
