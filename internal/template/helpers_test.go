// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	namespaceUID = "namespace-uid"
	objectUID    = "object-uid"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func recordedConfigMap(name string) ObjectState {
	return ObjectState{Kind: configMaps.GroupKind(), Name: name, UID: objectUID, Content: "content", Fields: "fields"}
}

// namespaceWith returns a Namespace with a resource version and the recorded templates.
func namespaceWith(resourceVersion, templates string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", UID: namespaceUID, ResourceVersion: resourceVersion,
	}}
	if templates != "" {
		namespace.Annotations = map[string]string{v1alpha1.AnnotationAppliedTemplates: templates}
	}
	return namespace
}
