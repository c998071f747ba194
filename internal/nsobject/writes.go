// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// FieldOwner is the field manager of all writes by the operator.
const FieldOwner = "nslifecycle"

// MaxEventNote is the maximum length of a note in the events.k8s.io API, in bytes.
const MaxEventNote = 1024

// attempts is the maximum number of attempts in RetryOnConflict.
const attempts = 4

// RetryOnConflict calls write with the Namespace and the resource version that the request must
// contain. After each conflict, it reads the Namespace from the API server and calls write again.
// The last attempt omits the resource version, because a user who keeps changing the Namespace must
// not be able to prevent the write (test/security). The request still contains the UID, and the guard
// policy allows only users with the "initialize" verb to change the fields that the operator's decision
// depends on. An initializer that withdraws its failure between the last read and a deletion is too late.
func RetryOnConflict(
	ctx context.Context, live client.Reader, namespace *corev1.Namespace,
	write func(namespace *corev1.Namespace, resourceVersion string) error,
) error {
	key, uid := client.ObjectKeyFromObject(namespace), namespace.UID
	for attempt := 1; ; attempt++ {
		resourceVersion := namespace.ResourceVersion
		if attempt == attempts {
			resourceVersion = ""
		}
		conflict := write(namespace, resourceVersion)
		if !IsConflict(conflict) || attempt == attempts {
			return conflict
		}
		namespace = &corev1.Namespace{}
		if err := live.Get(ctx, key, namespace); err != nil {
			return fmt.Errorf("failed to get namespace %q: %w", key.Name, err)
		}
		if namespace.UID != uid {
			return conflict
		}
	}
}

// PatchStatus patches fields in the status of a Namespace. Conditions are merged by type, so the
// conditions of other controllers do not change. PatchStatus returns a Conflict error if the Namespace
// was deleted and created again, or if the resource version is neither empty nor current.
func PatchStatus(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, status map[string]any, resourceVersion string,
) error {
	return Patch(ctx, c, namespace, map[string]any{
		"metadata": Preconditions(namespace, resourceVersion), "status": status,
	})
}

// PatchAnnotations sets annotations of a Namespace, and sets or removes conditions like PatchConditions, in one write
// of the status subresource. The admission policies also apply to this write.
func PatchAnnotations(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, resourceVersion string,
	annotations map[string]string, conditions []corev1.NamespaceCondition,
) error {
	metadata := Preconditions(namespace, resourceVersion)
	if len(annotations) > 0 { // The value null would remove all annotations.
		metadata["annotations"] = annotations
	}
	change := map[string]any{"metadata": metadata}
	if len(conditions) > 0 { // The value null would remove all conditions.
		change["status"] = map[string]any{"conditions": patchesOf(conditions)}
	}
	return Patch(ctx, c, namespace, change)
}

// PatchResult sets the failure result that an initializer would set.
func PatchResult(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, resourceVersion string, failure metav1.Status,
) error {
	result, err := json.Marshal(failure)
	if err != nil {
		return fmt.Errorf("failed to encode the initialization result of namespace %q: %w", namespace.Name, err)
	}
	err = PatchAnnotations(ctx, c, namespace, resourceVersion,
		map[string]string{v1alpha1.AnnotationInitializationResult: string(result)}, nil)
	if err != nil {
		return fmt.Errorf("failed to set the initialization result of namespace %q: %w", namespace.Name, err)
	}
	return nil
}

// Preconditions returns the metadata of a patch that the API server accepts only for this Namespace
// and, unless the resource version is empty, only for this resource version.
func Preconditions(namespace *corev1.Namespace, resourceVersion string) map[string]any {
	metadata := map[string]any{"uid": namespace.UID}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	return metadata
}

// LacksFinalizers returns whether a terminating Namespace has no finalizers. With any write except one that adds a
// finalizer, the API server deletes such a Namespace and orphans its content (ShouldDeleteNamespaceDuringUpdate in
// pkg/registry/core/namespace/storage of Kubernetes).
func LacksFinalizers(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && len(namespace.Spec.Finalizers)+len(namespace.Finalizers) == 0
}

// Patch patches the status subresource of a Namespace. The metadata in the change must include the UID. Patch returns
// a Conflict error if the Namespace lacks finalizers.
func Patch(ctx context.Context, c client.Client, namespace *corev1.Namespace, change map[string]any) error {
	if LacksFinalizers(namespace) {
		return apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, errors.New("it has no finalizers"))
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("failed to encode the status of namespace %q: %w", namespace.Name, err)
	}
	err = c.Status().Patch(ctx, namespace, client.RawPatch(types.StrategicMergePatchType, body),
		client.FieldOwner(FieldOwner))
	if IsUIDMismatch(err) {
		err = apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, err)
	}
	if err != nil {
		return fmt.Errorf("failed to update the status of namespace %q: %w", namespace.Name, err)
	}
	return nil
}

// PatchConditions patches conditions of a Namespace. It removes a condition without a status.
func PatchConditions(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, changed []corev1.NamespaceCondition,
	resourceVersion string,
) error {
	return PatchStatus(ctx, c, namespace, map[string]any{"conditions": patchesOf(changed)}, resourceVersion)
}

// patchesOf returns the elements of a strategic merge patch for conditions.
func patchesOf(conditions []corev1.NamespaceCondition) []any {
	patches := make([]any, 0, len(conditions))
	for _, condition := range conditions {
		if condition.Status == "" {
			patches = append(patches, map[string]any{"type": condition.Type, "$patch": "delete"})
			continue
		}
		patches = append(patches, condition)
	}
	return patches
}

// RecordEvent records an Event about a cluster-scoped object, in the namespace default. The note is escaped and
// truncated.
func RecordEvent(
	recorder events.EventRecorder, object runtime.Object, eventType, reason, action, note string,
) {
	RecordEventAbout(recorder, object, nil, eventType, reason, action, note)
}

// RecordEventAbout records an Event about an object and a related object, which may be nil.
func RecordEventAbout(
	recorder events.EventRecorder, object, related runtime.Object, eventType, reason, action, note string,
) {
	recorder.Eventf(object, related, eventType, reason, action, "%s", printable.Truncate(note, MaxEventNote))
}

// IgnoreStale returns nil for errors of IsNotFound and IsConflict: the object has changed, or was deleted
// or recreated, since it was read. It is for writes that a later pass repeats.
func IgnoreStale(err error) error {
	if IsNotFound(err) || IsConflict(err) {
		return nil
	}
	return err
}

// IsNotFound reports whether a write failed because the object does not exist, and not because an admission
// webhook denied it with the same code.
func IsNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !denial.IsFromAdmission(err.Error())
}

// IsConflict reports whether a write failed because the object has changed or was recreated, and not because an
// admission webhook denied it with the same code.
func IsConflict(err error) bool {
	return apierrors.IsConflict(err) && !denial.IsFromAdmission(err.Error())
}

// IsUIDMismatch reports whether the API server rejected a patch because of the UID in it. The API server
// returns Invalid instead of Conflict, because such a patch would change the UID.
func IsUIDMismatch(err error) bool {
	if !apierrors.IsInvalid(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}
