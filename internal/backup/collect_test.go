// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

type discovered []*metav1.APIResourceList

func (d discovered) ServerPreferredNamespacedResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	return d, nil
}

func TestCollect(t *testing.T) {
	namespace := func(uid types.UID, deletion *metav1.Time) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("v1")
		object.SetKind("Namespace")
		object.SetName("shop")
		object.SetUID(uid)
		object.SetDeletionTimestamp(deletion)
		return object
	}
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	things := schema.GroupVersionResource{Group: "vendor.example.com", Version: "v1", Resource: "things"}
	forbidden := apierrors.NewForbidden(namespaces.GroupResource(), "shop", errors.New("no"))
	now := metav1.Now()
	for name, test := range map[string]struct {
		// before and after are the Namespace before and after the lists. If nil, the request returns the error.
		before, after       *unstructured.Unstructured
		beforeErr, afterErr error
		options             Options
		want                []string
	}{
		"unchanged": {before: namespace("1", nil), after: namespace("1", nil)},
		"deleted": {
			before:   namespace("1", nil),
			afterErr: apierrors.NewNotFound(namespaces.GroupResource(), "shop"),
			want:     []string{`objects that might have been deleted: namespaces "shop" not found`},
		},
		"recreated": {before: namespace("1", nil), after: namespace("2", nil), want: []string{msgUnreadRecreated}},
		"terminating": {
			before: namespace("1", nil), after: namespace("1", &now), want: []string{msgUnreadTerminating},
		},
		"terminating before the backup, of selected types": {
			before: namespace("1", &now), after: namespace("1", &now), options: Options{Types: []string{"things"}},
			want: []string{msgUnreadTerminating},
		},
		"terminating, and allowed": {
			before: namespace("1", &now), after: namespace("1", &now), options: Options{AllowTerminating: true},
		},
		"recreated, and terminating is allowed": {
			before: namespace("1", &now), after: namespace("2", nil), options: Options{AllowTerminating: true},
			want: []string{msgUnreadRecreated},
		},
		"unreadable": {
			beforeErr: forbidden, afterErr: forbidden, want: []string{fmt.Sprintf(msgUnreadNamespace, forbidden)},
		},
		"unreadable, of selected types": {
			beforeErr: forbidden, afterErr: forbidden, options: Options{Types: []string{"things"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			isListed := false
			// The objects have no UID.
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{things: "ThingList"}, thing("a"), thing("b"))
			client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if isListed {
					return true, test.after, test.afterErr
				}
				return true, test.before, test.beforeErr
			})
			client.PrependReactor("list", "things", func(clienttesting.Action) (bool, runtime.Object, error) {
				isListed = true
				return false, nil, nil
			})
			c := &collector{client: client, namespace: "shop", options: test.options, backup: Backup{Skipped: map[Reason]int{}}}
			found, err := c.collect(t.Context(), discovered{{
				GroupVersion: things.GroupVersion().String(), APIResources: []metav1.APIResource{
					{Name: "things", Kind: "Thing", Namespaced: true, Verbs: metav1.Verbs{"list", "create"}},
				},
			}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Unread).To(Equal(test.want))
			names := []string{}
			for _, object := range found.Objects {
				if object.GetKind() == "Thing" {
					names = append(names, object.GetName())
				}
			}
			g.Expect(names).To(Equal([]string{"a", "b"}))
		})
	}
}

func thing(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("vendor.example.com/v1")
	object.SetKind("Thing")
	object.SetNamespace("shop")
	object.SetName(name)
	return object
}

func TestValidate(t *testing.T) {
	one := resourcetypes.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: "vendor.example.com", Version: "v1", Resource: "things"},
		Kind:                 "Thing",
	}
	for name, test := range map[string]struct {
		apiVersion, kind, namespace string
		wantErr                     bool
	}{
		"an object of the type":     {apiVersion: "vendor.example.com/v1", kind: "Thing", namespace: "x"},
		"another version":           {apiVersion: "vendor.example.com/v2", kind: "Thing", namespace: "x"},
		"another kind":              {apiVersion: "vendor.example.com/v1", kind: "Other", namespace: "x", wantErr: true},
		"the kind in another group": {apiVersion: "rbac.authorization.k8s.io/v1", kind: "Thing", namespace: "x", wantErr: true},
		"another namespace":         {apiVersion: "vendor.example.com/v1", kind: "Thing", namespace: "y", wantErr: true},
		"no namespace":              {apiVersion: "vendor.example.com/v1", kind: "Thing", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(test.apiVersion)
			object.SetKind(test.kind)
			object.SetNamespace(test.namespace)
			if err := (&collector{namespace: "x"}).validate(one, object); (err != nil) != test.wantErr {
				t.Errorf("got error %v", err)
			}
		})
	}
}
