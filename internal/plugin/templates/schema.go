// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/config/crd"
)

// validateSchema validates a NamespaceTemplate with the schema in its CustomResourceDefinition. It does
// not evaluate the CEL rules in the schema.
func validateSchema(document []byte) error {
	schema, err := templateSchema()
	if err != nil {
		return err
	}
	var content any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return err
	}
	var object metav1.PartialObjectMetadata
	// The schema describes what this cannot decode.
	_ = yaml.Unmarshal(document, &object)
	result := validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(content)
	if result == nil || len(result.Errors) == 0 {
		return nil
	}
	messages := make([]string, 0, len(result.Errors))
	for _, err := range result.Errors {
		messages = append(messages, schemaMessage(err))
	}
	slices.Sort(messages)
	return invalid(object.Name, slices.Compact(messages))
}

// schemaMessage returns an error of the validator as the API server formats it.
func schemaMessage(err error) string {
	var found *openapierrors.Validation
	if !errors.As(err, &found) {
		return err.Error()
	}
	text := found.Error()
	if _, detail, ok := strings.Cut(text, " in body "); ok {
		text = detail
	}
	return fmt.Sprintf("%s: %s", cmp.Or(strings.TrimPrefix(found.Name, "."), "metadata"), text)
}

var templateSchema = sync.OnceValues(func() (*spec.Schema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.NamespaceTemplates, definition); err != nil {
		return nil, fmt.Errorf("failed to decode the schema of NamespaceTemplates: %w", err)
	}
	for _, version := range definition.Spec.Versions {
		if version.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		encoded, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("failed to encode the schema of NamespaceTemplates: %w", err)
		}
		schema := &spec.Schema{}
		return schema, json.Unmarshal(encoded, schema)
	}
	return nil, fmt.Errorf("failed to find version %s of NamespaceTemplates", v1alpha1.GroupVersion.Version)
})
