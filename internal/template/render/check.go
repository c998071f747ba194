// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The keys of manifests.
const (
	keyAPIVersion  = "apiVersion"
	keyKind        = "kind"
	keyMetadata    = "metadata"
	keyName        = "name"
	keyNamespace   = "namespace"
	keyLabels      = "labels"
	keyAnnotations = "annotations"
)

const messageNotAnObject = "must be an object"

var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)

// CheckManifest validates an object before it is written to a Namespace. All objects of templates pass
// it, rendered ones and copies, before the operator adds its own labels and annotations. It does not
// check that the kind exists and is namespaced.
func CheckManifest(manifest *unstructured.Unstructured, namespace string) error {
	check := &manifestCheck{}
	check.manifest(nil, manifest.Object)
	path := field.NewPath(keyMetadata, keyNamespace)
	if got := manifest.GetNamespace(); got != namespace || namespace == "" {
		check.invalid(path, got, fmt.Sprintf("must be %q", namespace))
	}
	return check.errs[:min(len(check.errs), maxErrors)].ToAggregate()
}

// manifestCheck validates a rendered manifest, or the parts of a template that contain no expressions.
type manifestCheck struct {
	// template permits expressions, but not a namespace.
	template bool
	errs     field.ErrorList
}

func (c *manifestCheck) invalid(path *field.Path, value any, message string) {
	if text, ok := value.(string); ok {
		value = abbreviate(text)
	}
	c.errs = append(c.errs, field.Invalid(path, value, message))
}

func (c *manifestCheck) forbid(path *field.Path, message string) {
	c.errs = append(c.errs, field.Forbidden(path, message))
}

func (c *manifestCheck) manifest(path *field.Path, manifest map[string]any) {
	kind := c.groupVersionKind(path, manifest)
	if _, ok := manifest["items"]; ok && strings.HasSuffix(kind.Kind, "List") {
		c.forbid(path.Child("items"), "a list of objects is not permitted: specify each object")
	}
	if _, ok := manifest["status"]; ok {
		c.forbid(path.Child("status"), "the status is not part of a template")
	}
	if _, ok := manifest["stringData"]; ok && kind.Group == "" && kind.Kind == "Secret" {
		c.forbid(path.Child("stringData"),
			"the API server does not return stringData: use data and base64.encode(bytes(...))")
	}
	metadata, ok := manifest[keyMetadata].(map[string]any)
	if !ok {
		c.errs = append(c.errs, field.Required(path.Child(keyMetadata, keyName), ""))
		return
	}
	c.metadata(path.Child(keyMetadata), kind, metadata)
}

// groupVersionKind validates apiVersion and kind, which cannot contain expressions.
func (c *manifestCheck) groupVersionKind(path *field.Path, manifest map[string]any) schema.GroupVersionKind {
	apiVersion, _ := manifest[keyAPIVersion].(string)
	kind, _ := manifest[keyKind].(string)
	if !kindName.MatchString(kind) {
		c.invalid(path.Child(keyKind), kind, "must be the name of a kind")
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case err != nil || len(validation.IsDNS1035Label(version.Version)) > 0,
		strings.Contains(apiVersion, "/") && len(validation.IsDNS1123Subdomain(version.Group)) > 0:
		c.invalid(path.Child(keyAPIVersion), apiVersion,
			"must be a version such as v1, or a group and a version such as apps/v1")
	case isOwnDomain(version.Group):
		c.forbid(path.Child(keyAPIVersion), "objects of this project are not permitted")
	}
	return version.WithKind(kind)
}

func (c *manifestCheck) metadata(path *field.Path, kind schema.GroupVersionKind, metadata map[string]any) {
	if c.tooMany(path, metadata) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		switch key {
		case keyName:
		case keyLabels, keyAnnotations:
			c.entries(path, key, metadata[key])
		case keyNamespace:
			if c.template {
				c.forbid(path.Child(key), "the operator sets the namespace")
			}
		default:
			c.forbid(childPath(path, key), "only name, labels and annotations are permitted")
		}
	}
	name, ok := c.text(path.Child(keyName), metadata[keyName])
	if !ok {
		return
	}
	for _, problem := range nameProblems(kind.Group, name) {
		c.invalid(path.Child(keyName), name, problem)
	}
}

// nameProblems validates a name. Only RBAC objects can have names that are no DNS subdomains.
func nameProblems(group, name string) []string {
	switch {
	case name == "":
		return []string{validation.EmptyError()}
	case len(name) > validation.DNS1123SubdomainMaxLength:
		return []string{validation.MaxLenError(validation.DNS1123SubdomainMaxLength)}
	case group == rbacv1.GroupName:
		return content.IsPathSegmentName(name)
	default:
		return validation.IsDNS1123Subdomain(name)
	}
}

// text returns the string and true if it is a string without an expression.
func (c *manifestCheck) text(path *field.Path, value any) (string, bool) {
	if value == nil {
		value = ""
	}
	text, ok := value.(string)
	if !ok {
		c.invalid(path, value, "must be a string")
		return "", false
	}
	return text, !c.template || !strings.Contains(text, exprStart)
}

// entries validates labels or annotations.
func (c *manifestCheck) entries(parent *field.Path, kind string, value any) {
	path := parent.Child(kind)
	entries, ok := value.(map[string]any)
	if text, isText := value.(string); isText && c.template && strings.Contains(text, exprStart) {
		return
	}
	if !ok && value != nil {
		c.invalid(path, "", messageNotAnObject)
	}
	if c.tooMany(path, entries) {
		return
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		child := childPath(path, key)
		if isOwnKey(key) {
			c.forbid(child, "keys of the domain nslifecycle.dev are reserved")
		}
		text, isLiteral := c.text(child, entries[key])
		size += len(key) + len(text)
		var keyProblems, valueProblems []string
		if kind == keyAnnotations {
			keyProblems = validation.IsQualifiedName(strings.ToLower(key))
		} else if keyProblems = validation.IsQualifiedName(key); isLiteral {
			valueProblems = validation.IsValidLabelValue(text)
		}
		for _, problem := range keyProblems {
			c.invalid(path, key, problem)
		}
		for _, problem := range valueProblems {
			c.invalid(child, text, problem)
		}
	}
	if size > apivalidation.TotalAnnotationSizeLimitB {
		c.errs = append(c.errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
}

// tooMany reports whether there are so many entries that they are not validated one by one.
func (c *manifestCheck) tooMany(path *field.Path, entries map[string]any) bool {
	if len(entries) <= maxEntries {
		return false
	}
	c.forbid(path, fmt.Sprintf("has %d entries; at most %d are permitted", len(entries), maxEntries))
	return true
}

// isOwnKey reports whether a label or annotation belongs to the project.
func isOwnKey(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && isOwnDomain(domain)
}

// isOwnDomain reports whether a domain is that of the project or a subdomain of it.
func isOwnDomain(domain string) bool {
	own := strings.TrimSuffix(v1alpha1.Prefix, "/")
	domain = strings.ToLower(domain)
	return domain == own || strings.HasSuffix(domain, "."+own)
}
