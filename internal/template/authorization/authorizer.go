// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization determines whether templates can be applied with the permissions of their ServiceAccounts.
package authorization

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

const (
	// allowedLifetime is how long the API server is not asked again about an allowed request, for example of another
	// template with the same ServiceAccount. Denied requests are reviewed each time.
	allowedLifetime = 15 * time.Second
	// maxDenied is the number of denied requests after which the other requests of a role are not reviewed if
	// Authorizer.IsOperator is true.
	maxDenied = 3
)

// DryRunner sends requests as the ServiceAccount of a template.
type DryRunner interface {
	// ResourceOf returns the resource of a namespaced kind.
	ResourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// DryRun determines whether the ServiceAccount may apply a manifest.
	DryRun(
		ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace,
		manifest *unstructured.Unstructured,
	) error
}

// Revisions are the stored revisions of templates.
type Revisions interface {
	Get(
		ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, revision string,
	) (*v1alpha1.NamespaceTemplateSpec, error)
}

// Authorizer determines whether templates can be applied with the permissions of their ServiceAccounts.
type Authorizer struct {
	Client          client.Client
	ServiceAccounts client.Reader
	DryRunner       DryRunner
	Revisions       Revisions
	SystemNamespace string
	// Operator is the user of the operator.
	Operator rbacv1.Subject
	// IsOperator is true if Client is the client of the operator. Otherwise, Operator must be a ServiceAccount, and all
	// requests are reviewed, however many are denied.
	IsOperator bool
	Clock      clock.PassiveClock

	mutex sync.Mutex
	// allowed has the times at which requests were allowed.
	allowed map[reviewKey]time.Time
}

// reviewKey identifies a request of a ServiceAccount; of the operator if account is empty.
type reviewKey struct {
	account    string
	attributes authorizationv1.ResourceAttributes
}

// reviewer reviews the requests for one template.
type reviewer struct {
	*Authorizer
	template *v1alpha1.NamespaceTemplate
	// isFresh is true if requests that were allowed before are reviewed again.
	isFresh bool
	result  Authorization
}

// Check reviews the access that a template requires. If isFresh is true, the API server is also asked about
// requests that it has allowed before.
func (a *Authorizer) Check(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, isFresh bool,
) Authorization {
	r := &reviewer{Authorizer: a, template: tmpl, isFresh: isFresh}
	r.result.account, r.result.systemNamespace = tmpl.Spec.ServiceAccountName, a.SystemNamespace
	r.checkServiceAccount(ctx)
	previous, err := Previous(ctx, a.Revisions, tmpl)
	if err != nil {
		r.result.addUnknown(err.Error())
	}
	grant, errs := permissions.For(permissions.Input{
		Spec: &tmpl.Spec, Previous: previous, SystemNamespace: a.SystemNamespace, ResourceOf: a.DryRunner.ResourceOf,
	})
	for _, err := range errs {
		r.result.addUnknown(err.Error())
	}
	for _, grant := range append(r.impersonation(ctx, grant), grant) {
		r.check(ctx, grant)
	}
	r.forgetAllowed()
	if r.result.hasFailed {
		r.result.grants = nil
	}
	return r.result
}

func (r *reviewer) checkServiceAccount(ctx context.Context) {
	key := client.ObjectKey{Namespace: r.SystemNamespace, Name: r.result.account}
	err := r.ServiceAccounts.Get(ctx, key, &corev1.ServiceAccount{})
	if r.result.IsAccountMissing = apierrors.IsNotFound(err); err != nil && !r.result.IsAccountMissing {
		r.result.addUnknown(fmt.Sprintf("failed to get ServiceAccount %q: %v", key.Name, err))
	}
}

// Previous returns the revision that new Namespaces get until the rollout of a template is complete, or nil.
func Previous(
	ctx context.Context, revisions Revisions, tmpl *v1alpha1.NamespaceTemplate,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	revision := tmpl.Status.CurrentRevision
	if revision == "" || revision == template.Revision(&tmpl.Spec) {
		return nil, nil
	}
	return revisions.Get(ctx, tmpl, revision)
}

// impersonation returns what the operator requires: the verb of RBAC or, if it has the verb of constrained
// impersonation for the ServiceAccount, those for each request.
func (r *reviewer) impersonation(ctx context.Context, account permissions.Grant) []permissions.Grant {
	name := r.result.account
	plain := permissions.Impersonation(r.Operator, r.SystemNamespace, name)
	if r.review(ctx, "", plain.Permissions[0].ResourceAttributes) == reviewAllowed {
		return nil
	}
	constrained := permissions.ConstrainedImpersonation(r.Operator, r.SystemNamespace, name, account)
	if r.review(ctx, "", constrained[0].Permissions[0].ResourceAttributes) == reviewAllowed {
		return constrained
	}
	return []permissions.Grant{plain}
}

// check reviews the permissions of one role.
func (r *reviewer) check(ctx context.Context, grant permissions.Grant) {
	denied, isUnknown := 0, false
	for _, permission := range grant.Permissions {
		if denied == maxDenied && r.IsOperator || r.result.hasFailed {
			break
		}
		switch r.checkPermission(ctx, grant, permission) {
		case reviewAllowed:
		case reviewUnknown:
			isUnknown = true
		case reviewDenied:
			denied++
		}
	}
	if denied > 0 || isUnknown {
		r.result.grants = append(r.result.grants, grant)
	}
}

