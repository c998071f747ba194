// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	bothInitializers = firstInitializer | secondInitializer
	allInitializers  = bothInitializers | thirdInitializer
)

// scenarios are models of different sizes. Together they contain all actors, and each is small enough for an
// exhaustive search.
var scenarios = map[string]func(without rule) (Result, error){
	// Writes of users through three API servers, which the webhooks hold.
	"writes": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 3, namespaces: 2, initializers: firstInitializer, hasWrites: true, hasHold: true,
		})
	},
	// Writes through two API servers without webhooks.
	"gate": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 2, namespaces: 2, initializers: firstInitializer, hasWrites: true,
		})
	},
	// An API server that does not recognize the set yet, and attempts to forge the state.
	"state": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 2, namespaces: 2, initializers: allInitializers, hasMistakes: true,
			startsUnsynced: true,
		})
	},
	// Initializers that only their subjects can remove.
	"subjects": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 1, namespaces: 2, initializers: bothInitializers, hasMistakes: true,
			hasSubjects: true,
		})
	},
	// The operator skips initializers that time out or are no longer registered.
	"ignore": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 1, namespaces: 2, initializers: bothInitializers,
			policy: v1alpha1.InitializerIgnore, hasDeregistration: true,
		})
	},
	// The operator deletes namespaces whose initialization times out or fails.
	"fail": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 1, namespaces: 3, initializers: bothInitializers,
			policy: v1alpha1.InitializerFail, hasFailures: true, hasDeregistration: true,
		})
	},
	// Writes of users while the operator completes or deletes the namespace.
	"operator": func(without rule) (Result, error) {
		return Check(&initializationModel{
			without: without, servers: 2, namespaces: 2, initializers: firstInitializer, hasWrites: true, hasHold: true,
			policy: v1alpha1.InitializerFail, hasFailures: true, hasMistakes: true,
		})
	},
	// Creations through three API servers while the namespace is deleted and created again.
	"creations": func(without rule) (Result, error) {
		return Check(&finalizationModel{without: without, servers: 3, namespaces: 3, objects: 3})
	},
	// Creations that a webhook delays.
	"webhook": func(without rule) (Result, error) {
		return Check(&finalizationModel{without: without, servers: 1, namespaces: 2, objects: 2, hasWebhook: true})
	},
	// List requests for other namespaces, and a second controller.
	"peer": func(without rule) (Result, error) {
		return Check(&finalizationModel{
			without: without, servers: 2, namespaces: 2, objects: 3, hasSharedLists: true, hasPeer: true,
		})
	},
	// A second type, failed requests, and finalizers of objects.
	"types": func(without rule) (Result, error) {
		return Check(&finalizationModel{
			without: without, servers: 1, namespaces: 2, objects: 3, hasTypes: true, hasFailures: true,
			hasObjectFinalizers: true,
		})
	},
	// All actors with one object.
	"together": func(without rule) (Result, error) {
		return Check(&finalizationModel{
			without: without, servers: 1, namespaces: 2, objects: 1, hasWebhook: true, hasSharedLists: true, hasPeer: true,
			hasTypes: true, hasObjectFinalizers: true,
		})
	},
	// Another finalizer of the namespace.
	"finalizers": func(without rule) (Result, error) {
		return Check(&finalizationModel{without: without, servers: 1, namespaces: 2, objects: 1, hasOther: true})
	},
}

// With all rules, no scenario violates an invariant.
func TestModel(t *testing.T) {
	for name, check := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			result, err := check("")
			g.Expect(err).NotTo(HaveOccurred())
			t.Log(result)
			g.Expect(result.Violation).To(BeEmpty(), result.String())
			g.Expect(result.States).To(BeNumerically(">", 100))
		})
	}
}

// ruleTest is a scenario that violates an invariant without a rule. The trace contains the steps in this order.
type ruleTest struct {
	scenario, violation string
	steps               []string
}

