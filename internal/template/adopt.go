// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// adoptEqual adopts an object of another field manager if only the keys of the operator would change, for example
// because a backup of an object contains those of an earlier Namespace. Otherwise, it returns the conflict. The version
// that is compared is the version that is changed.
func (p *pass) adoptEqual(
	ctx context.Context, target target, want desired, conflict error,
) (*metav1.PartialObjectMetadata, error) {
	current, err := p.Writer.previewUnchanged(ctx, target, want.manifest)
	if err != nil {
		return nil, err
	}
	target.resourceVersion = current.GetResourceVersion()
	applied, err := p.Writer.preview(ctx, target, want.manifest)
	if err == nil && !isEqual(current, applied) {
		return nil, conflict
	}
	var response *metav1.PartialObjectMetadata
	if err == nil {
		response, _, err = p.Writer.apply(ctx, target, want.manifest, metav1.PatchOptions{Force: ptr.To(true)})
	}
	if nswrite.IsConflict(err) {
		return nil, fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	return response, err
}

// isEqual reports whether two versions of an object differ only in what the API server and the operator add.
func isEqual(a, b *unstructured.Unstructured) bool {
	return apiequality.Semantic.DeepEqual(withoutOwnKeys(a), withoutOwnKeys(b))
}

func withoutOwnKeys(object *unstructured.Unstructured) map[string]any {
	object.SetLabels(without(object.GetLabels(), v1alpha1.LabelTemplate, v1alpha1.LabelLocked))
	object.SetAnnotations(without(object.GetAnnotations(), v1alpha1.AnnotationNamespaceUID))
	return withoutServerFields(object)
}

// without returns nil if no other keys remain.
func without(values map[string]string, keys ...string) map[string]string {
	maps.DeleteFunc(values, func(key, _ string) bool { return slices.Contains(keys, key) })
	if len(values) == 0 {
		return nil
	}
	return values
}
