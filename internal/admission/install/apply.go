// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// recognizedAfter is the age of a parameter after which every API server recognizes its type: admission looks up
// parameter kinds in a discovery cache that is refreshed every 30 s (k8s.io/apiserver,
// pkg/server/options/admission.go).
const recognizedAfter = 60 * time.Second

// apply applies the policies and bindings that differ from those on the API server, with an owner: the garbage
// collector deletes them with it. It preserves the failurePolicy of policies with parameters. If one of them cannot be
// applied, it continues with the others. A missing permission is not an error: an administrator applies the policies
// then, and the caller verifies that they exist.
func (i *Installer) apply(
	ctx context.Context, owner client.Object, policies []*unstructured.Unstructured,
) (hasApplied, isForbidden bool, err error) {
	kind, err := i.GroupVersionKindFor(owner)
	if err != nil {
		return false, false, err
	}
	reference := metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID(),
	}
	var errs []error
	for _, desired := range policies {
		desired.SetOwnerReferences([]metav1.OwnerReference{reference})
		isChanged, err := i.applyOne(ctx, desired)
		switch {
		case apierrors.IsForbidden(err):
			isForbidden = true
		case err != nil:
			errs = append(errs, fmt.Errorf("failed to apply %s %q: %w", desired.GetKind(), desired.GetName(), err))
		case isChanged:
			hasApplied = true
			log.FromContext(ctx).Info("Applied an admission policy or its binding", "kind", desired.GetKind(),
				"name", desired.GetName())
		}
	}
	return hasApplied, isForbidden, errors.Join(errs...)
}

// applyOne applies an object if it differs, and returns whether it does.
func (i *Installer) applyOne(ctx context.Context, desired *unstructured.Unstructured) (bool, error) {
	live, err := i.read(ctx, desired)
	if err != nil {
		return false, err
	}
	_, hasParameters, _ := unstructured.NestedMap(desired.Object, "spec", "paramKind")
	current, found, _ := unstructured.NestedString(live.Object, "spec", "failurePolicy")
	if found && hasParameters {
		utilruntime.Must(unstructured.SetNestedField(desired.Object, current, "spec", "failurePolicy"))
	}
	switch {
	case isCurrent(desired, live):
		return false, nil
	case live.GetResourceVersion() == "":
		return true, i.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
			client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
	}
	return true, i.replace(ctx, live, desired)
}

// replace makes an existing object equal to the desired one: server-side apply would keep match conditions and
// validationActions that other clients have added, and the API server rejects Deny together with Warn.
func (i *Installer) replace(ctx context.Context, live, desired *unstructured.Unstructured) error {
	labels := maps.Clone(live.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, desired.GetLabels())
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch, err := json.Marshal([]operation{
		{"replace", "/metadata/resourceVersion", live.GetResourceVersion()},
		{"add", "/metadata/labels", labels},
		{"add", "/metadata/ownerReferences", desired.GetOwnerReferences()},
		{"replace", "/spec", desired.Object["spec"]},
	})
	utilruntime.Must(err) // JSON values can be encoded.
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(desired.GroupVersionKind())
	object.SetName(desired.GetName())
	return i.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(nsobject.FieldOwner))
}

// read returns an object of the API server, or an empty one if it does not exist. A cache can be stale, and can lack
// objects by their labels.
func (i *Installer) read(ctx context.Context, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	typed, err := i.Scheme().New(desired.GroupVersionKind())
	utilruntime.Must(err) // The scheme contains all types of policies.
	err = i.Live.Get(ctx, client.ObjectKeyFromObject(desired), typed.(client.Object))
	if apierrors.IsNotFound(err) {
		return live, nil
	}
	if err != nil {
		return nil, err
	}
	live.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return live, err
}

// isCurrent reports whether applying the desired object would change nothing.
func isCurrent(desired, live *unstructured.Unstructured) bool {
	labels := live.GetLabels()
	for key, value := range desired.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(desired.GetOwnerReferences(), live.GetOwnerReferences()) &&
		isEqual(desired.Object["spec"], live.Object["spec"])
}

// isEqual compares JSON values. The live value can also contain default values.
func isEqual(desired, live any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		for key, value := range live {
			if _, isDesired := desired[key]; !isDesired && !isDefault(value) {
				return false
			}
		}
		for key, value := range desired {
			if !ok || !isEqual(value, live[key]) {
				return false
			}
		}
		return ok
	case []any:
		live, ok := live.([]any)
		return ok && slices.EqualFunc(desired, live, isEqual)
	}
	return desired == live
}

// isDefault reports whether the API server adds a value: an empty selector, or matchPolicy Equivalent.
func isDefault(value any) bool {
	object, ok := value.(map[string]any)
	return ok && len(object) == 0 || value == string(admissionv1.Equivalent)
}
