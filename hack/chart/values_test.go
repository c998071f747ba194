// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

const someValues = `# The file.

# A group.
group:
  # Two
  # lines.
  first: 1
  second: []
`

func TestDescribeSchema(t *testing.T) {
	g := NewWithT(t)
	values, err := parseValues([]byte(someValues))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(values).To(Equal([]value{
		{path: []string{"group"}, description: "A group."},
		{path: []string{"group", "first"}, defaultTo: "`1`", description: "Two lines."},
		{path: []string{"group", "second"}, defaultTo: "`[]`"},
	}))

	described, err := describeSchema([]byte(`{"properties": {"group": {"properties": {"first": {"description": "old"}}}}}`), values)
	g.Expect(err).NotTo(HaveOccurred())
	var schema map[string]any
	g.Expect(json.Unmarshal(described, &schema)).To(Succeed())
	g.Expect(schema).To(Equal(map[string]any{"properties": map[string]any{"group": map[string]any{
		"description": "A group.",
		"properties":  map[string]any{"first": map[string]any{"description": "Two lines."}},
	}}}))

	_, err = describeSchema([]byte(`{"properties": {}}`), values)
	g.Expect(err).To(MatchError(`the schema does not contain value "group"`))
}
