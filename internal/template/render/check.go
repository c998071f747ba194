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

const kindSecret = "Secret"

var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)

// CheckManifest validates an object before it is written to a Namespace. All objects of templates pass
// it, rendered ones and copies, before the operator adds its own labels and annotations. It does not
// check that the kind exists and is namespaced.
func CheckManifest(manifest *unstructured.Unstructured, namespace string) error {
	check := &manifestCheck{}
	check.manifest(nil, manifest.Object)
	path := field.NewPath(keyMetadata, keyNamespace)
	if got := manifest.GetNamespace(); got != namespace || namespace == "" {
		check.errs = append(check.errs, field.Invalid(path, abbreviate(got), fmt.Sprintf(msgOtherNamespace, namespace)))
	}
	return check.errs[:min(len(check.errs), maxErrors)].ToAggregate()
}

// checkTemplate validates the parts of a manifest that contain no expressions.
func checkTemplate(path *field.Path, manifest map[string]any) field.ErrorList {
	check := &manifestCheck{template: true}
	check.manifest(path, manifest)
	return check.errs
}

// manifestCheck validates a template or a rendered manifest.
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
		c.forbid(path.Child("items"), msgList)
	}
	if _, ok := manifest["status"]; ok {
		c.forbid(path.Child("status"), msgStatus)
	}
	if _, ok := manifest["stringData"]; ok && kind.Group == "" && kind.Kind == kindSecret {
		c.forbid(path.Child("stringData"), msgStringData)
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
		c.invalid(path.Child(keyKind), kind, msgKind)
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case err != nil || len(validation.IsDNS1035Label(version.Version)) > 0,
		strings.Contains(apiVersion, "/") && len(validation.IsDNS1123Subdomain(version.Group)) > 0:
		c.invalid(path.Child(keyAPIVersion), apiVersion, msgAPIVersion)
	case isOwnDomain(version.Group):
		c.forbid(path.Child(keyAPIVersion), msgOwnGroup)
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
		case keyLabels:
			c.labels(path.Child(key), metadata[key])
		case keyAnnotations:
			c.annotations(path.Child(key), metadata[key])
		case keyNamespace:
			if c.template {
				c.forbid(path.Child(key), msgNamespaceField)
			}
		default:
			c.forbid(childPath(path, key), msgMetadataField)
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
		c.invalid(path, value, msgNotAString)
		return "", false
	}
	return text, !c.template || !strings.Contains(text, exprStart)
}

func (c *manifestCheck) labels(path *field.Path, value any) {
	entries := c.entries(path, value, validation.IsQualifiedName)
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		text, ok := c.text(childPath(path, key), entries[key])
		if !ok {
			continue
		}
		for _, problem := range validation.IsValidLabelValue(text) {
			c.invalid(childPath(path, key), text, problem)
		}
	}
}

func (c *manifestCheck) annotations(path *field.Path, value any) {
	values := map[string]string{}
	entries := c.entries(path, value, func(key string) []string {
		return validation.IsQualifiedName(strings.ToLower(key))
	})
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		values[key], _ = c.text(childPath(path, key), entries[key])
	}
	if err := apivalidation.ValidateAnnotationsSize(values); err != nil {
		c.errs = append(c.errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
}

// entries validates the keys of labels or annotations.
func (c *manifestCheck) entries(
	path *field.Path, value any, keyProblems func(key string) []string,
) map[string]any {
	entries, ok := value.(map[string]any)
	if text, isText := value.(string); isText && c.template && strings.Contains(text, exprStart) {
		return nil
	}
	if !ok && value != nil {
		c.invalid(path, "", msgNotAnObject)
	}
	if c.tooMany(path, entries) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		for _, problem := range keyProblems(key) {
			c.invalid(path, key, problem)
		}
		if isOwnKey(key) {
			c.forbid(childPath(path, key), msgReservedKey)
		}
	}
	return entries
}

// tooMany reports whether there are so many entries that they are not validated one by one.
func (c *manifestCheck) tooMany(path *field.Path, entries map[string]any) bool {
	if len(entries) <= maxEntries {
		return false
	}
	c.forbid(path, fmt.Sprintf(msgTooManyEntries, len(entries), maxEntries))
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
