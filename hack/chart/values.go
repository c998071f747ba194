// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const readme = `# Helm chart of nslifecycle

Generated from values.yaml by ` + "`make build-installer`" + `. Do not edit.

` + "```sh" + `
helm install nslifecycle dist/chart --namespace=nslifecycle-system --create-namespace
` + "```" + `

No registry contains the image yet: set image.repository and image.tag to one that you have built. See [Install, upgrade
and uninstall](../../docs/install.md). A cluster can have only one installation, so the names of the objects do not
depend on the release.

| Value | Default | Description |
|---|---|---|
`

// value is a value of the chart with the comment above it.
type value struct {
	path                   []string
	defaultTo, description string
}

// describeValues writes README.md, and the descriptions in values.schema.json, from the comments in values.yaml.
func describeValues(chart string) error {
	source, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return fmt.Errorf("failed to read the values: %w", err)
	}
	values, err := parseValues(source)
	if err != nil {
		return err
	}
	path := filepath.Join(chart, "values.schema.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("failed to read the schema of the values: %w", err)
	}
	schema, err := describeSchema(content, values)
	if err != nil {
		return err
	}
	table := readme
	for _, v := range values {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", strings.Join(v.path, "."), v.defaultTo, v.description)
	}
	return errors.Join(
		os.WriteFile(path, schema, 0o644), os.WriteFile(filepath.Join(chart, "README.md"), []byte(table), 0o644))
}

// parseValues returns the values in their order. A group of values is one of them if it has a comment.
func parseValues(source []byte) ([]value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("failed to parse the values: %w", err)
	}
	var values []value
	var walk func(path []string, mapping *yaml.Node) error
	walk = func(path []string, mapping *yaml.Node) error {
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			key, content := mapping.Content[i], mapping.Content[i+1]
			v := value{path: append(path[:len(path):len(path)], key.Value), description: describe(key.HeadComment)}
			if content.Kind == yaml.MappingNode && len(content.Content) > 0 {
				if v.description != "" {
					values = append(values, v)
				}
				if err := walk(v.path, content); err != nil {
					return err
				}
				continue
			}
			var decoded any
			if err := content.Decode(&decoded); err != nil {
				return fmt.Errorf("failed to parse value %q: %w", strings.Join(v.path, "."), err)
			}
			encoded, err := json.Marshal(decoded)
			if err != nil {
				return fmt.Errorf("failed to encode value %q: %w", strings.Join(v.path, "."), err)
			}
			v.defaultTo = "`" + string(encoded) + "`"
			values = append(values, v)
		}
		return nil
	}
	return values, walk(nil, document.Content[0])
}

// describe returns the last paragraph of a comment: the first can be about the following values.
func describe(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	text := strings.ReplaceAll(paragraphs[len(paragraphs)-1], "\n# ", " ")
	return strings.TrimPrefix(text, "# ")
}

// describeSchema adds the descriptions to a JSON schema.
func describeSchema(content []byte, values []value) ([]byte, error) {
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		return nil, fmt.Errorf("failed to parse the schema of the values: %w", err)
	}
	for _, v := range values {
		current := schema
		for _, key := range v.path {
			properties, _ := current["properties"].(map[string]any)
			if reference, ok := current["$ref"].(string); ok {
				definitions, _ := schema["definitions"].(map[string]any)
				definition, _ := definitions[strings.TrimPrefix(reference, "#/definitions/")].(map[string]any)
				properties, _ = definition["properties"].(map[string]any)
			}
			if current, _ = properties[key].(map[string]any); current == nil {
				break
			}
		}
		switch {
		case current != nil && v.description != "":
			current["description"] = v.description
		case current == nil && len(v.path) == 1:
			return nil, fmt.Errorf("the schema does not contain value %q", v.path[0])
		}
	}
	described, err := json.MarshalIndent(schema, "", "  ")
	return append(described, '\n'), err
}
