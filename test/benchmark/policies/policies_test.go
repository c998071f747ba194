// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies measures how long API servers evaluate each admission policy for the requests of the life of a
// namespace with a template (make bench-policies). It compiles and evaluates them with the code of the API server
// (k8s.io/apiserver, pkg/admission/plugin/policy), but without a server, so that the results have little noise.
//
// A benchmark is named request/policy/part. API servers evaluate the match conditions of a policy first, and then,
// if all are true, all validations and all messages, even of valid requests, or the mutations. The result of a
// mutation does not include the time to apply it.
package policies

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

//go:embed testdata
var testdata embed.FS

// request is a request to an API server.
type request struct {
	Name         string
	IsMutated    bool // Whether the mutating policies have changed the object.
	User         string
	Groups       []string
	Verbs        []string // On namespaces, apart from those of every user.
	Operation    admission.Operation
	Resource     metav1.GroupVersionResource
	Subresource  string
	FieldManager string
	Object       *unstructured.Unstructured
	OldObject    *unstructured.Unstructured
	Namespace    *corev1.Namespace
}

// The API server admits the requests.
func TestPolicies(t *testing.T) {
	forEachPart(t, func(t *testing.T, name string, evaluate func(ctx context.Context) error) {
		if err := evaluate(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

func BenchmarkPolicies(b *testing.B) {
	forEachPart(b, func(b *testing.B, name string, evaluate func(ctx context.Context) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				check(b, evaluate(b.Context()))
			}
		})
	})
}

// forEachPart calls a function with each part of each policy that API servers evaluate for the requests.
func forEachPart[T testing.TB](t T, do func(t T, name string, evaluate func(ctx context.Context) error)) {
	set := &unstructured.Unstructured{}
	read(t, "testdata/set.yaml", &set.Object)
	var requests []request
	read(t, "testdata/requests.yaml", &requests)
	policies := load(t)
	for _, request := range requests {
		attributes := request.attributes(t)
		for _, policy := range policies {
			if policy.isMutating() == request.IsMutated || !policy.selects(t, attributes, request.Namespace) {
				continue
			}
			parts, err := policy.parts(t.Context(), &request, attributes, set)
			check(t, err)
			for _, part := range parts {
				do(t, request.Name+"/"+policy.name+"/"+part.name, part.evaluate)
			}
		}
	}
}

func read(t testing.TB, file string, into any) {
	content, err := testdata.ReadFile(file)
	check(t, err)
	check(t, yaml.UnmarshalStrict(content, into))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// typed returns the object as the type that API servers use.
func typed(t testing.TB, object *unstructured.Unstructured) runtime.Object {
	if object == nil {
		return nil
	}
	converted, err := scheme.Scheme.New(object.GroupVersionKind())
	check(t, err)
	check(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, converted))
	return converted
}

func (r *request) attributes(t testing.TB) *admission.VersionedAttributes {
	kind, namespace := r.Object.GroupVersionKind(), r.Object.GetNamespace()
	if kind.Kind == "Namespace" {
		namespace = r.Object.GetName()
	}
	object, old := typed(t, r.Object), typed(t, r.OldObject)
	attributes := &admission.VersionedAttributes{
		VersionedKind: kind,
		Attributes: admission.NewAttributesRecord(object, old, kind, namespace, r.Object.GetName(),
			schema.GroupVersionResource(r.Resource), r.Subresource, r.Operation,
			&metav1.PatchOptions{FieldManager: r.FieldManager}, false,
			&user.DefaultInfo{Name: r.User, Groups: r.Groups}),
	}
	attributes.VersionedObject.Set(object)
	if old != nil {
		attributes.VersionedOldObject.Set(old)
	}
	return attributes
}

// Authorize allows the verbs of the request.
func (r *request) Authorize(
	_ context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	if attributes.GetResource() == "namespaces" && slices.Contains(r.Verbs, attributes.GetVerb()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// policy is a policy that is compiled as in an API server.
type policy struct {
	name        string
	constraints []*admissionv1.MatchResources // Of the policy and of its first binding.
	hasParams   bool
	compiler    *cel.CompositedCompiler
	matcher     matchconditions.Matcher
	mutations   []cel.MutatingEvaluator
	validations cel.ConditionEvaluator
	messages    cel.ConditionEvaluator
}

// load reads and compiles the policies in config.
func load(t testing.TB) []*policy {
	files, err := filepath.Glob("../../../config/*/*.yaml")
	check(t, err)
	bindings, err := filepath.Glob("../../../config/*/binding/*.yaml")
	check(t, err)
	var policies []*policy
	constraints := map[string]*admissionv1.MatchResources{}
	for _, file := range append(files, bindings...) {
		content, err := os.ReadFile(file)
		check(t, err)
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				continue // A patch of a kustomization.
			}
			switch kind.Kind {
			case "ValidatingAdmissionPolicy":
				var object admissionv1.ValidatingAdmissionPolicy
				check(t, yaml.UnmarshalStrict([]byte(document), &object))
				policies = append(policies, compileValidating(t, &object))
			case "MutatingAdmissionPolicy":
				var object admissionv1.MutatingAdmissionPolicy
				check(t, yaml.UnmarshalStrict([]byte(document), &object))
				policies = append(policies, compileMutating(t, &object))
			case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
				var object admissionv1.ValidatingAdmissionPolicyBinding // Of the same structure.
				check(t, yaml.Unmarshal([]byte(document), &object))
				if _, ok := constraints[object.Spec.PolicyName]; !ok {
					constraints[object.Spec.PolicyName] = object.Spec.MatchResources
				}
			}
		}
	}
	for _, policy := range policies {
		policy.constraints = append(policy.constraints, constraints[policy.name])
	}
	return policies
}

func newPolicy(
	t testing.TB, name string, constraints *admissionv1.MatchResources, hasParams bool,
	variables []admissionv1.Variable, conditions []admissionv1.MatchCondition,
) *policy {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	check(t, err)
	result := &policy{
		name: name, hasParams: hasParams, compiler: compiler, constraints: []*admissionv1.MatchResources{constraints},
	}
	for _, variable := range variables {
		compiler.CompileAndStoreVariable(
			&validating.Variable{Name: variable.Name, Expression: variable.Expression},
			result.declarations(true), environment.StoredExpressions)
	}
	if len(conditions) > 0 {
		var accessors []cel.ExpressionAccessor
		for i := range conditions {
			accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
		}
		fail := admissionv1.Fail
		result.matcher = matchconditions.NewMatcher(result.compile(t, accessors, true), &fail, "policy", "validate", name)
	}
	return result
}

func (p *policy) isMutating() bool { return len(p.mutations) > 0 }

func (p *policy) declarations(hasAuthorizer bool) cel.OptionalVariableDeclarations {
	return cel.OptionalVariableDeclarations{HasParams: p.hasParams, HasAuthorizer: hasAuthorizer}
}

func (p *policy) compile(t testing.TB, expressions []cel.ExpressionAccessor, hasAuthorizer bool) cel.ConditionEvaluator {
	compiled := p.compiler.CompileCondition(expressions, p.declarations(hasAuthorizer), environment.StoredExpressions)
	for _, err := range compiled.CompilationErrors() {
		check(t, err)
	}
	return compiled
}

func compileValidating(t testing.TB, object *admissionv1.ValidatingAdmissionPolicy) *policy {
	spec := &object.Spec
	result := newPolicy(
		t, object.Name, spec.MatchConstraints, spec.ParamKind != nil, spec.Variables, spec.MatchConditions)
	var validations, messages []cel.ExpressionAccessor
	for _, validation := range spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: validation.Expression})
		var message cel.ExpressionAccessor
		if validation.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}
		}
		messages = append(messages, message)
	}
	result.validations = result.compile(t, validations, true)
	result.messages = result.compile(t, messages, false)
	return result
}

