// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package wrappers

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

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

// Initializers adds initializers by name.
func (w *ConfigurationWrapper) Initializers(names ...string) *ConfigurationWrapper {
	for _, name := range names {
		w.NamespaceInitializerConfiguration.Initializers = append(w.NamespaceInitializerConfiguration.Initializers,
			v1alpha1.NamespaceInitializer{Name: name})
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
