// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The comparison is fair only if all contenders create the same objects.
func TestContendersCreateTheSameObjects(t *testing.T) {
	const pods = 42
	want, err := makeObjects("alice", pods)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != int(kinds) {
		t.Fatalf("There are %d objects, but the observer expects %d", len(want), kinds)
	}
	spec, err := makeTemplate(pods, v1alpha1.WaitForApplied)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := makePolicy(pods)
	if err != nil {
		t.Fatal(err)
	}
	generated, _, err := unstructured.NestedSlice(policy.Object, "spec", "generate")
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := unstructured.NestedString(generated[0].(map[string]any), "template", "value")
	if err != nil {
		t.Fatal(err)
	}
	// Evaluates the expressions for the creator and the name of the namespace.
	evaluate := strings.NewReplacer("${ns.annotations['"+ownerAnnotation+"']}", "alice", "(( object.metadata.name ))", "a-namespace",
		`(( object.metadata.annotations["`+ownerAnnotation+`"] ))`, "alice").Replace
	documents := strings.Split(value, "---\n")
	for i, object := range want {
		var templated, policed map[string]any
		if err := json.Unmarshal([]byte(evaluate(string(spec.Objects[i].Template.Raw))), &templated); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(evaluate(documents[i])), &policed); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(templated, object.Object) {
			t.Errorf("The template contains %v, want %v", templated, object.Object)
		}
		object.SetNamespace("a-namespace")
		if !reflect.DeepEqual(policed, object.Object) {
			t.Errorf("The policy contains %v, want %v", policed, object.Object)
		}
	}
}
