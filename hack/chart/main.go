// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes the static files of the Helm chart: CRDs, RBAC and admission policies. It
// extracts them from the output of kustomize, so that both installations contain the same objects.
// It also extracts optional objects from a second manifest, and writes one file for each option, and describes the
// values in README.md and values.schema.json.
//
//	go run ./hack/chart dist/install.yaml optional.yaml dist/chart/files
//
// The chart includes these files as text, so the braces in CEL expressions need no escaping. Objects
// that depend on values are templates, which are maintained manually. Any other kind is an error.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const header = "# Generated from config/ by `make build-installer`. Do not edit.\n"

// keep prevents Helm from deleting an object when it uninstalls a release. Deleting the CRDs would
// delete all configurations. If the policies still exist at that time, an API server rejects all
// new namespaces after a restart.
const keep = "helm.sh/resource-policy"

// Files that contain several kinds.
const (
	rbacFile      = "rbac.yaml"
	admissionFile = "admission.yaml"
)

// fileOfKind maps a kind to its file.
var fileOfKind = map[string]string{
	"CustomResourceDefinition":         "crds.yaml",
	"ServiceAccount":                   rbacFile,
	"ClusterRole":                      rbacFile,
	"ClusterRoleBinding":               rbacFile,
	"Role":                             rbacFile,
	"RoleBinding":                      rbacFile,
	"ValidatingAdmissionPolicy":        admissionFile,
	"ValidatingAdmissionPolicyBinding": admissionFile,
	"MutatingAdmissionPolicy":          "mutating.yaml",
	"MutatingAdmissionPolicyBinding":   "mutating.yaml",
	"MutatingWebhookConfiguration":     webhooksFile,
	"ValidatingWebhookConfiguration":   webhooksFile,
}

// webhooksFile contains all objects of config/webhook.
const webhooksFile = "webhooks.yaml"

// ownersFile contains all objects of config/owners.
const ownersFile = "owners.yaml"

// provisionerFile contains all objects of config/provisioner.
const provisionerFile = "provisioner.yaml"

// separateFinalizationFile contains the account of config/manager/finalization and its permissions.
const separateFinalizationFile = "separate_finalization.yaml"

// optionalFileOf maps an optional object to its file.
var optionalFileOf = map[string]string{
	"ValidatingAdmissionPolicy/nslifecycle-protection":              "protection.yaml",
	"ValidatingAdmissionPolicyBinding/nslifecycle-protection":       "protection.yaml",
	"ClusterRole/nslifecycle-namespace-deleter":                     ownersFile,
	"ClusterRoleBinding/nslifecycle-namespace-deleter":              ownersFile,
	"ValidatingAdmissionPolicy/nslifecycle-namespace-owners":        ownersFile,
	"ValidatingAdmissionPolicyBinding/nslifecycle-namespace-owners": ownersFile,
	"ServiceAccount/nslifecycle-finalization":                       separateFinalizationFile,
	"Role/nslifecycle-finalization":                                 separateFinalizationFile,
	"RoleBinding/nslifecycle-finalization":                          separateFinalizationFile,
	"ServiceAccount/nslifecycle-provisioner":                        provisionerFile,
	"ValidatingAdmissionPolicy/nslifecycle-provisioner":             provisionerFile,
	"ValidatingAdmissionPolicyBinding/nslifecycle-provisioner":      provisionerFile,
	"Role/impersonate-provisioner":                                  provisionerFile,
	"RoleBinding/impersonate-provisioner":                           provisionerFile,
	"ClusterRole/nslifecycle:provisioner":                           provisionerFile,
	"ClusterRoleBinding/nslifecycle:provisioner":                    provisionerFile,
	"PrometheusRule/nslifecycle-controller-manager-rules":           "prometheus_rules.yaml",
}

// fileOf returns the file of an object.
func fileOf(kind, name string) string {
	if strings.HasPrefix(name, "nslifecycle-webhook") {
		return webhooksFile
	}
	return cmp.Or(optionalFileOf[kind+"/"+name], fileOfKind[kind])
}

// templated are the kinds that have templates.
var templated = []string{
	"Deployment", "Namespace", "PodDisruptionBudget", "ResourceQuota", "Service", "ServiceMonitor",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: chart INSTALL.YAML OPTIONAL.YAML DIRECTORY")
	}
	var manifests []string
	for _, path := range args[:2] {
		manifest, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("failed to read a manifest: %w", err)
		}
		manifests = append(manifests, strings.TrimSuffix(string(manifest), "\n"))
	}
	files, err := split(strings.Join(manifests, separator))
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(args[2], name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("failed to write a file of the chart: %w", err)
		}
	}
	return describeValues(filepath.Dir(args[2]))
}

// separator is the line between the objects in the output of kustomize, which indents multi-line
// strings.
const separator = "\n---\n"

// split returns the content of each file, with the objects in the order of the manifest.
func split(manifest string) (map[string]string, error) {
	files := map[string]string{}
	for _, document := range strings.Split(manifest, separator) {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("failed to parse an object: %w", err)
		}
		kind, _ := object["kind"].(string)
		metadata, _ := object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		file := fileOf(kind, name)
		if file == "" && slices.Contains(templated, kind) {
			continue
		}
		if file == "" {
			return nil, fmt.Errorf("%s %q is not part of the chart: add its file to hack/chart, "+
				"or write a template for it", kind, name)
		}
		if kind == "CustomResourceDefinition" {
			if err := annotate(object, keep, "keep"); err != nil {
				return nil, err
			}
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("failed to write %s %q: %w", kind, name, err)
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
		return fmt.Errorf("a %s has no annotations, which are required to add %s", object["kind"], key)
	}
	annotations[key] = value
	return nil
}