// checkPermission reviews one permission, and adds the outcome to the result.
func (r *reviewer) checkPermission(
	ctx context.Context, grant permissions.Grant, permission permissions.Permission,
) reviewResult {
	account := grant.Subject.Name
	if grant.IsForOperator {
		account = ""
	}
	outcome, asked := r.review(ctx, account, permission.ResourceAttributes), permission
	if outcome == reviewDenied && permission.DryRun != nil {
		outcome = r.dryRun(ctx, permission)
	}
	if outcome == reviewDenied {
		for _, held := range permission.Instead {
			if outcome, asked = r.review(ctx, account, held.ResourceAttributes), held; outcome != reviewAllowed {
				break
			}
		}
	}
	switch {
	case outcome == reviewDenied && permission.Uncertain != "":
		r.result.addUnknown(fmt.Sprintf("%s: %s", permission, permission.Uncertain))
		return reviewUnknown
	case outcome == reviewDenied:
		denied := &r.result.Denied
		if grant.IsForOperator {
			denied = &r.result.DeniedToOperator
		}
		*denied = append(*denied, asked.String())
	}
	return outcome
}

// reviewResult is what the API server answers to a review.
type reviewResult int

const (
	reviewDenied reviewResult = iota
	reviewAllowed
	reviewUnknown
)

// review asks the API server whether a request of a ServiceAccount, or of the operator, is allowed.
func (r *reviewer) review(
	ctx context.Context, account string, attributes authorizationv1.ResourceAttributes,
) reviewResult {
	key := reviewKey{account, attributes}
	switch {
	case r.result.hasFailed:
		return reviewUnknown
	case r.wasAllowed(key):
		return reviewAllowed
	}
	status, err := r.send(ctx, key)
	r.setAllowed(key, err == nil && status.Allowed)
	switch {
	case err != nil:
		r.result.hasFailed = true
		r.result.addUnknown(fmt.Sprintf("failed to review access: %v", err))
		return reviewUnknown
	case status.Allowed:
		return reviewAllowed
	case status.EvaluationError != "":
		permission := permissions.Permission{ResourceAttributes: attributes}
		r.result.addUnknown(fmt.Sprintf("%s: %s", permission, status.EvaluationError))
		return reviewUnknown
	}
	return reviewDenied
}

func (a *Authorizer) send(ctx context.Context, key reviewKey) (authorizationv1.SubjectAccessReviewStatus, error) {
	subject := a.Operator
	switch {
	case key.account != "":
		subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.SystemNamespace, Name: key.account}
	case a.IsOperator: // It can have groups that its name does not show.
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &key.attributes},
		}
		err := a.Client.Create(ctx, review)
		return review.Status, err
	}
	review := &authorizationv1.SubjectAccessReview{Spec: permissions.Review(subject, &key.attributes)}
	err := a.Client.Create(ctx, review)
	return review.Status, err
}

// dryRun determines whether a ServiceAccount without the verb `bind` or `escalate` holds the permissions that an
// object grants. No review shows this. The object is not stored. It is for the operator's namespace: the owners of
// other namespaces could influence the response, for example with a quota.
func (r *reviewer) dryRun(ctx context.Context, permission permissions.Permission) reviewResult {
	if r.result.IsAccountMissing || len(r.result.DeniedToOperator) > 0 {
		return reviewDenied
	}
	manifest := permission.DryRun.DeepCopy()
	manifest.SetNamespace(r.SystemNamespace)
	manifest.SetName(cmp.Or(manifest.GetName(), r.template.Name))
	namespace := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: r.SystemNamespace}, namespace); err != nil {
		return r.unknown(permission, err)
	}
	err := r.DryRunner.DryRun(ctx, r.template, namespace, manifest)
	switch {
	case err == nil, apierrors.IsInvalid(err):
		// Another RoleBinding with this name can have another role, which cannot be changed.
		r.setAllowed(reviewKey{r.result.account, permission.ResourceAttributes}, true)
		return reviewAllowed
	case isImpersonationDenied(err), denial.IsFromAdmission(err.Error()):
		// The client is not the operator, or the API server refuses the object for another reason.
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // The ClusterRole does not exist.
		return reviewDenied
	}
	return r.unknown(permission, err)
}

func (r *reviewer) unknown(permission permissions.Permission, err error) reviewResult {
	r.result.addUnknown(fmt.Sprintf("%s: %v", permission, err))
	return reviewUnknown
}

func isImpersonationDenied(err error) bool {
	return slices.ContainsFunc(denial.MissingPermissions(err.Error()), func(missing denial.MissingPermission) bool {
		return strings.HasPrefix(missing.Verb, "impersonate") // Verbs of constrained impersonation have a suffix.
	})
}

func (r *reviewer) wasAllowed(key reviewKey) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at, ok := r.allowed[key]
	return ok && !r.isFresh && r.Clock.Since(at) < allowedLifetime
}

func (a *Authorizer) setAllowed(key reviewKey, isAllowed bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if !isAllowed {
		delete(a.allowed, key)
		return
	}
	if a.allowed == nil {
		a.allowed = map[reviewKey]time.Time{}
	}
	a.allowed[key] = a.Clock.Now()
}

func (a *Authorizer) forgetAllowed() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	maps.DeleteFunc(a.allowed, func(_ reviewKey, at time.Time) bool { return a.Clock.Since(at) >= allowedLifetime })
}
