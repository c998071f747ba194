// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// chooseNamespaceWrites returns the writes of an overdue Namespace that its deletion still needs: of the deletion
// conditions and, if the namespace is empty, the removal of each finalizer. Before, a policy may deny a removal.
func chooseNamespaceWrites(facts *diagnosis.Facts) []diagnosis.DryRun {
	namespace := facts.Namespace
	if !facts.IsOverdue(namespace.DeletionTimestamp.Time) {
		return nil
	}
	var writes []diagnosis.DryRun
	add := func(verb, subresource, finalizer string) {
		write := diagnosis.DryRun{
			Verb: verb, Type: diagnosis.NamespaceType, Subresource: subresource, Name: namespace.Name, Finalizer: finalizer,
		}
		if !slices.ContainsFunc(writes, func(other diagnosis.DryRun) bool { // A list may contain duplicates.
			return other.Subresource == subresource && other.Finalizer == finalizer
		}) && len(writes) < maxDryRuns {
			writes = append(writes, write)
		}
	}
	if slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		add(diagnosis.VerbPatch, diagnosis.SubresourceStatus, "")
	}
	if facts.IsEmpty() {
		for _, finalizer := range namespace.Spec.Finalizers {
			add(diagnosis.VerbPut, diagnosis.SubresourceFinalize, string(finalizer))
		}
		for _, finalizer := range namespace.Finalizers {
			add(diagnosis.VerbPatch, "", finalizer)
		}
	}
	return writes
}

// dryRunNamespaceWrite sends a write of the Namespace as a dry run and returns the response. The request contains the
// resource version, so that the error is a conflict if the Namespace has changed.
func (c *collection) dryRunNamespaceWrite(ctx context.Context, write diagnosis.DryRun) error {
	namespace := c.facts.Namespace.DeepCopy()
	if write.Subresource == diagnosis.SubresourceFinalize {
		namespace.Spec.Finalizers = slices.DeleteFunc(namespace.Spec.Finalizers,
			func(other corev1.FinalizerName) bool { return string(other) == write.Finalizer })
		return c.client.SubResource(diagnosis.SubresourceFinalize).Update(ctx, namespace, client.DryRunAll)
	}
	metadata := map[string]any{"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion}
	change := map[string]any{"metadata": metadata}
	if write.Subresource == diagnosis.SubresourceStatus {
		change["status"] = map[string]any{"conditions": []corev1.NamespaceCondition{{
			Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse, Reason: "DryRun",
			LastTransitionTime: metav1.NewTime(c.facts.Now),
		}}}
	} else {
		metadata["finalizers"] = slices.DeleteFunc(namespace.Finalizers,
			func(other string) bool { return other == write.Finalizer })
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("failed to encode a patch: %w", err)
	}
	if write.Subresource == diagnosis.SubresourceStatus { // A strategic merge patch keeps the other conditions.
		return c.client.Status().Patch(ctx, namespace, client.RawPatch(types.StrategicMergePatchType, body), client.DryRunAll)
	}
	return c.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
}