func compileMutating(t testing.TB, object *admissionv1.MutatingAdmissionPolicy) *policy {
	spec := &object.Spec
	result := newPolicy(
		t, object.Name, spec.MatchConstraints, spec.ParamKind != nil, spec.Variables, spec.MatchConditions)
	declarations := result.declarations(true)
	declarations.HasPatchTypes = true
	for _, mutation := range spec.Mutations {
		result.mutations = append(result.mutations, result.compiler.CompileMutatingEvaluator(
			&patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}, declarations,
			environment.StoredExpressions))
	}
	return result
}

// selects reports whether the rules and selectors select a request.
func (p *policy) selects(t testing.TB, attributes admission.Attributes, namespace *corev1.Namespace) bool {
	for _, constraints := range p.constraints {
		if constraints == nil {
			continue
		}
		if len(constraints.ResourceRules) > 0 &&
			!slices.ContainsFunc(constraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
				matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
				return matcher.Matches()
			}) {
			return false
		}
		if namespace != nil && !matches(t, constraints.NamespaceSelector, namespace) {
			return false
		}
		if !matches(t, constraints.ObjectSelector, attributes.GetObject()) &&
			!matches(t, constraints.ObjectSelector, attributes.GetOldObject()) {
			return false
		}
	}
	return true
}

