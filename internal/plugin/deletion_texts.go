// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// timeoutTexts returns sentences about the timeouts of the initializer whose turn it is, and of templates.
func timeoutTexts(facts *diagnosis.Facts, relations *relationReader, selected []templates.Relation) []string {
	pending := diagnosis.PendingInitializers(facts.Namespace)
	if diagnosis.StateOf(facts.Namespace) != diagnosis.StateInitializing || len(pending) == 0 {
		return nil
	}
	first := pending[0]
	start := initialization.TurnStart(facts.Namespace, first, facts.Now)
	if start.IsZero() {
		return nil // The operator has not recorded the start of the turn.
	}
	outcome := "the initialization fails, and the operator deletes the namespace"
	if nsobject.IsProtected(facts.Namespace) {
		outcome = "the initialization fails; the operator deletes no namespace with the label " +
			v1alpha1.LabelDeletionProtection
	}
	var texts []string
	add := func(subject string, timeout time.Duration, isSkipped bool) {
		text := outcome
		if isSkipped {
			text = "the operator skips it"
		}
		at := facts.Now.Add(initialization.RemainingSince(start, timeout, facts.Now))
		texts = append(texts, fmt.Sprintf("If %s has not completed at %s (timeout %s), %s.", subject,
			diagnosis.FormatTime(at), timeout, text))
	}
	for _, initializer := range facts.Initializers {
		if initializer.Name == first && initializer.Timeout > 0 {
			add("initializer "+first, initializer.Timeout, initializer.IsSkipped)
			break
		}
	}
	if first != v1alpha1.TemplatesInitializer {
		return texts
	}
	for _, relation := range selected {
		tmpl := relations.find(relation.Template)
		if tmpl == nil || relation.Result != template.MatchSelected {
			continue
		}
		settings := tmpl.Spec.Initialization
		if settings.EffectiveTimeoutSeconds == nil {
			continue
		}
		add("template "+tmpl.Name, time.Duration(*settings.EffectiveTimeoutSeconds)*time.Second,
			settings.EffectiveTimeoutPolicy == v1alpha1.FailurePolicyIgnore)
	}
	return texts
}

// texts returns a sentence about the deletion protection of a Namespace, or none if it does not have the label.
func (r *policyReader) texts(ctx context.Context, namespace *corev1.Namespace) []string {
	protection := r.protection(ctx, namespace)
	if protection == "" {
		return nil
	}
	return []string{"Label " + v1alpha1.LabelDeletionProtection + ": " + enforcementTexts[protection] + "."}
}

var enforcementTexts = map[enforcement]string{
	enforced: "the API server rejects the deletion",
	notEnforced: "not enforced: the API server does not enforce the policy \"" + internalv1alpha1.PolicyProtection +
		"\", so users can delete the namespace",
	enforcementUnknown: "whether the API server rejects the deletion is unknown",
}
