// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// rule is a rule that a test can take out of a model.
type rule string

// Rules of the admission policies.
const (
	ruleInject             rule = "inject adds the list"
	ruleInjectFails        rule = "inject has failurePolicy Fail"
	ruleComplete           rule = "complete removes the label"
	ruleRestore            rule = "complete restores omitted keys"
	ruleFailureIsFinal     rule = "complete and guard never open a failed namespace"
	ruleGate               rule = "gate"
	ruleGateTerminating    rule = "gate rejects updates in a terminating namespace"
	ruleVerb               rule = "guard requires the verb"
	ruleListShrinks        rule = "guard lets the list only shrink"
	ruleConsistent         rule = "guard keeps label and list consistent"
	ruleResultWhilePending rule = "guard admits a result only while initializers are pending"
	ruleSubjects           rule = "only its subjects remove an initializer"
	ruleOrder              rule = "only the first initializer is removed"
)

// ruleSendAgain is a rule of the hold webhooks.
const ruleSendAgain rule = "held writes are sent again"

// Rules of initializers and of the operator during the initialization.
const (
	ruleInitializerUID      rule = "initializers test the UID"
	ruleLiveNamespace       rule = "decide with the namespace in etcd"
	ruleLiveRegistry        rule = "decide with the configurations in etcd"
	ruleOperatorUID         rule = "write with the UID of the namespace"
	ruleTimeout             rule = "time out"
	ruleFailurePolicy       rule = "failurePolicy of initializers"
	ruleTimeoutSeconds      rule = "timeoutSeconds of initializers"
	ruleDeregistration      rule = "skip unregistered initializers"
	ruleDeregistrationDelay rule = "delay of deregistration"
	ruleDeleteFailed        rule = "delete failed namespaces"
)

// ruleGracePeriod is a rule of both models.
const ruleGracePeriod rule = "grace period"

// Rules of the finalization.
const (
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
