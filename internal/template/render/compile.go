// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

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
	program := &Program{}
	errs := checkParameters(path.Child("parameters"), spec.Parameters)
	for _, parameter := range spec.Parameters {
		program.parameters = append(program.parameters, parameter.Name)
	}
	variables, variableErrs := compiler.compileVariables(path.Child("variables"), spec.Variables)
	errs = append(errs, templateset.CheckMetadata(path.Child("metadata"), spec)...)
	objects, objectErrs := compiler.compileObjects(path.Child("objects"), spec.Objects)
	if size := templateset.Size(spec); size > templateset.MaxTemplateBytes {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("the selector and the parameters have %d bytes, more than %d",
			size, templateset.MaxTemplateBytes)))
	}
	if errs = append(append(errs, variableErrs...), objectErrs...); len(errs) > 0 {
		return nil, errs[:min(len(errs), maxErrors)]
	}
	sortObjects(objects)
	program.variables, program.objects = variables, objects
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
			compiled = &expression{output: types.DynType, bound: scalar}
		}
		c.variables[spec.Name] = compiled.output
		c.bounds[varVariables][spec.Name] = compiled.bound.within(maxVariable)
		result = append(result, variable{name: spec.Name, expression: compiled})
	}
	return result, errs
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
		if len(objectErrs) == 0 && compiled.includeWhen == nil && compiled.name != "" {
			id := compiled.identity(nil)
			if other, ok := always[id]; ok {
				errs = append(errs, field.Invalid(path, compiled.name, fmt.Sprintf(msgDuplicateObject, other)))
			}
			always[id] = specs[i].Name
		}
		result = append(result, compiled)
	}
	return result, errs
}

func (c *compiler) compileObject(path *field.Path, spec *v1alpha1.TemplateObject) (object, field.ErrorList) {
	result := object{spec: spec.DeepCopy()}
	var errs field.ErrorList
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
		result.spec.SourceRef.NamespaceUID = "" // The identity of the source does not depend on it.
		return result, errs
	}
	return result, append(errs, c.compileTemplate(path.Child("template"), &result)...)
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
	switch manifest := manifest.(type) {
	case *literal:
		content, _ := manifest.value.(map[string]any)
		metadata, _ := content[keyMetadata].(map[string]any)
		name, _ := metadata[keyName].(string)
		return name
	case *mapping:
		switch metadata := manifest.values[keyMetadata].(type) {
		case *literal:
			values, _ := metadata.value.(map[string]any)
			name, _ := values[keyName].(string)
			return name
		case *mapping:
			known, _ := metadata.values[keyName].(*literal)
			if known == nil {
				return ""
			}
			name, _ := known.value.(string)
			return name
		}
	}
	return ""
}