func matches(t testing.TB, selector *metav1.LabelSelector, object runtime.Object) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	check(t, err)
	labeled, ok := object.(metav1.Object)
	return ok && parsed.Matches(labels.Set(labeled.GetLabels()))
}

// part is a part of a policy.
type part struct {
	name     string
	evaluate func(ctx context.Context) error
}

// parts returns the parts that an API server evaluates.
func (p *policy) parts(
	ctx context.Context, request *request, attributes *admission.VersionedAttributes, set *unstructured.Unstructured,
) ([]part, error) {
	inputs := cel.OptionalVariableBindings{Authorizer: request}
	if p.hasParams {
		inputs.VersionedParams = set
	}
	var parts []part
	if p.matcher != nil {
		match := func(ctx context.Context) matchconditions.MatchResult {
			return p.matcher.Match(p.compiler.CreateContext(ctx), attributes, inputs.VersionedParams, request)
		}
		parts = append(parts, part{name: "match", evaluate: func(ctx context.Context) error { return match(ctx).Error }})
		if result := match(ctx); result.Error != nil || !result.Matches {
			return parts, result.Error
		}
	}
	admitted := cel.CreateAdmissionRequest(
		attributes, request.Resource, metav1.GroupVersionKind(attributes.GetKind()))
	namespace := cel.CreateNamespaceObject(request.Namespace)
	for i, mutation := range p.mutations {
		parts = append(parts, part{name: fmt.Sprintf("mutation-%d", i+1), evaluate: func(ctx context.Context) error {
			result, _, err := mutation.ForInput(
				p.compiler.CreateContext(ctx), attributes, admitted, inputs, namespace, celconfig.RuntimeCELCostBudget)
			return errors.Join(err, result.Error)
		}})
	}
	if p.validations != nil {
		parts = append(parts, part{name: "validations", evaluate: func(ctx context.Context) error {
			results, _, err := p.validations.ForInput(
				p.compiler.CreateContext(ctx), attributes, admitted, inputs, namespace, celconfig.RuntimeCELCostBudget)
			for i, result := range results {
				if result.Error != nil {
					return fmt.Errorf("validation %d: %w", i+1, result.Error)
				}
				if result.EvalResult.Value() != true {
					return fmt.Errorf("validation %d rejects the request", i+1)
				}
			}
			return err
		}})
		forMessages := cel.OptionalVariableBindings{VersionedParams: inputs.VersionedParams}
		parts = append(parts, part{name: "messages", evaluate: func(ctx context.Context) error {
			_, _, err := p.messages.ForInput(
				p.compiler.CreateContext(ctx), attributes, admitted, forMessages, namespace, celconfig.RuntimeCELCostBudget)
			return err
		}})
	}
	return parts, nil
}
