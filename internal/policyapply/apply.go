// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyapply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// RecognizedAfter is the age of a parameter after which every API server recognizes its type: admission looks up
// parameter kinds in a discovery cache that is refreshed every 30 s (k8s.io/apiserver,
// pkg/server/options/admission.go).
const RecognizedAfter = 60 * time.Second

// Decode returns the objects in manifests, in their order.
func Decode(manifests ...[]byte) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), len(manifest))
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			utilruntime.Must(err) // The manifests are part of the program.
			objects = append(objects, object)
		}
	}
	return objects
}

// Result is what Apply has done.
type Result struct {
	// HasApplied reports whether it has applied any policy or binding.
	HasApplied bool
	// IsForbidden reports whether a permission is missing. This is not an error: an administrator applies the policies
	// then, and the caller verifies that they exist.
	IsForbidden bool
}

// Objects converts policies and bindings for Apply.
func Objects(policies ...client.Object) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(policies))
	for i, policy := range policies {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
		utilruntime.Must(err) // These types can be converted.
		unstructured.RemoveNestedField(content, "status")
		objects[i] = &unstructured.Unstructured{Object: content}
	}
	return objects
}

// Apply applies the policies and bindings that differ from what the reader returns, with an owner: the garbage
// collector deletes them with it. It preserves the failurePolicy of policies with parameters. If one of them cannot be
// applied, it continues with the others. A cache as the reader can be stale, which causes Conflict errors,
// and can lack objects by their labels.
func Apply(
	ctx context.Context, writer client.Client, reader client.Reader, owner client.Object,
	policies []*unstructured.Unstructured,
) (Result, error) {
	var result Result
	reference, err := referenceTo(owner, writer.Scheme())
	if err != nil {
		return result, err
	}
	var errs []error
	for _, desired := range policies {
		desired.SetOwnerReferences([]metav1.OwnerReference{reference})
		hasApplied, err := apply(ctx, writer, reader, desired)
		switch {
		case apierrors.IsForbidden(err):
			result.IsForbidden = true
		case err != nil:
			errs = append(errs, fmt.Errorf("failed to apply %s %q: %w", desired.GetKind(), desired.GetName(), err))
		case hasApplied:
			result.HasApplied = true
			log.FromContext(ctx).Info("Applied an admission policy or its binding", "kind", desired.GetKind(),
				"name", desired.GetName())
		}
	}
	return result, errors.Join(errs...)
}

// apply applies an object if it differs, and returns whether it does.
func apply(
	ctx context.Context, writer client.Client, reader client.Reader, desired *unstructured.Unstructured,
) (bool, error) {
	live, err := read(ctx, reader, writer.Scheme(), desired)
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
		return true, writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
			client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
	}
	return true, replace(ctx, writer, live, desired)
}

// replace makes an existing object equal to the desired one: server-side apply would keep match conditions and
// validationActions that other clients have added, and the API server rejects Deny together with Warn.
func replace(ctx context.Context, writer client.Client, live, desired *unstructured.Unstructured) error {
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
	return writer.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(nsobject.FieldOwner))
}

func referenceTo(owner client.Object, scheme *runtime.Scheme) (metav1.OwnerReference, error) {
	kind, err := apiutil.GVKForObject(owner, scheme)
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID(),
	}, err
}

// read returns an object, or an empty one if it does not exist.
func read(
	ctx context.Context, reader client.Reader, scheme *runtime.Scheme, desired *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	typed, err := scheme.New(desired.GroupVersionKind())
	utilruntime.Must(err) // The scheme contains all types of policies.
	err = reader.Get(ctx, client.ObjectKeyFromObject(desired), typed.(client.Object))
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
