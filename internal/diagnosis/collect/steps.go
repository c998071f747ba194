// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// step collects facts.
type step func(*collection, context.Context)

// steps lists the steps of each stage, in groups. Steps use only facts from earlier groups.
var steps = map[diagnosis.Stage][][]step{
	diagnosis.StageInitializing: {
		{(*collection).readClusterRoleBindings, (*collection).readClusterRoles, (*collection).readInitializers},
		{(*collection).readInitializerPods},
	},
	diagnosis.StageTerminating: {
		{
			(*collection).discover, (*collection).readAPIServices, (*collection).readCRDNames,
			(*collection).readInitializersOfFinalizers,
		},
		{(*collection).readContent},
		{
			(*collection).readProgress, (*collection).discoverDirectly, (*collection).readCRDs, (*collection).readPods,
			(*collection).makeDryRuns, (*collection).readReportedErrors, (*collection).readLeases,
			(*collection).readWorkloads, (*collection).readClusterRoleBindingsOfOwners,
		},
		{(*collection).readAdmission, (*collection).readAccessReviews, (*collection).readServiceAccounts},
		{(*collection).readBackends},
	},
}

// run runs one group of steps after the other, and the steps of a group in parallel.
func (c *collection) run(ctx context.Context, stage diagnosis.Stage) {
	for _, group := range steps[stage] {
		inParallel(group, func(collect step) { collect(c, ctx) })
	}
}
