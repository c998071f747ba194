// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Compile compiles all expressions of a template and validates what can be validated without a Namespace.
// The errors name the field and, if it contains expressions, the line and column in the expression.
func Compile(spec *v1alpha1.NamespaceTemplateSpec) (*Program, field.ErrorList) {
	path := field.NewPath("spec")
	compiler, err := newCompiler(spec)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	program := &Program{parameters: spec.DeepCopy().Parameters}
	errs := checkParameters(path.Child("parameters"), spec.Parameters)
	variables, variableErrs := compiler.compileVariables(path.Child("variables"), spec.Variables)
	errs = append(errs, templateset.CheckMetadata(path.Child("metadata"), spec)...)
	metadata, metadataErrs := compiler.compileMetadata(path.Child("objectMetadata"), spec.ObjectMetadata)
	objects, objectErrs := compiler.compileObjects(path.Child("objects"), spec.Objects)
	if size := templateset.Size(spec); size > templateset.MaxTemplateBytes {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("the selector and the parameters have %d bytes, more than %d",
			size, templateset.MaxTemplateBytes)))
	}
	if errs = slices.Concat(errs, variableErrs, metadataErrs, objectErrs); len(errs) > 0 {
		return nil, errs[:min(len(errs), maxErrors)]
	}
	sortObjects(objects)
	program.variables, program.metadata, program.objects = variables, metadata, objects
	program.usesLabels, program.usesAnnotations = compiler.used[fieldLabels], compiler.used[fieldAnnotations]
	return program, nil
}

// compileVariables compiles the variables. Each can use those before it.
func (c *compiler) compileVariables(
	path *field.Path, specs []v1alpha1.TemplateVariable,
) ([]variable, field.ErrorList) {
	var result []variable
	var errs field.ErrorList
	for i, spec := range specs {
		path := path.Index(i)
		if _, ok := c.variables[spec.Name]; ok {
			errs = append(errs, field.Duplicate(path.Child("name"), spec.Name))
			continue
		}
		compiled, err := c.compile(spec.Expression)
		if err == nil && !isVariableType(compiled.output) {
			err = fmt.Errorf(msgNotVariable, compiled.output)
		}
		if err != nil {
			errs = invalid(errs, path.Child("expression"), spec.Expression, err)
			// Expressions that use the variable are not wrong because of this.
			compiled = &expression{output: types.DynType}
		}
		c.variables[spec.Name] = compiled.output
		result = append(result, variable{name: spec.Name, expression: compiled})
	}
	return result, errs
}

// compileMetadata compiles the metadata of all objects.
func (c *compiler) compileMetadata(
	path *field.Path, spec *v1alpha1.TemplateObjectMetadata,
) (node, field.ErrorList) {
	if spec == nil {
		return &literal{value: map[string]any{}}, nil
	}
	check := &manifestCheck{template: true}
	values := map[string]any{}
	if len(spec.Labels) > 0 {
		values[keyLabels] = valuesOf(spec.Labels)
		check.labels(path.Child(keyLabels), values[keyLabels])
	}
	if len(spec.Annotations) > 0 {
		values[keyAnnotations] = valuesOf(spec.Annotations)
		check.annotations(path.Child(keyAnnotations), values[keyAnnotations])
	}
	if len(check.errs) > 0 {
		return nil, check.errs
	}
	return c.compileMap(path, values)
}

func valuesOf(metadata map[string]v1alpha1.ObjectMetadataValue) map[string]any {
	values := make(map[string]any, len(metadata))
	for key, value := range metadata {
		values[key] = string(value)
	}
	return values
}

func (c *compiler) compileObjects(
	path *field.Path, specs []v1alpha1.TemplateObject,
) ([]object, field.ErrorList) {
	if len(specs) > MaxObjects {
		return nil, field.ErrorList{field.TooMany(path, len(specs), MaxObjects)}
	}
	var result []object
	var errs field.ErrorList
	names := map[string]bool{}
	always := map[identity]string{}
	count := 0
	for i := range specs {
		if len(errs) >= maxErrors {
			break
		}
		path := path.Index(i)
		if names[specs[i].Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), specs[i].Name))
		}
		names[specs[i].Name] = true
		compiled, objectErrs := c.compileObject(path, &specs[i])
		errs = append(errs, objectErrs...)
		count += max(c.lists[specs[i].ForEach], 1)
		if len(objectErrs) == 0 && compiled.includeWhen == nil && compiled.name != "" {
			id := compiled.identity(nil)
			if other, ok := always[id]; ok {
				errs = append(errs, field.Invalid(path, compiled.name, fmt.Sprintf(msgDuplicateObject, other)))
			}
			always[id] = specs[i].Name
		}
		result = append(result, compiled)
	}
	if count > MaxObjects {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf(msgTooManyObjects, count, MaxObjects)))
	}
	return result, errs
}

