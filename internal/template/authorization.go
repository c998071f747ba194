// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Authorizer determines whether templates can be applied with the permissions of their ServiceAccounts.
type Authorizer struct {
	Client          client.Client
	ServiceAccounts client.Reader
	Writer          *Writer
	SystemNamespace string
}

// Authorization is the result of Authorizer.Check.
type Authorization struct {
	// IsMissing is true if the ServiceAccount does not exist.
	IsMissing bool
	// Operator and Account are the rules that the operator and the ServiceAccount lack. The former are in
	// the system namespace, the latter in the whole cluster.
	Operator, Account []rbacv1.PolicyRule
	// Constrained are the rules in the whole cluster that the operator lacks if it has only the permissions
	// of constrained impersonation.
	Constrained []rbacv1.PolicyRule
}

// IsComplete reports whether nothing is missing.
func (a Authorization) IsComplete() bool {
	return !a.IsMissing && len(a.Operator) == 0 && len(a.Constrained) == 0 && len(a.Account) == 0
}

// Message describes what is missing, with the rules as YAML.
func (a Authorization) Message(serviceAccount, systemNamespace string) string {
	var parts []string
	if a.IsMissing {
		parts = append(parts,
			fmt.Sprintf("ServiceAccount %q does not exist in namespace %q.", serviceAccount, systemNamespace))
	}
	if len(a.Operator) > 0 {
		parts = append(parts, fmt.Sprintf(
			"The operator cannot impersonate ServiceAccount %q. Missing rules of a Role in namespace %q:\n%s",
			serviceAccount, systemNamespace, rulesYAML(a.Operator)))
	}
	if len(a.Constrained) > 0 {
		parts = append(parts, fmt.Sprintf(
			"The operator cannot impersonate ServiceAccount %q for all requests. Missing rules of a ClusterRole:\n%s",
			serviceAccount, rulesYAML(a.Constrained)))
	}
	if len(a.Account) > 0 {
		parts = append(parts, fmt.Sprintf("ServiceAccount %q lacks permissions. Missing rules of a ClusterRole:\n%s",
			serviceAccount, rulesYAML(a.Account)))
	}
	return strings.Join(parts, "\n")
}

func rulesYAML(rules []rbacv1.PolicyRule) string {
	encoded, err := yaml.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return err.Error() // Encoding this type cannot fail.
	}
	return strings.TrimSpace(string(encoded))
}

// Check reviews the access that a template requires.
func (a *Authorizer) Check(ctx context.Context, template *v1alpha1.NamespaceTemplate) (Authorization, error) {
	var result Authorization
	name := template.Spec.ServiceAccountName
	err := a.ServiceAccounts.Get(ctx, client.ObjectKey{Namespace: a.SystemNamespace, Name: name}, &corev1.ServiceAccount{})
	if client.IgnoreNotFound(err) != nil {
		return result, fmt.Errorf("failed to get ServiceAccount %q: %w", name, err)
	}
	result.IsMissing = apierrors.IsNotFound(err)
	required := a.required(template)
	if result.Operator, result.Constrained, err = a.checkImpersonation(ctx, name, required); err != nil {
		return result, err
	}
	for _, required := range required {
		allowed, err := a.isAllowed(ctx, name, required)
		if err != nil {
			return result, err
		}
		if !allowed {
			result.Account = appendRule(result.Account, required)
		}
	}
	return result, nil
}

// checkImpersonation returns the rules that the operator lacks to impersonate a ServiceAccount, with the
// verb of RBAC or with the verbs of constrained impersonation (KEP-5284): the latter also require a verb
// for each kind of request.
func (a *Authorizer) checkImpersonation(
	ctx context.Context, name string, required []authorizationv1.ResourceAttributes,
) (namespaced, constrained []rbacv1.PolicyRule, err error) {
	account := authorizationv1.ResourceAttributes{
		Namespace: a.SystemNamespace, Verb: "impersonate", Resource: "serviceaccounts", Name: name,
	}
	if isAllowed, err := a.mayOperator(ctx, account); err != nil || isAllowed {
		return nil, nil, err
	}
	isConstrained, err := a.mayOperator(ctx, authorizationv1.ResourceAttributes{
		Namespace: a.SystemNamespace, Verb: "impersonate:serviceaccount", Group: "authentication.k8s.io",
		Resource: "serviceaccounts", Name: name,
	})
	if err != nil || !isConstrained {
		return appendRule(nil, account), nil, err
	}
	for _, request := range required {
		if request.Verb != "patch" && request.Verb != "get" {
			continue // The operator sends no such requests.
		}
		request.Verb = "impersonate-on:serviceaccount:" + request.Verb
		isAllowed, err := a.mayOperator(ctx, request)
		if err != nil {
			return nil, nil, err
		}
		if !isAllowed {
			constrained = appendRule(constrained, request)
		}
	}
	return nil, constrained, nil
}

