// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// The variables of expressions.
const (
	varNamespace   = "ns"
	varParameters  = "params"
	varVariables   = "variables"
	varRequestedBy = "requestedBy"
	varItem        = "item"
)

// The fields of varNamespace.
const (
	fieldName        = "name"
	fieldLabels      = "labels"
	fieldAnnotations = "annotations"
)

// The types of the variables. They have only the fields that exist, so that a misspelt name is an error
// at compilation.
var (
	typeNamespace  = cel.ObjectType("template.Namespace")
	typeParameters = cel.ObjectType("template.Parameters")
	typeVariables  = cel.ObjectType("template.Variables")
)

// baseEnvironment has the libraries of Kubernetes whose functions are in the table functions. It has only
// those macros that do not copy their operands: nested macros that do grow exponentially in the parser.
var baseEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append([]cel.EnvOption{
		cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(2), ext.StringsMaxPrecision(maxPrecision)),
		ext.Sets(),
		ext.Lists(ext.ListsVersion(3)),
		ext.Encoders(ext.EncodersVersion(0)),
		library.Lists(library.ListsVersion(1)),
		library.Regex(),
		library.Quantity(),
		cel.ClearMacros(),
		cel.Macros(cel.StandardMacros...),
		ext.TwoVarComprehensions(),

		cel.HomogeneousAggregateLiterals(),
		cel.CrossTypeNumericComparisons(true),
		// Expressions cannot name an accumulator, so they cannot double it in each iteration.
		cel.EnableHiddenAccumulatorName(true),
		cel.ParserRecursionLimit(maxNesting),
		cel.ParserExpressionSizeLimit(maxExpression),

		cel.Variable(varNamespace, typeNamespace),
		cel.Variable(varParameters, typeParameters),
		cel.Variable(varVariables, typeVariables),
		cel.Variable(varRequestedBy, cel.StringType),
		cel.Function("subject", cel.Overload("subject_string",
			[]*cel.Type{cel.StringType}, cel.MapType(cel.StringType, cel.StringType), cel.UnaryBinding(subject))),
		cel.Function(functionKey, cel.Overload(functionKey,
			[]*cel.Type{cel.TypeParamType("T")}, cel.TypeParamType("T"),
			cel.UnaryBinding(func(key ref.Val) ref.Val { return key }))),
	}, quantities()...)...)
})

// newEnvironment returns the environment of a template, and the fields of varVariables: a variable that
// the caller adds is visible to expressions that are compiled later.
func newEnvironment(parameters []v1alpha1.TemplateParameter) (*cel.Env, map[string]*types.Type, error) {
	base, err := baseEnvironment()
	if err != nil {
		return nil, nil, err
	}
	labels := cel.MapType(cel.StringType, cel.StringType)
	variables := map[string]*types.Type{}
	provider := &typeProvider{Provider: base.CELTypeProvider(), fields: map[string]map[string]*types.Type{
		typeNamespace.TypeName(): {
			fieldName: cel.StringType, fieldLabels: labels, fieldAnnotations: labels,
		},
		typeParameters.TypeName(): {},
		typeVariables.TypeName():  variables,
	}}
	for i := range parameters {
		parameter := &parameters[i]
		provider.fields[typeParameters.TypeName()][parameter.Name] = cel.StringType
		if templateset.IsList(parameter) {
			provider.fields[typeParameters.TypeName()][parameter.Name] = cel.ListType(cel.StringType)
		}
	}
	env, err := base.Extend(cel.CustomTypeProvider(provider))
	return env, variables, err
}

// typeProvider adds the types of the variables.
type typeProvider struct {
	types.Provider
	fields map[string]map[string]*types.Type
}

// FindStructType implements types.Provider.
func (p *typeProvider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.fields[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *typeProvider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := p.fields[name]; ok {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *typeProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := p.fields[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	fieldType, ok := fields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: fieldType}, true
}

// The keys of an RBAC subject.
const (
	subjectKind      = "kind"
	subjectAPIGroup  = "apiGroup"
	subjectNamespace = "namespace"
	subjectName      = "name"
)

var errNoUser = errors.New("subject: the user name is empty")

// subject returns the RBAC subject for a user name.
func subject(value ref.Val) ref.Val {
	user, ok := value.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(value)
	}
	if user == "" {
		return types.WrapErr(errNoUser)
	}
	if namespace, name, err := serviceaccount.SplitUsername(string(user)); err == nil {
		return types.DefaultTypeAdapter.NativeToValue(map[string]string{
			subjectKind: rbacv1.ServiceAccountKind, subjectNamespace: namespace, subjectName: name,
		})
	}
	return types.DefaultTypeAdapter.NativeToValue(map[string]string{
		subjectKind: rbacv1.UserKind, subjectAPIGroup: rbacv1.GroupName, subjectName: string(user),
	})
}
