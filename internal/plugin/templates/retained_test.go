// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestRetained(t *testing.T) {
	quota := schema.GroupKind{Kind: "ResourceQuota"}
	recorded := template.Record{"sized": {Revision: "r", Objects: []template.ObjectState{
		{Kind: quota, Name: "quota-md", UID: "2", Content: "c", Fields: "f"},
	}}}
	namespace := func(changes ...func(*wrappers.NamespaceWrapper)) corev1.Namespace {
		shop := wrappers.MakeNamespace("shop").UID("shop-uid").Annotation(v1alpha1.AnnotationAppliedTemplates, recorded.String())
		for _, change := range changes {
			change(shop)
		}
		return *shop.Obj()
	}
	labeled := func(name, uid string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelManagedByTemplate: "sized"},
			Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: uid},
		}}
	}
	terminating := labeled("quota-sm", "shop-uid")
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	left := []RetainedObject{{Namespace: "shop", Template: "sized", Kind: "ResourceQuota", Name: "quota-sm"}}
	tests := map[string]struct {
		namespace corev1.Namespace
		object    metav1.PartialObjectMetadata
		want      []RetainedObject
	}{
		"no longer contained":            {namespace: namespace(), object: labeled("quota-sm", "shop-uid"), want: left},
		"recorded":                       {namespace: namespace(), object: labeled("quota-md", "shop-uid")},
		"being deleted":                  {namespace: namespace(), object: terminating},
		"restored from another cluster":  {namespace: namespace(), object: labeled("quota-sm", "other-uid")},
		"in a namespace without records": {namespace: namespace(func(n *wrappers.NamespaceWrapper) { n.Annotations = nil }), object: labeled("quota-sm", "shop-uid"), want: left},
		"in a new namespace": {
			namespace: namespace(func(n *wrappers.NamespaceWrapper) { n.Initializers(v1alpha1.TemplatesInitializer) }), object: labeled("quota-sm", "shop-uid"),
		},
		"in a terminating namespace": {
			namespace: namespace(func(n *wrappers.NamespaceWrapper) { n.Terminating(time.Now()) }), object: labeled("quota-sm", "shop-uid"),
		},
		"in another namespace": {namespace: *wrappers.MakeNamespace("other").Obj(), object: labeled("quota-sm", "shop-uid")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			contents := []resourcetypes.Content{{
				Type:    resourcetypes.Type{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Kind: "ResourceQuota"},
				Objects: []metav1.PartialObjectMetadata{test.object},
			}}
			NewWithT(t).Expect(Retained([]corev1.Namespace{test.namespace}, contents)).To(Equal(test.want))
		})
	}
}
