// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestSchemas checks that elements of lists have no defaults: client-side `kubectl apply` compares whole lists of custom
// resources, and would report a change of an unchanged manifest each time. Rules about several fields name one: the
// error would name only the object.
func TestSchemas(t *testing.T) {
	files, err := filepath.Glob("bases/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("got %d files and error %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &definition); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			check(t, file, version.Schema.OpenAPIV3Schema, false)
		}
	}
}

func check(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps, isInList bool) {
	t.Helper()
	if isInList && schema.Default != nil {
		t.Errorf("%s has the default %s", path, schema.Default.Raw)
	}
	if schema.Type == "object" && schema.AdditionalProperties == nil {
		for _, rule := range schema.XValidations {
			if rule.FieldPath == "" {
				t.Errorf("%s has a rule without fieldPath: %s", path, rule.Rule)
			}
		}
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		check(t, path+"."+name, &property, isInList)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		check(t, path+"[]", schema.Items.Schema, true)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		check(t, path+"{}", schema.AdditionalProperties.Schema, isInList)
	}
}
