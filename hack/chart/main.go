// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes those parts of the Helm chart that are the same in every
// installation: the CRDs, the access rights and the admission policies. It takes them from
// the output of kustomize, so that they cannot drift.
//
//	go run ./hack/chart dist/install.yaml dist/chart/files
//
// The chart includes these files as text and not as templates, so the braces of CEL need
// no escaping. What has values is a template, written by hand; a kind that is neither is
// an error here.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const header = "# Generated from dist/install.yaml by `make build-installer`. Do not edit.\n"

// keep makes Helm leave an object alone when it uninstalls a release. With the CRDs would go
// every configuration, and while the policies still exist, an API server that starts without
// the CRDs refuses all new namespaces.
const keep = "helm.sh/resource-policy"

// fileOf is the file that each kind goes to.
var fileOf = map[string]string{
	"CustomResourceDefinition":         "crds.yaml",
	"ServiceAccount":                   "rbac.yaml",
	"ClusterRole":                      "rbac.yaml",
	"ClusterRoleBinding":               "rbac.yaml",
	"Role":                             "rbac.yaml",
	"RoleBinding":                      "rbac.yaml",
	"MutatingAdmissionPolicy":          "admission.yaml",
	"MutatingAdmissionPolicyBinding":   "admission.yaml",
	"ValidatingAdmissionPolicy":        "admission.yaml",
	"ValidatingAdmissionPolicyBinding": "admission.yaml",
}

// templated are the kinds that templates are written for.
var templated = []string{"Deployment", "Namespace", "PodDisruptionBudget", "ResourceQuota", "Service"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: chart INSTALL.YAML DIRECTORY")
	}
	manifest, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}
	files, err := split(string(manifest))
	if err != nil {
		return fmt.Errorf("splitting %s: %w", args[0], err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(args[1], name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing a part of the chart: %w", err)
		}
	}
	return nil
}

// split returns the content of each file, with the objects in the order of the manifest.
func split(manifest string) (map[string]string, error) {
	files := map[string]string{}
	// kustomize separates by exactly this, and indents whatever is inside of a text.
	for _, document := range strings.Split(manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("reading an object: %w", err)
		}
		kind, _ := object["kind"].(string)
		if slices.Contains(templated, kind) {
			continue
		}
		file, isKnown := fileOf[kind]
		if !isKnown {
			return nil, fmt.Errorf("kind %q has no place in the chart: say in hack/chart which file it goes to, "+
				"or write a template for it", kind)
		}
		if kind == "CustomResourceDefinition" {
			if err := annotate(object, keep, "keep"); err != nil {
				return nil, err
			}
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("writing an object of kind %s: %w", kind, err)
		}
		if files[file] == "" {
			files[file] = header
		}
		files[file] += "---\n" + string(content)
	}
	return files, nil
}

func annotate(object map[string]any, key, value string) error {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		return fmt.Errorf("a %s has no annotations to add %s to", object["kind"], key)
	}
	annotations[key] = value
	return nil
}
