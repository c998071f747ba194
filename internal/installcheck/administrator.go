// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/config/rbac"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/parts"
)

const (
	// admissionLease is the Lease of the controller admission in config/manager/admission.
	admissionLease = "admission.nslifecycle.dev"
	// templateWebhook is the webhook that rejects invalid NamespaceTemplates.
	templateWebhook = "template-validation.nslifecycle.dev"
	// maxMissing is the number of missing permissions in a message.
	maxMissing = 5
)

// RunAsAdministrator runs all checks, and those that the manager lacks permissions for. Its dry runs make the API
// server call the webhooks. With several API servers, each call checks one of them.
func (c *Checker) RunAsAdministrator(ctx context.Context) []Result {
	admission := *c
	admission.LeaseName = admissionLease
	results := append(c.Run(ctx),
		Result{Check: checkAdmissionLeader, Err: admission.checkLeader(ctx)}, c.checkWebhooks(ctx))
	for _, account := range []struct {
		name string
		role []byte
	}{{parts.ControllerManager, rbac.Manager}, {parts.Admission, rbac.Admission}} {
		results = append(results, c.checkPermissions(ctx, account.name, account.role))
	}
	return results
}

// checkWebhooks checks that each webhook has a certificate, and that the API server calls the one for templates, which
// has the same server as all others.
func (c *Checker) checkWebhooks(ctx context.Context) Result {
	result := Result{Check: checkReachable}
	configs, err := c.readWebhooks(ctx)
	switch {
	case err != nil:
		result.Err, result.IsUnknown = err, true
		return result
	case len(configs) == 0:
		result.Warning = messageNoWebhooks
		return result
	}
	for name, config := range configs {
		if len(config.CABundle) == 0 {
			result.Err = errors.Join(result.Err, errors.New(messageNoCertificate(name)))
		}
	}
	if result.Err != nil {
		return result
	}
	err = c.Client.Create(ctx, invalidTemplate(), client.DryRunAll)
	switch {
	case err == nil:
		result.Err = errors.New(messageUnreachable)
	case !strings.Contains(err.Error(), strconv.Quote(templateWebhook)) || apierrors.IsInternalError(err):
		result.Err, result.IsUnknown = fmt.Errorf("failed to create a NamespaceTemplate in a dry run: %w", err), true
	}
	return result
}

// readWebhooks returns the client configurations of the webhooks by name.
func (c *Checker) readWebhooks(ctx context.Context) (map[string]admissionregistrationv1.WebhookClientConfig, error) {
	var hold, inject admissionregistrationv1.MutatingWebhookConfiguration
	var templates admissionregistrationv1.ValidatingWebhookConfiguration
	hold.Name, inject.Name = internalv1alpha1.HoldConfiguration, internalv1alpha1.InjectConfiguration
	templates.Name = internalv1alpha1.TemplatesConfiguration
	for _, object := range []client.Object{&hold, &inject, &templates} {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			kind, _ := c.Client.GroupVersionKindFor(object)
			return nil, fmt.Errorf("failed to get %s %q: %w", kind.Kind, object.GetName(), err)
		}
	}
	configs := map[string]admissionregistrationv1.WebhookClientConfig{}
	for _, webhook := range slices.Concat(hold.Webhooks, inject.Webhooks) {
		configs[webhook.Name] = webhook.ClientConfig
	}
	for _, webhook := range templates.Webhooks {
		configs[webhook.Name] = webhook.ClientConfig
	}
	return configs, nil
}

// invalidTemplate returns a template with an expression that only the webhook rejects.
func invalidTemplate() *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{GenerateName: "nslifecycle-check-"}}
	template.Spec.ServiceAccountName = "nslifecycle-check"
	template.Spec.Objects = []v1alpha1.TemplateObject{{
		Name: "check", Template: &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"check"},"data":{"key":"${"}}`)},
	}}
	return template
}

// checkPermissions asks the API server for each permission in the ClusterRole of a ServiceAccount.
func (c *Checker) checkPermissions(ctx context.Context, account string, role []byte) Result {
	result := Result{Check: checkAccount(account)}
	var required rbacv1.ClusterRole
	if err := yaml.Unmarshal(role, &required); err != nil {
		result.Err = fmt.Errorf("failed to parse a ClusterRole: %w", err)
		return result
	}
	user := serviceaccount.MakeUsername(c.SystemNamespace, account)
	groups := serviceaccount.MakeGroupNames(c.SystemNamespace)
	var missing []string
	for _, attributes := range attributesOf(required.Rules) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups, ResourceAttributes: &attributes,
		}}
		if err := c.Client.Create(ctx, review); err != nil {
			result.Err, result.IsUnknown = fmt.Errorf("failed to create a SubjectAccessReview: %w", err), true
			return result
		}
		if !review.Status.Allowed && len(missing) < maxMissing {
			missing = append(missing, describe(attributes))
		}
	}
	if len(missing) > 0 {
		result.Err = errors.New(messageLacks(missing))
	}
	return result
}

// attributesOf returns each permission of rules for resources.
func attributesOf(rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{
							Group: group, Resource: resource, Subresource: subresource, Verb: verb, Name: name,
						})
					}
				}
			}
		}
	}
	return all
}

func describe(attributes authorizationv1.ResourceAttributes) string {
	resource := attributes.Resource
	if attributes.Group != "" {
		resource += "." + attributes.Group
	}
	if attributes.Subresource != "" {
		resource += "/" + attributes.Subresource
	}
	if attributes.Name != "" {
		resource += " " + strconv.Quote(attributes.Name)
	}
	return attributes.Verb + " " + resource
}
