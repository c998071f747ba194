// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Permission is a verb on namespaces, or on one of their subresources, at cluster scope.
type Permission struct {
	Verb        string
	Subresource string
}

// String returns the permission in the form "update namespaces/finalize".
func (p Permission) String() string { return p.Verb + " " + p.resource() }

func (p Permission) resource() string {
	if p.Subresource == "" {
		return "namespaces"
	}
	return "namespaces/" + p.Subresource
}

// MissingPermissions is the error that reports that an identity lacks permissions.
type MissingPermissions struct {
	// Missing lists the missing permissions, each as a verb and a resource.
	Missing []string
	// Message names the missing permissions and the commands that grant them.
	Message string
}

// Error returns the message.
func (m *MissingPermissions) Error() string { return m.Message }

// CheckPermissions returns *MissingPermissions if the identity of the client lacks permissions.
// role is the name of the ClusterRole in the suggested commands.
func CheckPermissions(ctx context.Context, c client.Client, role string, permissions []Permission) error {
	var missing []string
	for _, permission := range permissions {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: permission.Verb, Resource: "namespaces", Subresource: permission.Subresource,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("failed to check the permission to %s: %w", permission, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, permission.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	who := identity(ctx, c)
	return &MissingPermissions{Missing: missing, Message: fmt.Sprintf(messageMissingPermissions, who.name,
		strings.Join(missing, ", "), strings.Join(commands(role, who, permissions), "; "))}
}

// LacksPermission reports whether the API server denied a request because the identity lacks
// permissions, which GrantCommands can grant. RBAC or the guard policy denies such a request. Other
// admission webhooks and policies return the same code.
func LacksPermission(err error) bool {
	return apierrors.IsForbidden(err) &&
		(denial.IsMissingPermission(err) || slices.ContainsFunc(denial.DenyingPolicies(err.Error()), isGuard))
}

// isGuard reports whether a policy is PolicyGuard. The installation adds a prefix to its name.
func isGuard(policy string) bool {
	return policy == internalv1alpha1.PolicyGuard || strings.HasSuffix(policy, "-"+internalv1alpha1.PolicyGuard)
}

// GrantCommands returns the commands that grant the permissions to the identity of the client.
func GrantCommands(ctx context.Context, c client.Client, role string, permissions []Permission) string {
	return strings.Join(commands(role, identity(ctx, c), permissions), "; ")
}

// subject is the identity to which permissions are granted. flag and value are the flag that
// specifies the identity for kubectl create clusterrolebinding, and its value.
type subject struct{ name, flag, value string }

// identity returns the identity of the client, or a placeholder if the client cannot read it.
func identity(ctx context.Context, c client.Client) subject {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil || review.Status.UserInfo.Username == "" {
		return subject{name: "this identity", flag: "--serviceaccount", value: "NAMESPACE:NAME"}
	}
	name := review.Status.UserInfo.Username
	if account, isServiceAccount := strings.CutPrefix(name, "system:serviceaccount:"); isServiceAccount {
		return subject{name: fmt.Sprintf("user %q", name), flag: "--serviceaccount", value: account}
	}
	return subject{name: fmt.Sprintf("user %q", name), flag: "--user", value: name}
}

// commands returns the commands that grant all permissions, not only the missing ones, because they
// replace an existing role. kubectl create clusterrole grants each verb on each resource, so each
// resource requires a separate role.
func commands(role string, who subject, permissions []Permission) []string {
	var resources []string
	verbs := map[string][]string{}
	for _, permission := range permissions {
		if resource := permission.resource(); verbs[resource] == nil {
			resources = append(resources, resource)
		}
		verbs[permission.resource()] = append(verbs[permission.resource()], permission.Verb)
	}
	var result []string
	for _, resource := range resources {
		name := role
		if _, subresource, found := strings.Cut(resource, "/"); found {
			name += "-" + subresource
		}
		result = append(result,
			shell.Command("kubectl create clusterrole %s --verb=%s --resource=%s",
				name, strings.Join(verbs[resource], ","), resource),
			shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s "+who.flag+"=%s", name, name, who.value))
	}
	return result
}
