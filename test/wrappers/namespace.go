// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package wrappers

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// NamespaceWrapper builds a Namespace.
type NamespaceWrapper struct{ corev1.Namespace }

// MakeNamespace returns a wrapper of a Namespace with the given name.
func MakeNamespace(name string) *NamespaceWrapper {
	return &NamespaceWrapper{corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{}, Annotations: map[string]string{},
	}}}
}

// Obj returns the Namespace.
func (w *NamespaceWrapper) Obj() *corev1.Namespace { return w.DeepCopy() }

// UID sets the UID.
func (w *NamespaceWrapper) UID(uid types.UID) *NamespaceWrapper {
	w.Namespace.UID = uid
	return w
}

// ResourceVersion sets the resource version.
func (w *NamespaceWrapper) ResourceVersion(version string) *NamespaceWrapper {
	w.Namespace.ResourceVersion = version
	return w
}

// Terminating sets the deletion timestamp, the phase Terminating and the namespace finalizer
// "kubernetes".
func (w *NamespaceWrapper) Terminating(since time.Time) *NamespaceWrapper {
	w.DeletionTimestamp = &metav1.Time{Time: since}
	w.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	w.Status.Phase = corev1.NamespaceTerminating
	return w
}

// Label sets a label.
func (w *NamespaceWrapper) Label(key, value string) *NamespaceWrapper {
	w.Labels[key] = value
	return w
}

// Annotation sets an annotation.
func (w *NamespaceWrapper) Annotation(key, value string) *NamespaceWrapper {
	w.Annotations[key] = value
	return w
}

// Initializers adds the label and annotations that the inject policy adds to a new Namespace. All
// initializers are pending.
func (w *NamespaceWrapper) Initializers(names ...string) *NamespaceWrapper {
	return w.Annotation(v1alpha1.AnnotationInitializers, strings.Join(names, ",")).Pending(names...)
}

// Pending sets the label and the pending list. Without names, it removes both, as the complete
// policy does when the list becomes empty.
func (w *NamespaceWrapper) Pending(names ...string) *NamespaceWrapper {
	if len(names) == 0 {
		delete(w.Labels, v1alpha1.LabelInitializing)
		delete(w.Annotations, v1alpha1.AnnotationPendingInitializers)
		return w
	}
	return w.Label(v1alpha1.LabelInitializing, "true").
		Annotation(v1alpha1.AnnotationPendingInitializers, strings.Join(names, ","))
}

// Result sets the annotation for the result of the initialization.
func (w *NamespaceWrapper) Result(text string) *NamespaceWrapper {
	return w.Annotation(v1alpha1.AnnotationInitializationResult, text)
}

// Condition adds a condition.
func (w *NamespaceWrapper) Condition(condition corev1.NamespaceCondition) *NamespaceWrapper {
	w.Status.Conditions = append(w.Status.Conditions, condition)
	return w
}

// MakeConfigMap returns an empty ConfigMap.
func MakeConfigMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// MakePod returns a Pod with one container.
func MakePod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
	}
}
