// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// write opens a new Namespace that contains everything, in the request that records its state. It
// records the state of an open Namespace if it has changed.
func (r *TemplatedNamespaceReconciler) write(
	ctx context.Context, namespace *corev1.Namespace, result template.Result,
) error {
	pending, isInitializing := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	recorded, isRecorded := namespace.Annotations[v1alpha1.AnnotationTemplates]
	state := result.State.String()
	if isInitializing {
		if blocking := result.Blocking(); blocking != nil {
			return r.publish(ctx, namespace, *blocking, result)
		}
	} else if state == recorded {
		return nil
	}
	operations := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": namespace.UID}}
	if isRecorded {
		operations = append(operations, annotationOperation("test", v1alpha1.AnnotationTemplates, recorded))
	}
	if isInitializing {
		remaining := slices.DeleteFunc(initialization.SplitNames(pending), func(name string) bool {
			return name == v1alpha1.TemplatesInitializer
		})
		operations = append(operations, annotationOperation("test", v1alpha1.AnnotationPendingInitializers, pending),
			annotationOperation("replace", v1alpha1.AnnotationPendingInitializers, strings.Join(remaining, ",")))
	}
	if state != recorded {
		operations = append(operations, addAnnotation(namespace, v1alpha1.AnnotationTemplates, state))
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("failed to encode the templates of namespace %q: %w", namespace.Name, err)
	}
	patched := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	err = r.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(nswrite.FieldOwner))
	switch {
	case isFailedTest(err):
		return apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, err)
	case err != nil:
		err = fmt.Errorf("failed to record the templates of namespace %q: %w", namespace.Name, err)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			nswrite.RecordEvent(r.Recorder, namespace, corev1.EventTypeWarning, reasonNotRecorded, actionApplyTemplate,
				err.Error())
		}
		return err
	}
	r.Applier.Recorded(patched, result.State)
	if isInitializing {
		now := r.Clock.Now()
		seconds := metrics.Seconds(metrics.StartTime(namespace.CreationTimestamp, now.Add(-result.Elapsed)), now)
		metrics.TemplateApplyDuration.Observe(seconds)
		log.FromContext(ctx).Info("Applied the templates of a new namespace", "uid", namespace.UID,
			"templates", slices.Sorted(maps.Keys(result.State)), "duration", now.Sub(namespace.CreationTimestamp.Time))
	}
	return nil
}

// isFailedTest reports whether a test of a JSON patch has failed, because the Namespace was recreated or
// changed. The API server then returns Invalid without a cause. If it rejects the Namespace, for example
// because the annotations are too large, there is a cause.
func isFailedTest(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}

// addAnnotation returns the operation that sets an annotation. The empty string removes it.
func addAnnotation(namespace *corev1.Namespace, annotation, value string) map[string]any {
	if namespace.Annotations == nil {
		return map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]string{annotation: value}}
	}
	return annotationOperation("add", annotation, value)
}

func annotationOperation(op, annotation, value string) map[string]any {
	path := "/metadata/annotations/" + strings.ReplaceAll(strings.ReplaceAll(annotation, "~", "~0"), "/", "~1")
	return map[string]any{"op": op, "path": path, "value": value}
}
