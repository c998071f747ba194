// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// objectName is the name of the objects, of the template and of the policy.
	objectName = "bench"
	// teamLabel is the label of the namespaces that get the objects.
	teamLabel = "bench.example.com/team"
	// ownerAnnotation contains the name of the creator. Kyverno does not know the creator of a
	// namespace any more when a policy changes.
	ownerAnnotation = "bench.example.com/owner"
	// initialPods is the limit of Pods in the first version of the template.
	initialPods = 100

	rbacGroup    = rbacv1.GroupName
	networkGroup = "networking.k8s.io"
)

//go:embed manifests/objects.yaml
var objectManifests string

// makeObjects returns the objects without a namespace.
func makeObjects(owner string, pods int) ([]*unstructured.Unstructured, error) {
	manifests := strings.NewReplacer("OWNER", strconv.Quote(owner), "PODS", strconv.Itoa(pods)).Replace(withoutComments())
	var objects []*unstructured.Unstructured
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
			return nil, fmt.Errorf("failed to read the objects: %w", err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func withoutComments() string {
	var out strings.Builder
	for line := range strings.Lines(objectManifests) {
		if !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// makePolicy returns the GeneratingPolicy.
func makePolicy(pods int) (*unstructured.Unstructured, error) {
	objects, err := makeObjects(fmt.Sprintf("(( object.metadata.annotations[%q] ))", ownerAnnotation), pods)
	if err != nil {
		return nil, err
	}
	var manifests []string
	for _, object := range objects {
		object.SetNamespace("(( object.metadata.name ))")
		manifest, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("failed to write the policy: %w", err)
		}
		manifests = append(manifests, string(manifest))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policies.kyverno.io/v1",
		"kind":       "GeneratingPolicy",
		"metadata":   map[string]any{"name": objectName},
		"spec": map[string]any{
			"evaluation": map[string]any{"synchronize": map[string]any{"enabled": true}},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"namespaces"},
				"operations": []any{"CREATE", "UPDATE"},
			}}},
			"matchConditions": []any{map[string]any{
				"name":       "team",
				"expression": fmt.Sprintf(`%q in object.metadata.?labels.orValue({})`, teamLabel),
			}},
			"generate": []any{map[string]any{"template": map[string]any{
				"interpolate": "cel", "value": strings.Join(manifests, "---\n"),
			}}},
		},
	}}, nil
}

// makeTemplate returns the spec of the NamespaceTemplate.
func makeTemplate(pods int, policy v1alpha1.TemplateWaitPolicy) (v1alpha1.NamespaceTemplateSpec, error) {
	spec := v1alpha1.NamespaceTemplateSpec{
		NamespaceSelector: &v1alpha1.NamespaceSelector{
			MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{{Key: teamLabel, Operator: "Exists"}},
		},
		ServiceAccountName: objectName,
		Scope:              v1alpha1.ScopeAllNamespaces,
		Initialization:     v1alpha1.TemplateInitialization{WaitPolicy: policy},
	}
	// The first namespace can be created before the manager starts, so that its creator is not recorded.
	objects, err := makeObjects("${ns.annotations['"+ownerAnnotation+"']}", pods)
	if err != nil {
		return spec, err
	}
	for _, object := range objects {
		manifest, err := json.Marshal(object.Object)
		if err != nil {
			return spec, fmt.Errorf("failed to write the template: %w", err)
		}
		spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{
			Name: strings.ToLower(object.GetKind()), Template: &runtime.RawExtension{Raw: manifest},
		})
	}
	return spec, nil
}

// makeRules returns the permissions to write the objects with the given verbs.
func makeRules(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"limitranges", "resourcequotas"}, Verbs: verbs},
		{APIGroups: []string{networkGroup}, Resources: []string{"networkpolicies"}, Verbs: verbs},
		{APIGroups: []string{rbacGroup}, Resources: []string{"rolebindings"}, Verbs: verbs},
		// The API server otherwise requires all permissions of the role.
		{
			APIGroups: []string{rbacGroup}, Resources: []string{"clusterroles"}, ResourceNames: []string{"admin"},
			Verbs: []string{"bind"},
		},
	}
}
