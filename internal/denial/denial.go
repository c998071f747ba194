// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package denial recognizes errors with which the API server denies a request: because the user lacks a
// permission, or because of an admission webhook or policy. It also shortens the messages of errors.
package denial

import (
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// These patterns match the messages of errors from the API server. Conditions written by a
// namespace controller contain only the messages.
var (
	webhookFailing = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	webhookDenied  = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policyDenied   = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' (?:with binding '[^']*' )?denied request`)
	forbidden      = regexp.MustCompile(`User "([^"]+)" cannot ([\w:-]+) (?:` +
		`resource "([^"]+)" in API group "([^"]*)"|` +
		// The API server of Calico also requires "get" on the tier, and the verb on a resource that it does not serve.
		`([\w-]+)\.([\w.-]+) in tier "[^"]*"(?: and namespace "[^"]*")?( \(user cannot get tier\))?)`)
)

// MissingPermission is a permission that a user lacks according to an error.
type MissingPermission struct{ User, Verb, Resource, Group string }

// GroupResource returns the resource and its API group, as kubectl names them.
func (p MissingPermission) GroupResource() string {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
}

// MissingPermissions returns the distinct permissions that users lack according to an error message.
func MissingPermissions(text string) []MissingPermission {
	var permissions []MissingPermission
	for _, match := range forbidden.FindAllStringSubmatch(text, -1) {
		permission := MissingPermission{User: match[1], Verb: match[2], Resource: match[3], Group: match[4]}
		switch {
		case match[7] != "":
			permission.Verb, permission.Resource, permission.Group = "get", "tiers", match[6]
		case match[5] != "":
			permission.Resource, permission.Group = "tier."+match[5], match[6]
		}
		if !slices.Contains(permissions, permission) {
			permissions = append(permissions, permission)
		}
	}
	return permissions
}

// IsMissingPermission reports whether the API server denied a request because the user lacks a
// permission, and not because of an admission webhook or policy, whose message can contain such an
// error of another request.
func IsMissingPermission(err error) bool {
	return apierrors.IsForbidden(err) && forbidden.MatchString(err.Error()) && !IsFromAdmission(err.Error())
}

// FailingWebhooks returns the sorted names of the admission webhooks that fail according to the
// error messages.
func FailingWebhooks(texts ...string) []string { return namesIn(webhookFailing, texts) }

// DenyingWebhooks returns the sorted names of the admission webhooks that deny a request according
// to the error messages.
func DenyingWebhooks(texts ...string) []string { return namesIn(webhookDenied, texts) }

// DenyingPolicies returns the sorted names of the ValidatingAdmissionPolicies that deny a request
// according to the error messages.
func DenyingPolicies(texts ...string) []string { return namesIn(policyDenied, texts) }

// DenyingBindings returns the sorted names of the bindings with which a ValidatingAdmissionPolicy denies
// a request according to the error messages.
func DenyingBindings(policy string, texts ...string) []string {
	return namesIn(regexp.MustCompile(
		`ValidatingAdmissionPolicy '`+regexp.QuoteMeta(policy)+`' with binding '([^']*)' denied request`), texts)
}

// IsFromAdmission reports whether an error comes from an admission webhook or policy.
func IsFromAdmission(text string) bool {
	return webhookFailing.MatchString(text) || webhookDenied.MatchString(text) || policyDenied.MatchString(text)
}

func namesIn(pattern *regexp.Regexp, texts []string) []string {
	var names []string
	for _, text := range texts {
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
