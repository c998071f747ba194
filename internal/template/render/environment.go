// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/cel/library"
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
		cel.Function(functionRange, cel.Overload(functionRange,
			[]*cel.Type{cel.TypeParamType("T")}, cel.TypeParamType("T"), cel.UnaryBinding(orderedRange))),
	}, quantities()...)...)
})

// newEnvironment returns the environment of a template with the types of its parameters and variables. A variable that
// the caller adds to the map later is visible to expressions that are compiled then.
func newEnvironment(parameters, variables map[string]*types.Type) (*cel.Env, error) {
	base, err := baseEnvironment()
	if err != nil {
		return nil, err
	}
	labels := cel.MapType(cel.StringType, cel.StringType)
	return base.Extend(cel.CustomTypeProvider(&typeProvider{base.CELTypeProvider(), map[string]map[string]*types.Type{
		typeNamespace.TypeName():  {fieldName: cel.StringType, fieldLabels: labels, fieldAnnotations: labels},
		typeParameters.TypeName(): parameters,
		typeVariables.TypeName():  variables,
	}}))
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

// FindStructFieldType implements types.Provider.
func (p *typeProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := p.fields[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	fieldType, ok := fields[field]
	return &types.FieldType{Type: fieldType}, ok
}

// subject returns the RBAC subject for a user name.
func subject(value ref.Val) ref.Val {
	user, _ := value.(types.String)
	if user == "" {
		return types.NewErr("subject: the user name is empty")
	}
	subject := map[string]string{"kind": rbacv1.UserKind, "apiGroup": rbacv1.GroupName, "name": string(user)}
	if namespace, name, err := serviceaccount.SplitUsername(string(user)); err == nil {
		subject = map[string]string{"kind": rbacv1.ServiceAccountKind, "namespace": namespace, "name": name}
	}
	return types.DefaultTypeAdapter.NativeToValue(subject)
}
