// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Candidate is a removal that the user can select.
type Candidate struct {
	Removal
	// Command tests the removal with a dry run.
	Command string `json:"command"`
	Effect  string `json:"effect"`
}

// computeCandidates returns all possible removals, least harmful first: finalizers of objects, then
// finalizers of the Namespace. The namespace finalizer "kubernetes" is last, because its owner
// deletes the content of the namespace.
func computeCandidates(state *clusterState) []Candidate {
	name := state.namespace.Name
	var candidates []Candidate
	add := func(removal Removal, effect string, flags ...string) {
		candidates = append(candidates, Candidate{Removal: removal, Command: removal.command(name, flags...), Effect: effect})
	}
	terminating := map[string][]RemainingObject{}
	for _, object := range state.objects {
		for _, finalizer := range unique(object.Finalizers) {
			if object.IsTerminating {
				terminating[finalizer] = append(terminating[finalizer], object)
			}
		}
	}
	for _, finalizer := range slices.Sorted(maps.Keys(terminating)) {
		add(Removal{Finalizer: finalizer}, effectObjects(terminating[finalizer]))
	}
	for _, finalizer := range unique(state.namespace.Finalizers) {
		add(Removal{MetadataFinalizer: finalizer}, effectMetadataFinalizer)
	}
	for _, finalizer := range unique(state.namespace.Spec.Finalizers) {
		if finalizer != corev1.FinalizerKubernetes {
			add(Removal{NamespaceFinalizer: string(finalizer)}, effectNamespaceFinalizer)
		}
	}
	if !slices.Contains(state.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return candidates
	}
	kubernetes := Removal{NamespaceFinalizer: string(corev1.FinalizerKubernetes)}
	if len(state.objects) == 0 {
		add(kubernetes, effectEmptyNamespace)
	} else {
		add(kubernetes, effectAbandonContent(state.objects), "--"+FlagOrphan)
	}
	return candidates
}
