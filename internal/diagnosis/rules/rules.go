// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "github.com/nslifecycle/nslifecycle/internal/diagnosis"

// Rule finds a group of related causes.
type Rule struct {
	// Name identifies the rule.
	Name string
	// Stage is the stage of the namespaces that the rule applies to.
	Stage diagnosis.Stage
	// Needs are the facts that the rule uses.
	Needs []diagnosis.Fact

	// applies reports whether findings are possible, based only on the Namespace. If it returns false,
	// the facts in Needs are not collected. A rule without this function always applies.
	applies func(view) bool
	// isFallback excludes the rule if another rule has findings.
	isFallback bool
	find       func(view) []diagnosis.Finding
}

// All returns all rules.
func All() []Rule {
	return []Rule{
		initializerRule,
		discoveryRule, crdRule, storageRule, permissionRule, admissionRule, finalizerRule, podRule, volumeRule, cloudRule,
		foregroundRule, namespaceFinalizerRule, namespaceControllerRule,
		unknownRule,
	}
}

// Needs returns the facts that the rules need, based only on the Namespace.
func Needs(facts *diagnosis.Facts) []diagnosis.Fact {
	var needs []diagnosis.Fact
	for _, rule := range All() {
		if rule.appliesTo(facts) {
			needs = append(needs, rule.Needs...)
		}
	}
	return needs
}

// appliesTo reports whether the rule applies to the namespace.
func (r Rule) appliesTo(facts *diagnosis.Facts) bool {
	return r.Stage == diagnosis.StageOf(facts.Namespace) && (r.applies == nil || r.applies(view{facts}))
}

// ownerNeeds are the facts that can be evidence of a finalizer's owner.
var ownerNeeds = []diagnosis.Fact{
	diagnosis.FactResourceTypes, diagnosis.FactReports, diagnosis.FactLeases, diagnosis.FactWorkloads,
	diagnosis.FactClusterRoles, diagnosis.FactClusterRoleBindings, diagnosis.FactServiceAccounts,
	diagnosis.FactAccessReviews, diagnosis.FactCRDNames, diagnosis.FactCRDs,
}

// view adds two kinds of methods to the facts: the rules, and queries that several rules share.
type view struct{ *diagnosis.Facts }

// find applies the rules for the stage of the namespace, those that are fallbacks last.
func (f view) find() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for _, rule := range All() {
		if rule.appliesTo(f.Facts) && !rule.isFallback {
			findings = append(findings, rule.find(f)...)
		}
	}
	findings = append(findings, f.findPublished(findings)...)
	for _, rule := range All() {
		if rule.appliesTo(f.Facts) && rule.isFallback && len(findings) == 0 {
			findings = append(findings, rule.find(f)...)
		}
	}
	return findings
}
