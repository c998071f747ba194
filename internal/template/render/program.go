// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Program is a compiled template. Goroutines can use it concurrently.
type Program struct {
	parameters []string
	variables  []variable
	objects    []object
	// usesLabels and usesAnnotations report whether expressions can read them.
	usesLabels, usesAnnotations bool
}

type variable struct {
	name       string
	expression *expression
}

// object is a compiled object of a template. A copy has no manifest.
type object struct {
	spec        *v1alpha1.TemplateObject
	kind        schema.GroupKind
	name        string
	includeWhen *expression
	manifest    node
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
	// Manifest is the object. It is nil if Copy is set. Its namespace is the Namespace of the Input.
	Manifest *unstructured.Unstructured
	// Copy is the source of a copy.
	Copy *v1alpha1.TemplateSourceReference
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
		manifest, ok, err := object.render(ctx, evaluation, in.Namespace.Name)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		id := object.identity(manifest)
		if other, ok := rendered[id]; ok {
			err := fmt.Errorf(msgDuplicateObject, other)
			return nil, &Error{Object: object.spec.Name, Reason: v1alpha1.ReasonInvalidObject, Err: err}
		}
		rendered[id] = object.spec.Name
		result = append(result, Object{
			Name: object.spec.Name, Manifest: manifest, Copy: object.spec.SourceRef.DeepCopy(),
			When: object.spec.NamespaceState, Locked: object.spec.Lock == v1alpha1.LockAll,
		})
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
		return nil, &Error{Reason: v1alpha1.ReasonInputTooLarge, Err: fmt.Errorf(msgUserTooLong, n, maxUser)}
	}
	parameters := make(map[string]string, len(p.parameters))
	for _, name := range p.parameters {
		if n := len([]rune(in.Parameters[name])); n > maxParameter {
			err := fmt.Errorf(msgParameterTooLong, name, n, maxParameter)
			return nil, &Error{Reason: v1alpha1.ReasonInvalidParameter, Err: err}
		}
		parameters[name] = in.Parameters[name]
	}
	variables := make(map[string]any, len(p.variables))
	output := budget(maxOutput)
	result := &evaluation{
		variables: map[string]any{
			varNamespace: namespace, varParameters: parameters, varVariables: variables, varRequestedBy: in.RequestedBy,
		},
		converter: converter{budget: &output, longest: maxString},
	}
	for _, variable := range p.variables {
		value, err := variable.expression.evaluate(ctx, result.variables)
		if err == nil {
			size := budget(maxVariable)
			value, err = (&converter{budget: &size, longest: maxVariable}).detach(value, 0)
		}
		if err != nil {
			return nil, newError("", fmt.Errorf("variable %s: %w", variable.name, err))
		}
		variables[variable.name] = value
	}
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

// boundedEntries returns the entries that expressions can read, if they are within the bounds that the
// estimates assume.
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
			err := fmt.Errorf(msgInputTooLarge, abbreviate(key), kind, maxEntries, longest, limit)
			return nil, &Error{Reason: v1alpha1.ReasonInputTooLarge, Err: err}
		}
		result[key] = value
	}
	return result, nil
}

// render returns the manifest, which is nil for a copy. ok is false if the Namespace does not contain the
// object.
func (o *object) render(
	ctx context.Context, in *evaluation, namespace string,
) (manifest *unstructured.Unstructured, ok bool, err error) {
	if o.includeWhen != nil {
		value, err := o.includeWhen.evaluate(ctx, in.variables)
		if err != nil {
			return nil, false, newError(o.spec.Name, fmt.Errorf("includeWhen: %w", err))
		}
		if value != types.True {
			return nil, false, nil
		}
	}
	if o.manifest == nil {
		return nil, true, nil
	}
	value, _, err := o.manifest.render(ctx, in)
	if err != nil {
		return nil, false, newError(o.spec.Name, err)
	}
	content, ok := value.(map[string]any)
	if !ok {
		return nil, false, newError(o.spec.Name, errors.New(msgNotAnObject))
	}
	manifest = &unstructured.Unstructured{Object: content}
	if metadata, ok := content[keyMetadata].(map[string]any); ok {
		metadata[keyNamespace] = namespace
	}
	if err := CheckManifest(manifest, namespace); err != nil {
		return nil, false, &Error{Object: o.spec.Name, Reason: v1alpha1.ReasonInvalidObject, Err: err}
	}
	return manifest, true, nil
}

// identity identifies an object in a Namespace.
type identity struct {
	kind schema.GroupKind
	name string
}

func (o *object) identity(manifest *unstructured.Unstructured) identity {
	if manifest == nil {
		return identity{kind: o.kind, name: o.name}
	}
	return identity{kind: o.kind, name: manifest.GetName()}
}

// Ranks of kinds in the order of application. Objects come after those that they depend on or that
// restrict them. Permissions come last: their subjects can do nothing before the restrictions are there.
const (
	rankServiceAccount = iota
	rankData
	rankLimitRange
	rankQuota
	rankNetworkPolicy
	rankOther
	rankRole
	rankRoleBinding
)

// Rank returns the position of a kind in the order of application.
func Rank(kind schema.GroupKind) int {
	switch kind {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return rankServiceAccount
	case schema.GroupKind{Kind: kindSecret}, schema.GroupKind{Kind: "ConfigMap"}:
		return rankData
	case schema.GroupKind{Kind: "LimitRange"}:
		return rankLimitRange
	case schema.GroupKind{Kind: "ResourceQuota"}:
		return rankQuota
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:
		return rankNetworkPolicy
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}:
		return rankRole
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:
		return rankRoleBinding
	default:
		return rankOther
	}
}

func sortObjects(objects []object) {
	slices.SortStableFunc(objects, func(a, b object) int { return cmp.Compare(Rank(a.kind), Rank(b.kind)) })
}