var initializationTests = map[rule]ruleTest{
	ruleInject:             {"state", violationNoList, []string{"creates the namespace"}},
	ruleInjectFails:        {"state", violationNoList, []string{"creates the namespace through API server 2"}},
	ruleComplete:           {"ignore", violationProgress, []string{"creates the namespace"}},
	ruleRestore:            {"state", violationOpenEarly, []string{"applies a manifest without the keys"}},
	ruleFailureIsFinal:     {"fail", violationOpenFailed, []string{"sets a failure result", "completes"}},
	ruleGate:               {"gate", violationStored, []string{"the user sends", "is stored"}},
	ruleGateTerminating:    {"gate", violationStored, []string{"deletes the namespace", "UPDATE", "is stored"}},
	ruleVerb:               {"state", violationOpenEarly, []string{"user removes the list and the label"}},
	ruleListShrinks:        {"state", violationRestored, []string{"completes"}},
	ruleConsistent:         {"state", violationOpenPending, []string{"initializer first removes the label"}},
	ruleResultWhilePending: {"fail", violationResult, []string{"decides to fail", "completes", "writes"}},
	ruleSubjects:           {"subjects", violationOpenEarly, []string{"second removes all names"}},
	ruleOrder:              {"subjects", violationOrder, []string{"second completes"}},
	ruleSendAgain: {"writes", violationHeld, []string{
		"calls the webhook", "completes", "the webhook admits the write", "is stored"}},
	ruleInitializerUID: {"ignore", violationOpenEarly, []string{"removed", "creates the namespace", "completes"}},
	ruleLiveNamespace:  {"ignore", violationSkipFinished, []string{"first completes", "decides to skip first"}},
	ruleLiveRegistry: {"ignore", violationSkipEarly, []string{
		"deletes the configuration", "delay", "creates the configuration again", "decides to skip"}},
	ruleOperatorUID: {"ignore", violationWrongTarget, []string{
		"decides", "removed", "creates the namespace", "writes its decision"}},
	ruleTimeout:             {"ignore", violationProgress, []string{"creates the namespace"}},
	ruleFailurePolicy:       {"fail", violationPolicy, []string{"decides to skip first after a timeout"}},
	ruleTimeoutSeconds:      {"fail", violationEarly, []string{"decides to fail"}},
	ruleDeregistration:      {"ignore", violationProgress, []string{"deletes the configuration"}},
	ruleDeregistrationDelay: {"ignore", violationSkipEarly, []string{"deletes the configuration", "decides to skip"}},
	ruleDeleteFailed:        {"fail", violationProgress, []string{"creates the namespace"}},
	ruleGracePeriod: {"gate", violationOrphan, []string{
		"CREATE", "deletes the namespace", "the gate admits the write", "is finalized and removed", "is stored"}},
}

