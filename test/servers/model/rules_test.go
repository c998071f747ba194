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
)

// scenarios are models of different sizes. Together they contain all actors, and each is small enough for an
// exhaustive search.
var scenarios = map[string]func(without rule) (Result, error){
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

var ruleTests = map[rule]ruleTest{
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
	for without, test := range ruleTests {
		t.Run("without "+string(without), func(t *testing.T) {
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

// Each rule is taken out by a test.
func TestRulesAreTested(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("rules.go")
	g.Expect(err).NotTo(HaveOccurred())
	rules := regexp.MustCompile(`rule += "(.*)"`).FindAllStringSubmatch(string(source), -1)
	g.Expect(rules).To(HaveLen(len(ruleTests)))
	for _, match := range rules {
		g.Expect(ruleTests).To(HaveKey(rule(match[1])))
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