func (c *compiler) compileObject(path *field.Path, spec *v1alpha1.TemplateObject) (object, field.ErrorList) {
	result := object{spec: spec.DeepCopy()}
	var errs field.ErrorList
	if spec.ForEach != "" {
		if c.lists[spec.ForEach] == 0 {
			return result, field.ErrorList{field.Invalid(path.Child("forEach"), spec.ForEach, msgNotAList)}
		}
		c.repetitions = c.lists[spec.ForEach]
		defer func() { c.repetitions = 0 }()
	}
	if spec.IncludeWhen != "" {
		compiled, err := c.compile(spec.IncludeWhen)
		if err == nil && !compiled.output.IsExactType(types.BoolType) {
			err = fmt.Errorf(msgNotBool, compiled.output)
		}
		if err != nil {
			errs = invalid(errs, path.Child("includeWhen"), spec.IncludeWhen, err)
		}
		result.includeWhen = compiled
	}
	if (spec.Template == nil) == (spec.SourceRef == nil) {
		return result, append(errs, field.Invalid(path, spec.Name, msgSourceAndCopy))
	}
	if spec.SourceRef != nil {
		result.kind = schema.GroupKind{Kind: spec.SourceRef.Kind}
		result.name = spec.SourceRef.Name
	} else if templateErrs := c.compileTemplate(path.Child("template"), &result); len(templateErrs) > 0 {
		return result, append(errs, templateErrs...)
	}
	if spec.ForEach != "" && !usesItem(nameOf(result.manifest)) {
		errs = append(errs, field.Invalid(path.Child("forEach"), spec.ForEach, msgNameOfItem))
	}
	return result, errs
}

func (c *compiler) compileTemplate(path *field.Path, result *object) field.ErrorList {
	var content map[string]any
	if err := json.Unmarshal(result.spec.Template.Raw, &content); err != nil || content == nil {
		return field.ErrorList{field.Invalid(path, "", msgNotAnObject)}
	}
	if err := c.admitValue(path, content, 0); err != nil {
		return field.ErrorList{err}
	}
	errs := checkTemplate(path, content)
	manifest, nodeErrs := c.compileNode(path, content)
	if errs = append(errs, nodeErrs...); len(errs) > 0 {
		return errs
	}
	// checkTemplate has validated them.
	apiVersion, _ := content[keyAPIVersion].(string)
	kind, _ := content[keyKind].(string)
	result.kind = schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
	result.name = staticName(manifest)
	result.manifest = manifest
	// The copy of the source is not used any more.
	result.spec.Template = nil
	return nil
}

// staticName returns the name in a manifest, or "" if it contains an expression.
func staticName(manifest node) string {
	known, ok := nameOf(manifest).(*literal)
	if !ok {
		return ""
	}
	name, _ := known.value.(string)
	return name
}

// nameOf returns the name in a manifest; nil if there is none.
func nameOf(manifest node) node {
	for _, key := range []string{keyMetadata, keyName} {
		switch parent := manifest.(type) {
		case *literal:
			values, _ := parent.value.(map[string]any)
			manifest = &literal{value: values[key]}
		case *mapping:
			manifest = parent.values[key]
		default:
			return nil
		}
	}
	return manifest
}

// usesItem reports whether a string contains an expression that uses the element of forEach.
func usesItem(manifest node) bool {
	switch value := manifest.(type) {
	case *whole:
		return value.expression.usesItem
	case *text:
		return slices.ContainsFunc(value.parts, func(part textPart) bool {
			return part.expression != nil && part.expression.usesItem
		})
	default:
		return false
	}
}
