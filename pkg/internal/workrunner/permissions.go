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

// MissingPermissionsError is the error that reports that an identity lacks permissions.
type MissingPermissionsError struct {
	// Missing lists the missing permissions, each as a verb and a resource.
	Missing []string
	// Message names the missing permissions and the commands that grant them.
	Message string
}

// Error returns the message.
func (m *MissingPermissionsError) Error() string { return m.Message }

// CheckPermissions returns *MissingPermissionsError if the identity of the client lacks permissions, each of which is
// a verb and a resource, such as "update namespaces/finalize", at cluster scope. role is the name of the ClusterRole
// in the suggested commands.
func CheckPermissions(ctx context.Context, c client.Client, role string, permissions []string) error {
	var missing []string
	for _, permission := range permissions {
		verb, resource, _ := strings.Cut(permission, " ")
		resource, subresource, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Subresource: subresource},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("failed to check the permission to %s: %w", permission, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, permission)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	who := identity(ctx, c)
	return &MissingPermissionsError{Missing: missing, Message: fmt.Sprintf(
		"%s is not allowed to %s; as an administrator run: %s",
		who.name, strings.Join(missing, ", "), commands(role, who, permissions))}
}

// LacksPermission reports whether RBAC or the guard policy denied a request because the identity lacks permissions,
// which GrantCommands can grant. Other admission webhooks and policies return the same code.
func LacksPermission(err error) bool {
	return denial.IsMissingPermission(err) || apierrors.IsForbidden(err) &&
		slices.ContainsFunc(denial.DenyingPolicies(err.Error()), func(policy string) bool {
			// The installation adds a prefix to the name.
			return strings.HasSuffix("-"+policy, "-"+internalv1alpha1.PolicyGuard)
		})
}

// GrantCommands returns the commands that grant the permissions to the identity of the client.
func GrantCommands(ctx context.Context, c client.Client, role string, permissions []string) string {
	return commands(role, identity(ctx, c), permissions)
}

// subject is an identity to which permissions are granted, with the flag that specifies it for kubectl create
// clusterrolebinding and the flag's value.
type subject struct{ name, flag, value string }

// identity returns the identity of the client, or a placeholder if the client cannot read it.
func identity(ctx context.Context, c client.Client) subject {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil || review.Status.UserInfo.Username == "" {
		return subject{name: "this identity", flag: "--serviceaccount", value: "NAMESPACE:NAME"}
	}
	user := review.Status.UserInfo.Username
	if account, isServiceAccount := strings.CutPrefix(user, "system:serviceaccount:"); isServiceAccount {
		return subject{name: fmt.Sprintf("user %q", user), flag: "--serviceaccount", value: account}
	}
	return subject{name: fmt.Sprintf("user %q", user), flag: "--user", value: user}
}

// commands returns the commands that grant all permissions, not only the missing ones, because they replace an
// existing role. kubectl create clusterrole grants each verb on each resource, so each resource requires a separate
// role.
func commands(role string, who subject, permissions []string) string {
	var resources, result []string
	verbs := map[string][]string{}
	for _, permission := range permissions {
		verb, resource, _ := strings.Cut(permission, " ")
		if verbs[resource] == nil {
			resources = append(resources, resource)
		}
		verbs[resource] = append(verbs[resource], verb)
	}
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
	return strings.Join(result, "; ")
}
