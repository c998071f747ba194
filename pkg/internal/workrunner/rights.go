// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Right is one verb on namespaces, or on a subresource of them, at cluster scope.
type Right struct {
	Verb        string
	Subresource string
}

// String returns it as it is asked for, such as "update namespaces/finalize".
func (r Right) String() string { return r.Verb + " " + r.resource() }

func (r Right) resource() string {
	if r.Subresource == "" {
		return "namespaces"
	}
	return "namespaces/" + r.Subresource
}

// MissingRights is the error of an identity that lacks some of its rights.
type MissingRights struct {
	// Missing are the rights, each as a verb and a resource.
	Missing []string
	// Message says what is missing and which commands give it.
	Message string
}

// Error returns the message.
func (m *MissingRights) Error() string { return m.Message }

// CheckRights returns MissingRights where the client's own identity lacks some. The role is
// the name of the ClusterRole that the message tells to create.
func CheckRights(ctx context.Context, c client.Client, role string, rights []Right) error {
	var missing []string
	for _, right := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: right.Verb, Resource: "namespaces", Subresource: right.Subresource,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("asking for the right to %s: %w", right, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, right.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	who := identity(ctx, c)
	return &MissingRights{Missing: missing, Message: fmt.Sprintf("%s may not %s; as an administrator run: %s",
		who.name, strings.Join(missing, ", "), strings.Join(commands(role, who, rights), "; "))}
}

// GrantCommands returns the commands that give rights to the client's own identity.
func GrantCommands(ctx context.Context, c client.Client, role string, rights []Right) string {
	return strings.Join(commands(role, identity(ctx, c), rights), "; ")
}

// subject is the identity that rights are granted to, as a flag of kubectl and its value.
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

// commands gives all rights, and not those that are missing alone: a role that exists
// already has to be replaced. kubectl gives each verb on each resource, so each resource has
// a role of its own.
func commands(role string, who subject, rights []Right) []string {
	var resources []string
	verbs := map[string][]string{}
	for _, right := range rights {
		if resource := right.resource(); verbs[resource] == nil {
			resources = append(resources, resource)
		}
		verbs[right.resource()] = append(verbs[right.resource()], right.Verb)
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
