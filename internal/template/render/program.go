// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

const messageDuplicateObject = "another object of the template has the same group, kind and name: %s"

// Program is a compiled template. Goroutines can use it concurrently.
type Program struct {
	parameters []v1alpha1.TemplateParameter
	variables  []variable
	// metadata are the compiled labels and annotations of all objects.
	metadata any
	objects  []object
	// usesLabels and usesAnnotations report whether expressions can read them.
	usesLabels, usesAnnotations bool
}

type variable struct {
	name       string
	expression *expression
}

// identity identifies an object in a Namespace. The name of a compiled object is empty if an expression computes it.
type identity struct {
	kind schema.GroupKind
	name string
}

// object is a compiled object of a template. The manifest of a copy has no content.
type object struct {
	identity
	spec        *v1alpha1.TemplateObject
	includeWhen *expression
	manifest    map[string]any
}

// Input is what expressions can read.
type Input struct {
	// Namespace is the Namespace that will contain the objects.
	Namespace *corev1.Namespace
	// Parameters is the result of ResolveParameters.
	Parameters map[string]string
	// RequestedBy is the name of the user who created the Namespace. It can be empty.
	RequestedBy string
}

// Object is a rendered object.
type Object struct {
	// Name is the name of the object in the template.
	Name string
	// Manifest is the object; a copy without its content. Its namespace is the Namespace of the Input.
	Manifest *unstructured.Unstructured
	// IsCopy is true if the object is a copy of the source of the same kind and name.
	IsCopy bool
	// When and Locked are those of the template.
	When   v1alpha1.NamespaceState
	Locked bool
}

// Render returns the objects for a Namespace in the order in which they are applied. With an error, there
// are no objects. The error is an *Error or, if the context is done, that of the context.
func (p *Program) Render(ctx context.Context, in Input) ([]Object, error) {
	objects, err := p.render(ctx, in)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return objects, err
}

func (p *Program) render(ctx context.Context, in Input) ([]Object, error) {
	evaluation, err := p.evaluation(ctx, in)
	if err != nil {
		return nil, err
	}
	result := make([]Object, 0, len(p.objects))
	rendered := map[identity]string{}
	for i := range p.objects {
		object := &p.objects[i]
		items := []string{""}
		if object.spec.ForEach != "" {
			items = templateset.Elements(in.Parameters[object.spec.ForEach])
		}
		for _, item := range items {
			evaluation.variables[varItem] = item
			manifest, failure := object.render(ctx, evaluation, in.Namespace.Name)
			if failure == nil && manifest != nil {
				id := identity{object.kind, manifest.GetName()}
				if other, ok := rendered[id]; ok {
					failure = &Error{Reason: v1alpha1.ReasonInvalidObject, Err: fmt.Errorf(messageDuplicateObject, other)}
				}
				rendered[id] = object.spec.Name
				result = append(result, Object{
					Name: object.spec.Name, Manifest: manifest, IsCopy: object.spec.SourceRef != nil,
					When: object.spec.NamespaceState, Locked: object.spec.Lock == v1alpha1.LockAll,
				})
			}
			if failure != nil {
				failure.Object = object.spec.Name
				if object.spec.ForEach != "" {
					failure.Err = fmt.Errorf("element %q of %s: %w", abbreviate(item), object.spec.ForEach, failure.Err)
				}
				return nil, failure
			}
		}
	}
	return result, nil
}

// evaluation checks the input and computes the variables.
func (p *Program) evaluation(ctx context.Context, in Input) (*evaluation, error) {
	namespace, err := p.namespaceValue(in.Namespace)
	if err != nil {
		return nil, err
	}
	if n := len([]rune(in.RequestedBy)); n > maxUser {
		return nil, &Error{Reason: v1alpha1.ReasonInputTooLarge, Err: fmt.Errorf(
			"the name of the user who created the namespace has %d characters; at most %d are permitted", n, maxUser)}
	}
	parameters := make(map[string]any, len(p.parameters))
	for i := range p.parameters {
		parameter := &p.parameters[i]
		value := in.Parameters[parameter.Name]
		if err := templateset.CheckSize(parameter, value); err != nil {
			return nil, &Error{Reason: v1alpha1.ReasonInvalidParameter, Err: err}
		}
		parameters[parameter.Name] = value
		if templateset.IsList(parameter) {
			parameters[parameter.Name] = templateset.Elements(value)
		}
	}
	variables := make(map[string]any, len(p.variables))
	result := newEvaluation(namespace, parameters, variables, in.RequestedBy)
	for _, variable := range p.variables {
		value, err := variable.expression.evaluate(ctx, result)
		if left := maxVariable; err == nil {
			if measure(value, 0, maxNesting, &left); left < 0 {
				err = errTooLarge
			}
		}
		if err != nil {
			return nil, newError(fmt.Errorf("variable %s: %w", variable.name, err))
		}
		variables[variable.name] = value
	}
	metadata, _, err := result.render(ctx, p.metadata)
	if err != nil {
		return nil, newError(err)
	}
	result.metadata, _ = metadata.(map[string]any)
	result.metadataSize = maxOutput - result.left
	return result, nil
}

