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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/config/crd"
)

// validateSchema validates a NamespaceTemplate with the schema in its CustomResourceDefinition. It does
// not evaluate the CEL rules in the schema.
func validateSchema(document []byte) error {
	schema, err := templateSchema()
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return err
	}
	result := validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(content)
	if result == nil || len(result.Errors) == 0 {
		return nil
	}
	messages := make([]string, 0, len(result.Errors))
	for _, err := range result.Errors {
		messages = append(messages, schemaMessage(err))
	}
	slices.Sort(messages)
	name, _, _ := unstructured.NestedString(content, "metadata", "name")
	return invalid(name, slices.Compact(messages))
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
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema *spec.Schema }
			}
		}
	}
	if err := yaml.Unmarshal(crd.NamespaceTemplates, &definition); err != nil {
		return nil, fmt.Errorf("failed to decode the schema of NamespaceTemplates: %w", err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema, nil
})