func (a *Authorizer) mayOperator(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
	if err := a.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("failed to review the operator's access: %w", err)
	}
	return review.Status.Allowed, nil
}

// required returns the requests that the ServiceAccount of a template must be allowed to send, sorted.
// Kinds that are not served are omitted.
func (a *Authorizer) required(template *v1alpha1.NamespaceTemplate) []authorizationv1.ResourceAttributes {
	required := []authorizationv1.ResourceAttributes{{Verb: v1alpha1.VerbFurnish, Resource: "namespaces"}}
	for _, object := range template.Spec.Objects {
		for _, verb := range []string{"create", "patch"} {
			attributes, ok := a.resourceOf(object)
			attributes.Verb = verb
			if ok && !slices.Contains(required, attributes) {
				required = append(required, attributes)
			}
		}
		if source := object.Copy; source != nil {
			required = append(required, authorizationv1.ResourceAttributes{
				Verb: "get", Resource: resourceOf(source).Resource, Namespace: source.Namespace, Name: source.Name,
			})
		}
	}
	return required
}

// resourceOf returns the resource of an object in a template.
func (a *Authorizer) resourceOf(object v1alpha1.TemplateObject) (authorizationv1.ResourceAttributes, bool) {
	if object.Copy != nil {
		return authorizationv1.ResourceAttributes{Resource: resourceOf(object.Copy).Resource}, true
	}
	kind, ok := kindOf(object)
	if !ok {
		return authorizationv1.ResourceAttributes{}, false
	}
	resource, err := a.Writer.mapping(kind)
	return authorizationv1.ResourceAttributes{Group: resource.Group, Resource: resource.Resource}, err == nil
}

// kindOf returns the kind of an object. It returns false for a copy, and for a manifest without a kind.
func kindOf(object v1alpha1.TemplateObject) (schema.GroupVersionKind, bool) {
	manifest := &unstructured.Unstructured{}
	if object.Template == nil || manifest.UnmarshalJSON(object.Template.Raw) != nil {
		return schema.GroupVersionKind{}, false
	}
	return manifest.GroupVersionKind(), true
}

func (a *Authorizer) isAllowed(
	ctx context.Context, name string, attributes authorizationv1.ResourceAttributes,
) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               serviceaccount.MakeUsername(a.SystemNamespace, name),
		Groups:             append(serviceaccount.MakeGroupNames(a.SystemNamespace), user.AllAuthenticated),
		ResourceAttributes: &attributes,
	}}
	if err := a.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("failed to review the access of ServiceAccount %q: %w", name, err)
	}
	return review.Status.Allowed, nil
}

// appendRule adds a rule for a request, and merges the verbs for one resource.
func appendRule(rules []rbacv1.PolicyRule, attributes authorizationv1.ResourceAttributes) []rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{
		APIGroups: []string{attributes.Group}, Resources: []string{attributes.Resource}, Verbs: []string{attributes.Verb},
	}
	if attributes.Name != "" {
		rule.ResourceNames = []string{attributes.Name}
	}
	for i := range rules {
		if slices.Equal(rules[i].APIGroups, rule.APIGroups) && slices.Equal(rules[i].Resources, rule.Resources) &&
			slices.Equal(rules[i].ResourceNames, rule.ResourceNames) {
			rules[i].Verbs = append(rules[i].Verbs, attributes.Verb)
			return rules
		}
	}
	return append(rules, rule)
}