var finalizationTests = map[rule]ruleTest{
	ruleGracePeriod: {"creations", violationNotEmpty, []string{
		"admits the creation", "deletes the namespace", "the grace period ends", "confirms that the namespace is empty",
		"is stored", "removes the namespace finalizer"}},
	ruleCountServers: {"creations", violationNotEmpty, []string{
		"deletes the namespace", "API server 1 observes", "the grace period ends", "API server 2 admits the creation",
		"confirms that the namespace is empty", "is stored", "removes the namespace finalizer"}},
	ruleCountWebhooks: {"webhook", violationNotEmpty, []string{
		"which a webhook delays", "the grace period ends", "confirms that the namespace is empty", "is stored",
		"removes the namespace finalizer"}},
	ruleGracePeriodByUID: {"creations", violationNotEmpty, []string{
		"the grace period ends", "removes the namespace finalizer", "creates the namespace", "admits the creation",
		"deletes the namespace", "is stored", "removes the namespace finalizer"}},
	ruleTerminating: {"creations", violationLiveObject, []string{"starts a pass", "deletes the object"}},
	ruleConfirm: {"peer", violationLiveObject, []string{
		"deletes the namespace", "second controller removes", "creates the namespace", "lists type 1",
		"deletes the object"}},
	ruleConfirmAfterList: {"peer", violationLiveObject, []string{
		"starts a pass", "second controller removes", "creates the namespace", "lists type 1", "deletes the object"}},
	ruleObjectUID: {"peer", violationLiveObject, []string{
		"lists type 1, which contains an object", "which is the same", "second controller removes",
		"creates the namespace", "deletes the object"}},
	ruleOwnFinalizer: {"finalizers", violationLost, []string{
		"another controller", "removes the namespace finalizer"}},
	ruleResourceVersion: {"finalizers", violationLost, []string{
		"another controller", "confirms", "the operator removes the namespace finalizer"}},
	ruleListsAfterDeletion: {"peer", violationForeignObject, []string{
		"lists type 1 for another namespace", "creates the namespace", "uses the shared list", "deletes the object"}},
	ruleListsAfterGracePeriod: {"peer", violationNotEmpty, []string{
		"lists type 1 for another namespace", "is stored", "the grace period ends", "uses the shared list",
		"removes the namespace finalizer"}},
	ruleFullPass: {"types", violationNotEmpty, []string{
		"starts a pass", "lists type 1", "is stored", "the grace period ends", "removes the namespace finalizer"}},
	ruleDiscoveryAfterGracePeriod: {"types", violationNotEmpty, []string{
		"installs type 2", "is stored", "after the grace period", "removes the namespace finalizer"}},
	ruleDiscoveryComplete: {"types", violationNotEmpty, []string{
		"installs type 2", "discovers only type 1", "removes the namespace finalizer"}},
	ruleListErrors: {"types", violationNotEmpty, []string{
		"after the grace period", "fails", "removes the namespace finalizer"}},
	ruleConsistentLists: {"types", violationNotEmpty, []string{
		"after the grace period", "from a stale watch cache", "removes the namespace finalizer"}},
	ruleCountTerminating: {"types", violationNotEmpty, []string{
		"deletes the object", "lists type 1", "removes the namespace finalizer"}},
}

// Without any one of the rules, the search finds a violation.
func TestRules(t *testing.T) {
	for model, tests := range map[string]map[rule]ruleTest{
		"initialization": initializationTests, "finalization": finalizationTests,
	} {
		for without, test := range tests {
			t.Run(model+" without "+string(without), func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				result, err := scenarios[test.scenario](without)
				g.Expect(err).NotTo(HaveOccurred())
				t.Log(result)
				g.Expect(result.Violation).To(Equal(test.violation))
				g.Expect(result.Trace).To(containSteps(test.steps))
			})
		}
	}
}

// Each rule is taken out by a test.
func TestRulesAreTested(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("rules.go")
	g.Expect(err).NotTo(HaveOccurred())
	rules := regexp.MustCompile(`rule = "(.*)"`).FindAllStringSubmatch(string(source), -1)
	g.Expect(rules).NotTo(BeEmpty())
	for _, match := range rules {
		_, isInitialization := initializationTests[rule(match[1])]
		_, isFinalization := finalizationTests[rule(match[1])]
		g.Expect(isInitialization || isFinalization).To(BeTrue(), match[1])
	}
}

// The model reproduces the limits in docs/design.md.
func TestLimits(t *testing.T) {
	tests := map[string][]string{
		limitOldNamespace: {"deletes the namespace", "completes", "removed", "creates the namespace", "UPDATE", "is stored"},
	}
	for limit, steps := range tests {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			result, err := Check(&initializationModel{
				servers: 2, namespaces: 2, initializers: firstInitializer, hasWrites: true, hasHold: true, reports: limit,
			})
			g.Expect(err).NotTo(HaveOccurred())
			t.Log(result)
			g.Expect(result.Violation).To(Equal(limit))
			g.Expect(result.Trace).To(containSteps(steps))
		})
	}
}

// containSteps succeeds if the actions of a trace contain all texts in this order.
func containSteps(steps []string) types.GomegaMatcher {
	return WithTransform(func(trace []string) []string {
		missing := steps
		for _, action := range trace {
			if len(missing) > 0 && strings.Contains(action, missing[0]) {
				missing = missing[1:]
			}
		}
		return missing
	}, BeEmpty())
}
