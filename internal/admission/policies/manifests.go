// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"errors"
	"io"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/config/mutating"
	"github.com/nslifecycle/nslifecycle/config/validating"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// Selector selects the policies and bindings of this project.
func Selector() labels.Selector {
	ours, err := labels.NewRequirement(internalv1alpha1.LabelPolicy, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*ours)
}

// Objects returns an empty object of each type of validating policy and binding.
func Objects() []client.Object {
	return []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}}
}

// MutatingObjects returns an empty object of each type of mutating policy and binding.
func MutatingObjects() []client.Object {
	return []client.Object{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
}

// Mutating returns the policies in config/mutating with their bindings, except that of inject, which does not reject
// namespaces yet.
func Mutating() []*unstructured.Unstructured {
	return fromManifests(false, mutating.Complete, mutating.RequireSet, mutating.Inject)
}

// InjectBinding returns the binding of inject.
func InjectBinding() []*unstructured.Unstructured { return Decode(mutating.InjectBinding) }

// Validating returns the policies in config/validating with their bindings, which follow the gate if it is audited.
func Validating(isAudited bool) []*unstructured.Unstructured {
	return fromManifests(isAudited, validating.WaitingSubjects, validating.InitializerSubjects, validating.Templates)
}

// fromManifests returns objects with the failure policy at the installation. An administrator who applies inject
// instead gets Fail.
func fromManifests(isAudited bool, manifests ...[]byte) []*unstructured.Unstructured {
	objects := Decode(manifests...)
	for _, object := range objects {
		policy := Named(object.GetLabels()[internalv1alpha1.LabelPolicy])
		switch {
		case object.GetKind() == policy.Kind && policy.FailsOpen:
			utilruntime.Must(unstructured.SetNestedField(object.Object, string(admissionv1.Ignore), "spec", "failurePolicy"))
		case object.GetKind() != policy.Kind && policy.FollowsGate && isAudited:
			actions := []string{string(admissionv1.Warn), string(admissionv1.Audit)}
			utilruntime.Must(unstructured.SetNestedStringSlice(object.Object, actions, "spec", "validationActions"))
		}
	}
	return objects
}

// Decode returns the objects in manifests, in their order.
func Decode(manifests ...[]byte) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(bytes.Join(manifests, []byte("\n---\n"))), 1024)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		utilruntime.Must(err) // The manifests are part of the program.
		objects = append(objects, object)
	}
}
