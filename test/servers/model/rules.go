// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// rule is a rule that a test can take out of a model.
type rule string

// Rules of the finalization.
const (
	ruleGracePeriod               rule = "grace period"
	ruleCountServers              rule = "longer grace period with several API servers"
	ruleCountWebhooks             rule = "longer grace period with webhooks"
	ruleGracePeriodByUID          rule = "grace period for each UID"
	ruleTerminating               rule = "only terminating namespaces"
	ruleConfirm                   rule = "read the namespace before deletions"
	ruleConfirmAfterList          rule = "read the namespace after the lists"
	ruleObjectUID                 rule = "delete with the UID of the object"
	ruleOwnFinalizer              rule = "remove only the own finalizer"
	ruleResourceVersion           rule = "remove the finalizer with the resourceVersion"
	ruleListsAfterDeletion        rule = "lists requested after the deletion"
	ruleListsAfterGracePeriod     rule = "lists requested after the grace period"
	ruleFullPass                  rule = "list all types after the grace period"
	ruleDiscoveryAfterGracePeriod rule = "discovery after the grace period"
	ruleDiscoveryComplete         rule = "complete discovery"
	ruleListErrors                rule = "failed lists are not empty"
	ruleConsistentLists           rule = "consistent reads"
	ruleCountTerminating          rule = "terminating objects remain"
)
