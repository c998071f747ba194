// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "github.com/nslifecycle/nslifecycle/internal/diagnosis"

// view adds methods to the facts: the rules, and queries that several rules share.
type view struct{ *diagnosis.Facts }

// terminatingRules are the rules for terminating namespaces, except findUnknown.
var terminatingRules = []func(view) []diagnosis.Finding{
	view.findDiscovery, view.findCRDs, view.findStorage, view.findAdmission, view.findFinalizers, view.findPods,
	view.findVolumes, view.findCloud, view.findForeground, view.findNamespaceFinalizers, view.findNamespaceController,
}

// find applies the rules for the stage of the namespace.
func (f view) find() []diagnosis.Finding {
	var findings []diagnosis.Finding
	switch diagnosis.StageOf(f.Namespace) {
	case diagnosis.StageInitializing:
		return f.findInitializer()
	case diagnosis.StageTerminating:
		for _, find := range terminatingRules {
			findings = append(findings, find(f)...)
		}
		if len(findings) == 0 {
			return f.findUnknown()
		}
	}
	return findings
}

// CanFind reports whether findings are possible, based only on the Namespace.
func CanFind(facts *diagnosis.Facts) bool {
	switch diagnosis.StageOf(facts.Namespace) {
	case diagnosis.StageInitializing:
		f := view{facts}
		return f.IsOverdue(f.turnBegan(diagnosis.PendingInitializers(f.Namespace)[0]))
	case diagnosis.StageTerminating:
		return true
	}
	return false
}
