// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"slices"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// step collects one fact.
type step struct {
	fact diagnosis.Fact
	// after lists the facts that the step uses.
	after   []diagnosis.Fact
	collect func(*collection, context.Context)
}

// steps lists the steps of each stage. Each step comes after the steps whose facts it uses.
var steps = map[diagnosis.Stage][]step{
	diagnosis.StageInitializing: {
		{diagnosis.FactClusterRoleBindings, nil, (*collection).readClusterRoleBindings},
		{diagnosis.FactClusterRoles, nil, (*collection).readClusterRoles},
		{diagnosis.FactInitializers, nil, (*collection).readInitializers},
		{
			diagnosis.FactInitializerPods,
			[]diagnosis.Fact{
				diagnosis.FactClusterRoles, diagnosis.FactClusterRoleBindings, diagnosis.FactInitializers,
			},
			(*collection).readInitializerPods,
		},
	},
	diagnosis.StageTerminating: {
		{diagnosis.FactResourceTypes, nil, (*collection).discover},
		{diagnosis.FactAPIServices, nil, (*collection).readAPIServices},
		{diagnosis.FactCRDNames, nil, (*collection).readCRDNames},
		{diagnosis.FactInitializers, nil, (*collection).readInitializersOfFinalizers},
		{diagnosis.FactContent, []diagnosis.Fact{diagnosis.FactResourceTypes}, (*collection).readContent},
		{diagnosis.FactProgress, []diagnosis.Fact{diagnosis.FactContent}, (*collection).readProgress},
		{
			diagnosis.FactDirectDiscovery, []diagnosis.Fact{diagnosis.FactResourceTypes, diagnosis.FactContent},
			(*collection).discoverDirectly,
		},
		{diagnosis.FactCRDs, []diagnosis.Fact{diagnosis.FactContent, diagnosis.FactCRDNames}, (*collection).readCRDs},
		{diagnosis.FactPods, []diagnosis.Fact{diagnosis.FactContent}, (*collection).readPods},
		{
			diagnosis.FactDryRuns, []diagnosis.Fact{diagnosis.FactContent, diagnosis.FactAPIServices},
			(*collection).makeDryRuns,
		},
		{
			diagnosis.FactReports, []diagnosis.Fact{diagnosis.FactContent, diagnosis.FactCRDNames},
			(*collection).readReports,
		},
		{diagnosis.FactLeases, []diagnosis.Fact{diagnosis.FactContent}, (*collection).readLeases},
		{diagnosis.FactWorkloads, []diagnosis.Fact{diagnosis.FactContent}, (*collection).readWorkloads},
		{
			diagnosis.FactClusterRoleBindings, []diagnosis.Fact{diagnosis.FactContent},
			(*collection).readClusterRoleBindingsOfOwners,
		},
		{diagnosis.FactClusterRoles, []diagnosis.Fact{diagnosis.FactContent}, (*collection).readClusterRolesOfOwners},
		{
			diagnosis.FactPermissions, []diagnosis.Fact{diagnosis.FactContent, diagnosis.FactAPIServices},
			(*collection).readPermissions,
		},
		{diagnosis.FactAdmission, []diagnosis.Fact{diagnosis.FactDryRuns}, (*collection).readAdmission},
		{
			diagnosis.FactAccessReviews,
			[]diagnosis.Fact{
				diagnosis.FactWorkloads, diagnosis.FactClusterRoles, diagnosis.FactClusterRoleBindings, diagnosis.FactCRDs,
			},
			(*collection).readAccessReviews,
		},
		{
			diagnosis.FactServiceAccounts,
			[]diagnosis.Fact{
				diagnosis.FactClusterRoles, diagnosis.FactClusterRoleBindings, diagnosis.FactCRDNames,
				diagnosis.FactInitializers,
			},
			(*collection).readServiceAccounts,
		},
		{
			diagnosis.FactBackends,
			[]diagnosis.Fact{
				diagnosis.FactAPIServices, diagnosis.FactDirectDiscovery, diagnosis.FactCRDs, diagnosis.FactAdmission,
			},
			(*collection).readBackends,
		},
	},
}

// run runs the steps for the needed facts and for the facts that these steps use. It runs a step when
// all facts that the step uses are collected, and runs such steps in parallel.
func (c *collection) run(ctx context.Context, all []step, needs []diagnosis.Fact) {
	pending := selectSteps(all, needs)
	for len(pending) > 0 {
		isPending := func(fact diagnosis.Fact) bool {
			return slices.ContainsFunc(pending, func(other step) bool { return other.fact == fact })
		}
		var ready, later []step
		for _, next := range pending {
			if slices.ContainsFunc(next.after, isPending) {
				later = append(later, next)
			} else {
				ready = append(ready, next)
			}
		}
		inParallel(ready, func(next step) { next.collect(c, ctx) })
		pending = later
	}
}

// selectSteps returns the steps for the given facts and for the facts that these steps use, in the
// order of all steps.
func selectSteps(all []step, facts []diagnosis.Fact) []step {
	isNeeded := map[diagnosis.Fact]bool{}
	for _, fact := range facts {
		isNeeded[fact] = true
	}
	var selected []step
	for _, one := range slices.Backward(all) {
		if !isNeeded[one.fact] {
			continue
		}
		for _, fact := range one.after {
			isNeeded[fact] = true
		}
		selected = append(selected, one)
	}
	slices.Reverse(selected)
	return selected
}
