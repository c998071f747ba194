// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package wrappers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
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

// ConfigurationWrapper builds a NamespaceInitializerConfiguration.
type ConfigurationWrapper struct {
	v1alpha1.NamespaceInitializerConfiguration
}

// MakeConfiguration returns a configuration with the given name.
func MakeConfiguration(name string) *ConfigurationWrapper {
	return &ConfigurationWrapper{v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}}
}

// Obj returns the configuration.
func (w *ConfigurationWrapper) Obj() *v1alpha1.NamespaceInitializerConfiguration { return w.DeepCopy() }

// Generation sets the generation.
func (w *ConfigurationWrapper) Generation(generation int64) *ConfigurationWrapper {
	w.NamespaceInitializerConfiguration.Generation = generation
	return w
}

// Terminating sets the deletion timestamp and adds a finalizer.
func (w *ConfigurationWrapper) Terminating(since time.Time, finalizer string) *ConfigurationWrapper {
	w.DeletionTimestamp = &metav1.Time{Time: since}
	w.Finalizers = append(w.Finalizers, finalizer)
	return w
}

// Initializers adds initializers with the default settings.
func (w *ConfigurationWrapper) Initializers(names ...string) *ConfigurationWrapper {
	for _, name := range names {
		w.NamespaceInitializerConfiguration.Initializers = append(w.NamespaceInitializerConfiguration.Initializers,
			v1alpha1.NamespaceInitializer{Name: name, InitializerSettings: v1alpha1.DefaultInitializerSettings()})
	}
	return w
}

// Initializer adds an initializer with settings.
func (w *ConfigurationWrapper) Initializer(
	name string, settings v1alpha1.InitializerSettings,
) *ConfigurationWrapper {
	w.NamespaceInitializerConfiguration.Initializers = append(w.NamespaceInitializerConfiguration.Initializers,
		v1alpha1.NamespaceInitializer{Name: name, InitializerSettings: settings})
	return w
}

// MakeCertificateRequest returns a certificate signing request, in base64. It is empty, like those that kubelets
// create for the certificates of Pods, but the API server verifies its signature.
func MakeCertificateRequest() string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(request)
}
