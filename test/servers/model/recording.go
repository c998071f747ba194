// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// Recording is a history of Namespaces, and of objects in them, in a real control plane.
type Recording struct {
	// Servers is the number of API servers.
	Servers uint8 `json:"servers"`
	// Operator, SecondController and Ordinary are user names.
	Operator         string `json:"operator"`
	SecondController string `json:"secondController"`
	Ordinary         string `json:"ordinary"`
	// Steps are sorted by revision.
	Steps []observer.Step `json:"-"`
}

// Write writes a recording to a file: one line with the users, and one line for each step.
func (r Recording) Write(path string) error {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	err := encoder.Encode(r)
	for i := range r.Steps {
		err = errors.Join(err, encoder.Encode(&r.Steps[i]))
	}
	if err = errors.Join(err, os.WriteFile(path, content.Bytes(), 0o600)); err != nil {
		return fmt.Errorf("failed to write recording %s: %w", path, err)
	}
	return nil
}

// ReadRecording reads a file that Write has written.
func ReadRecording(path string) (Recording, error) {
	var recording Recording
	content, err := os.ReadFile(path)
	if err != nil {
		return recording, fmt.Errorf("failed to read recording %s: %w", path, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	err = decoder.Decode(&recording)
	for err == nil && decoder.More() {
		var step observer.Step
		err = decoder.Decode(&step)
		recording.Steps = append(recording.Steps, step)
	}
	if err != nil {
		return recording, fmt.Errorf("failed to decode recording %s: %w", path, err)
	}
	return recording, nil
}

// Check checks that the model allows the history of each name of a Namespace, separately for each object in it.
// It returns the number of checked changes for each action.
func (r Recording) Check() (map[string]int, error) {
	checked := map[string]int{}
	var errs []error
	for _, name := range r.names() {
		for _, key := range r.objects(name) {
			model, changes := r.finalization(name, key)
			if err := checkTrace(model, changes); err != nil {
				errs = append(errs, fmt.Errorf("failed to check namespace %q: %w", name, err))
				continue
			}
			for _, change := range changes {
				checked[change.action]++
			}
		}
	}
	return checked, errors.Join(errs...)
}

// names returns the names of all Namespaces.
func (r Recording) names() []string {
	var names []string
	for i := range r.Steps {
		if step := &r.Steps[i]; isNamespace(step) && !slices.Contains(names, step.Object.Name) {
			names = append(names, step.Object.Name)
		}
	}
	return names
}

// objectKey identifies all objects of one type and name in the Namespaces of one name. The zero value
// identifies no object.
type objectKey struct{ resource, name string }

// objects returns the keys of all objects in the Namespaces of a name, and the zero key.
func (r Recording) objects(name string) []objectKey {
	keys := []objectKey{{}}
	for i := range r.Steps {
		if step := &r.Steps[i]; step.Object.Namespace == name && !slices.Contains(keys, keyOf(step)) {
			keys = append(keys, keyOf(step))
		}
	}
	return keys
}

func keyOf(step *observer.Step) objectKey { return objectKey{step.Resource, step.Object.Name} }

func isNamespace(step *observer.Step) bool { return step.Resource == "namespaces" }

// describe describes a step in an error.
func describe(step *observer.Step) string {
	verb := "changed"
	if step.IsRemoval {
		verb = "removed"
	}
	return fmt.Sprintf("%s %s/%s, UID %s, was %s by %q at revision %d", step.Resource, step.Object.Namespace,
		step.Object.Name, step.Object.UID, verb, step.User, step.Revision)
}

// namespaceIn returns the Namespace in a step.
func namespaceIn(step *observer.Step) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: step.Object.ObjectMeta}
	// A version that cannot be decoded has no finalizers, which the model does not allow.
	_ = json.Unmarshal(step.Object.Spec, &namespace.Spec)
	_ = json.Unmarshal(step.Object.Status, &namespace.Status)
	return namespace
}

// uids numbers UIDs in the order of their creation, from 1.
type uids map[types.UID]uint8

func (u uids) number(uid types.UID) uint8 {
	if _, ok := u[uid]; !ok {
		u[uid] = uint8(len(u) + 1)
	}
	return u[uid]
}
