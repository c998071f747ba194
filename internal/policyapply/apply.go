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

// Apply applies the policies and bindings that differ from what the reader returns, with an owner: the garbage
// collector deletes them with it. It preserves their failurePolicy. It returns whether it has applied any. A missing
// permission is not an error: an administrator applies the policies then, and the caller verifies that they exist.
func Apply(
	ctx context.Context, writer client.Client, reader client.Reader, owner client.Object,
	policies []*unstructured.Unstructured,
) (bool, error) {
	reference, err := referenceTo(owner, writer.Scheme())
	if err != nil {
		return false, err
	}
	hasApplied := false
	for _, desired := range policies {
		key := desired.GetKind() + "/" + desired.GetName()
		live, err := read(ctx, reader, writer.Scheme(), desired)
		if err != nil {
			return hasApplied, fmt.Errorf("failed to get %s: %w", key, err)
		}
		if current, found, _ := unstructured.NestedString(live.Object, "spec", "failurePolicy"); found {
			utilruntime.Must(unstructured.SetNestedField(desired.Object, current, "spec", "failurePolicy"))
		}
		desired.SetOwnerReferences([]metav1.OwnerReference{reference})
		if isCurrent(desired, live) {
			continue
		}
		if live.GetResourceVersion() == "" {
			err = writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
				client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
		} else {
			err = replace(ctx, writer, live, desired)
		}
		if apierrors.IsForbidden(err) {
			return hasApplied, nil
		}
		if err != nil {
			return hasApplied, fmt.Errorf("failed to apply %s: %w", key, err)
		}
		hasApplied = true
		log.FromContext(ctx).Info("Applied an admission policy or its binding", "kind", desired.GetKind(),
			"name", desired.GetName())
	}
	return hasApplied, nil
}

// replace makes an existing object equal to the desired one: server-side apply would keep match conditions and
// validationActions that other clients have added, and the API server rejects Deny together with Warn.
func replace(ctx context.Context, writer client.Client, live, desired *unstructured.Unstructured) error {
	labels := maps.Clone(live.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, desired.GetLabels())
	patch, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/labels", "value": labels},
		{"op": "add", "path": "/metadata/ownerReferences", "value": desired.GetOwnerReferences()},
		{"op": "replace", "path": "/spec", "value": desired.Object["spec"]},
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

// read returns an object, or an empty one if it does not exist. It is read with its Go type, which a cache contains.
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
