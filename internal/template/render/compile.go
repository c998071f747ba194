// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Compile compiles all expressions of a template and validates what can be validated without a Namespace.
// The errors name the field and, if it contains expressions, the line and column in the expression.
func Compile(spec *v1alpha1.NamespaceTemplateSpec) (*Program, field.ErrorList) {
	path := field.NewPath("spec")
	c, err := newCompiler(spec)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	program := &Program{parameters: spec.DeepCopy().Parameters}
	c.checkParameters(path.Child("parameters"), spec.Parameters)
	c.errs = append(c.errs, templateset.CheckMetadata(path.Child("metadata"), spec)...)
	if size := templateset.Size(spec); size > templateset.MaxTemplateBytes {
		c.forbid(path, fmt.Sprintf("the selector and the parameters have %d bytes, more than %d",
			size, templateset.MaxTemplateBytes))
	}
	program.variables = c.compileVariables(path.Child("variables"), spec.Variables)
	program.metadata = c.compileMetadata(path.Child("objectMetadata"), spec.ObjectMetadata)
	program.objects = c.compileObjects(path.Child("objects"), spec.Objects)
	if len(c.errs) > 0 {
		return nil, c.errs[:min(len(c.errs), maxErrors)]
	}
	slices.SortStableFunc(program.objects, func(a, b object) int { return cmp.Compare(Rank(a.kind), Rank(b.kind)) })
	program.usesLabels, program.usesAnnotations = c.used[fieldLabels], c.used[fieldAnnotations]
	return program, nil
}

// compileVariables compiles the variables. Each can use those before it.
func (c *compiler) compileVariables(path *field.Path, specs []v1alpha1.TemplateVariable) []variable {
	var result []variable
	for i, spec := range specs {
		path := path.Index(i)
		if _, ok := c.variables[spec.Name]; ok {
			c.errs = append(c.errs, field.Duplicate(path.Child("name"), spec.Name))
			continue
		}
		compiled := c.compileAt(path.Child("expression"), spec.Expression, func(t *types.Type) bool {
			return t.Kind() == types.BytesKind || isValueType(t)
		}, "a value of type %s cannot be a variable")
		// Expressions that use a variable are not wrong because it is.
		c.variables[spec.Name] = types.DynType
		if compiled != nil {
			c.variables[spec.Name] = compiled.output
		}
		result = append(result, variable{name: spec.Name, expression: compiled})
	}
	return result
}

// compileMetadata compiles the metadata of all objects.
func (c *compiler) compileMetadata(path *field.Path, spec *v1alpha1.TemplateObjectMetadata) any {
	if spec == nil {
		return map[string]any{}
	}
	before := len(c.errs)
	values, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		c.errs = append(c.errs, field.InternalError(path, err))
	}
	c.entries(path, keyLabels, values[keyLabels])
	c.entries(path, keyAnnotations, values[keyAnnotations])
	if len(c.errs) > before {
		return nil
	}
	return c.compileValue(path, values)
}

func (c *compiler) compileObjects(path *field.Path, specs []v1alpha1.TemplateObject) []object {
	if len(specs) > MaxObjects {
		c.errs = append(c.errs, field.TooMany(path, len(specs), MaxObjects))
		return nil
	}
	var result []object
	names := map[string]bool{}
	always := map[identity]string{}
	count := 0
	for i := range specs {
		if len(c.errs) >= maxErrors {
			break
		}
		path := path.Index(i)
		if names[specs[i].Name] {
			c.errs = append(c.errs, field.Duplicate(path.Child("name"), specs[i].Name))
		}
		names[specs[i].Name] = true
		before := len(c.errs)
		compiled := c.compileObject(path, &specs[i])
		count += max(c.lists[specs[i].ForEach], 1)
		if len(c.errs) == before && compiled.includeWhen == nil && compiled.name != "" {
			if other, ok := always[compiled.identity]; ok {
				c.invalid(path, compiled.name, fmt.Sprintf(messageDuplicateObject, other))
			}
			always[compiled.identity] = specs[i].Name
		}
		result = append(result, compiled)
	}
	if count > MaxObjects {
		c.forbid(path, fmt.Sprintf("the template can contain %d objects, one for each element of forEach; "+
			"at most %d are permitted", count, MaxObjects))
	}
	return result
}

func (c *compiler) compileObject(path *field.Path, spec *v1alpha1.TemplateObject) object {
	result := object{spec: spec.DeepCopy()}
	before := len(c.errs)
	c.hasItem = spec.ForEach != ""
	if c.hasItem && c.lists[spec.ForEach] == 0 {
		c.invalid(path.Child("forEach"), spec.ForEach, "the template has no parameter with this name and type List")
		return result
	}
	if spec.IncludeWhen != "" {
		result.includeWhen = c.compileAt(path.Child("includeWhen"), spec.IncludeWhen, types.BoolType.IsExactType,
			"the expression must have the type bool, not %s")
	}
	switch {
	case (spec.Template == nil) == (spec.SourceRef == nil):
		c.invalid(path, spec.Name, "set either template or copy")
	case spec.SourceRef != nil:
		result.manifest = IdentityOfCopy(spec.SourceRef, "").Object
	default:
		result.manifest = c.compileTemplate(path.Child("template"), spec.Template.Raw)
		// The copy of the source is not used any more.
		result.spec.Template = nil
	}
	if len(c.errs) > before || c.failures >= maxFailures {
		return result
	}
	manifest := unstructured.Unstructured{Object: result.manifest}
	result.identity = identity{manifest.GroupVersionKind().GroupKind(), manifest.GetName()}
	name, _, _ := unstructured.NestedFieldNoCopy(result.manifest, keyMetadata, keyName)
	if computed, ok := name.(*text); c.hasItem && (!ok || !computed.usesItem()) {
		c.invalid(path.Child("forEach"), spec.ForEach,
			"the name must contain item: it must be different for each element")
	}
	return result
}

func (c *compiler) compileTemplate(path *field.Path, source []byte) map[string]any {
	var content map[string]any
	if err := json.Unmarshal(source, &content); err != nil || content == nil {
		c.invalid(path, "", messageNotAnObject)
		return nil
	}
	count, depth := sizeOf(content)
	switch c.values += count; {
	case c.values > maxManifestValues:
		c.invalid(path, "", fmt.Sprintf(
			"the objects of the template contain too many values; at most %d are permitted", maxManifestValues))
		return nil
	case depth > maxDepth:
		c.invalid(path, "", fmt.Sprintf("must be nested at most %d times", maxDepth))
		return nil
	}
	c.manifest(path, content)
	compiled, _ := c.compileValue(path, content).(map[string]any)
	return compiled
}