// namespaceValue returns the value of ns. Labels and annotations of this project are not part of it, since
// the operator and the API server change them: the objects would change with the state of the Namespace. The
// annotation of kubectl apply contains all others.
func (p *Program) namespaceValue(namespace *corev1.Namespace) (map[string]any, error) {
	result := map[string]any{
		fieldName: namespace.Name, fieldLabels: map[string]string{}, fieldAnnotations: map[string]string{},
	}
	if p.usesLabels {
		labels, err := boundedEntries(fieldLabels, namespace.Labels, maxLabel, maxLabelBytes)
		if err != nil {
			return nil, err
		}
		result[fieldLabels] = labels
	}
	if p.usesAnnotations {
		annotations, err := boundedEntries(fieldAnnotations, namespace.Annotations, maxAnnotation, maxAnnotationBytes)
		if err != nil {
			return nil, err
		}
		result[fieldAnnotations] = annotations
	}
	return result, nil
}

// boundedEntries returns the entries that expressions can read, if they are within bounds.
func boundedEntries(kind string, entries map[string]string, longest, limit int) (map[string]string, error) {
	result := make(map[string]string, len(entries))
	total := 0
	for _, key := range slices.Sorted(maps.Keys(entries)) { // An error is the same in each pass.
		value := entries[key]
		if isOwnKey(key) || key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		total += len(key) + len(value)
		if len(key) > maxKey || len(value) > longest || len(result) == maxEntries || total > limit {
			err := fmt.Errorf(
				"%s: the %s of the namespace exceed a limit: %d entries, %d bytes in a value, %d bytes in total",
				abbreviate(key), kind, maxEntries, longest, limit)
			return nil, &Error{Reason: v1alpha1.ReasonInputTooLarge, Err: err}
		}
		result[key] = value
	}
	return result, nil
}

// render returns the manifest; nil if the Namespace does not contain the object. The error does not name the object.
func (o *object) render(ctx context.Context, in *evaluation, namespace string) (*unstructured.Unstructured, *Error) {
	if o.includeWhen != nil {
		value, err := o.includeWhen.evaluate(ctx, in)
		if err != nil {
			return nil, newError(fmt.Errorf("includeWhen: %w", err))
		}
		if value != types.True {
			return nil, nil
		}
	}
	content, err := in.renderMap(ctx, o.manifest)
	if err == nil {
		err = in.spend(in.metadataSize)
	}
	if err != nil {
		return nil, newError(err)
	}
	if metadata, ok := content[keyMetadata].(map[string]any); ok {
		metadata[keyNamespace] = namespace
		in.addMetadata(metadata)
	}
	manifest := &unstructured.Unstructured{Object: content}
	if err := CheckManifest(manifest, namespace); err != nil {
		return nil, &Error{Reason: v1alpha1.ReasonInvalidObject, Err: err}
	}
	return manifest, nil
}

// addMetadata adds the labels and annotations of all objects that the metadata of one object do not have.
func (e *evaluation) addMetadata(metadata map[string]any) {
	for kind, common := range e.metadata {
		if metadata[kind] == nil {
			metadata[kind] = map[string]any{}
		}
		own, isMap := metadata[kind].(map[string]any)
		values, _ := common.(map[string]any)
		for key, value := range values {
			if _, ok := own[key]; !ok && isMap {
				own[key] = value
			}
		}
	}
}

// IdentityOfCopy returns the manifest of a copy in a namespace without its content.
func IdentityOfCopy(source *v1alpha1.TemplateSourceReference, namespace string) *unstructured.Unstructured {
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetAPIVersion(corev1.SchemeGroupVersion.String())
	manifest.SetKind(source.Kind)
	manifest.SetName(source.Name)
	manifest.SetNamespace(namespace)
	return manifest
}

// ranks are the positions of kinds before and after all other kinds in the order of application. Objects come after
// those that they depend on or that restrict them. Permissions come last: their subjects can do nothing before the
// restrictions are there.
var ranks = map[schema.GroupKind]int{
	{Kind: "ServiceAccount"}: -5,
	{Kind: "Secret"}:         -4,
	{Kind: "ConfigMap"}:      -4,
	{Kind: "LimitRange"}:     -3,
	{Kind: "ResourceQuota"}:  -2,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: -1,
	{Group: rbacv1.GroupName, Kind: "Role"}:             1,
	{Group: rbacv1.GroupName, Kind: "RoleBinding"}:      2,
}

// Rank returns the position of a kind in the order of application.
func Rank(kind schema.GroupKind) int { return ranks[kind] }
