// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

// Names of webhooks and match conditions in config/webhook.
const (
	// ProbeWebhook is the webhook that shows whether API servers get responses from the server of the other webhooks.
	ProbeWebhook = "probe.nslifecycle.dev"

	holdWebhook = "hold.nslifecycle.dev"
	// waitingSubjectsSuffix is the end of the names of the webhooks for waitingSubjects.
	waitingSubjectsSuffix = "-waiting-subjects.nslifecycle.dev"
	notAnInitializer      = "not-an-initializer"
)

// Configure sets the fields of the webhook configuration that depend on the cluster: the URL, unless
// it is empty, and which requests the webhooks select: none if isHolding is false. The manifest does not
// contain the latter, so that applying it again does not change them.
func Configure(
	configuration *admissionregistrationv1.MutatingWebhookConfiguration, base string, isHolding bool,
	subjects []v1alpha1.Subject,
) {
	var rules, waitingRules []admissionregistrationv1.RuleWithOperations
	var conditions []admissionregistrationv1.MatchCondition
	if isHolding {
		rules = heldRules()
	}
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		if base != "" {
			webhooks.SetURL(&webhook.ClientConfig, base)
		}
		if webhook.Name == holdWebhook && len(subjects) > 0 {
			waitingRules, conditions = rules, waitingConditions(webhook.MatchConditions, subjects)
		}
	}
	for i := range configuration.Webhooks {
		switch webhook := &configuration.Webhooks[i]; {
		case strings.HasSuffix(webhook.Name, waitingSubjectsSuffix):
			webhook.Rules, webhook.MatchConditions = waitingRules, conditions
		case webhook.Name != ProbeWebhook:
			webhook.Rules = rules
		}
	}
}

// IsHolding reports whether the webhooks select requests.
func IsHolding(configuration *admissionregistrationv1.MutatingWebhookConfiguration) bool {
	return slices.ContainsFunc(configuration.Webhooks, func(webhook admissionregistrationv1.MutatingWebhook) bool {
		return webhook.Name == holdWebhook && len(webhook.Rules) > 0
	})
}

// heldRules selects the requests that are held. exec and other subresources are not: clients that create a namespace
// and fill it do not need them.
func heldRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
			Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
}

// waitingConditions returns the match conditions for the subjects that are initializers. The other webhooks select the
// subjects that are not.
func waitingConditions(
	conditions []admissionregistrationv1.MatchCondition, subjects []v1alpha1.Subject,
) []admissionregistrationv1.MatchCondition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		if conditions[i].Name == notAnInitializer {
			conditions[i] = admissionregistrationv1.MatchCondition{
				Name: "an-initializer", Expression: "!(" + conditions[i].Expression + ")",
			}
		}
	}
	return append(conditions, admissionregistrationv1.MatchCondition{
		Name: "waiting-subject", Expression: waitingExpression(subjects),
	})
}

// waitingExpression returns a CEL expression that selects the requests of the subjects.
func waitingExpression(subjects []v1alpha1.Subject) string {
	var users, groups []string
	for _, subject := range subjects {
		switch subject.Kind {
		case v1alpha1.SubjectGroup:
			groups = append(groups, strconv.QuoteToASCII(subject.Name))
		case v1alpha1.SubjectServiceAccount:
			users = append(users, strconv.QuoteToASCII(serviceaccount.MakeUsername(subject.Namespace, subject.Name)))
		default:
			users = append(users, strconv.QuoteToASCII(subject.Name))
		}
	}
	return "request.userInfo.username in [" + strings.Join(users, ", ") + "] || " +
		"request.userInfo.?groups.orValue([]).exists(g, g in [" + strings.Join(groups, ", ") + "])"
}
