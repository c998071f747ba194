// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// maxShared is the number of shared strings, and maxSharedSize the size in bytes of each.
const maxShared, maxSharedSize = 4096, 128

// sharedStrings has one copy of each string that many Namespaces contain. Users choose most of them, so it forgets all
// when there are too many: later Namespaces then share other copies.
type sharedStrings struct {
	mutex sync.Mutex
	known map[string]string
}

// share makes a Namespace use the shared copies of its strings.
func (s *sharedStrings) share(namespace *corev1.Namespace) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	namespace.Name = s.get(namespace.Name)
	namespace.Labels, namespace.Annotations = s.copyOf(namespace.Labels), s.copyOf(namespace.Annotations)
	for i, finalizer := range namespace.Finalizers {
		namespace.Finalizers[i] = s.get(finalizer)
	}
	for i, finalizer := range namespace.Spec.Finalizers {
		namespace.Spec.Finalizers[i] = corev1.FinalizerName(s.get(string(finalizer)))
	}
	namespace.Status.Phase = corev1.NamespacePhase(s.get(string(namespace.Status.Phase)))
	for i := range namespace.Status.Conditions {
		condition := &namespace.Status.Conditions[i]
		condition.Type = corev1.NamespaceConditionType(s.get(string(condition.Type)))
		condition.Status = corev1.ConditionStatus(s.get(string(condition.Status)))
		condition.Reason, condition.Message = s.get(condition.Reason), s.get(condition.Message)
	}
}

func (s *sharedStrings) copyOf(entries map[string]string) map[string]string {
	if entries == nil {
		return nil
	}
	copied := make(map[string]string, len(entries))
	for key, value := range entries {
		copied[s.get(key)] = s.get(value)
	}
	return copied
}

func (s *sharedStrings) get(text string) string {
	if len(text) > maxSharedSize {
		return text
	}
	if known, ok := s.known[text]; ok {
		return known
	}
	if s.known == nil || len(s.known) >= maxShared {
		s.known = map[string]string{}
	}
	s.known[text] = text
	return text
}
