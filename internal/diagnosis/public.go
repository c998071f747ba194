// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Public findings stand in conditions and Events of the Namespace, where users read them who
// cannot read other namespaces. They name objects of the namespace and cluster-scoped objects
// only, and quote no text of another program. What the workloads, ServiceAccounts and Leases of
// other namespaces look like does not change them: a user who names a finalizer after a guessed
// word must not learn whether the word occurs there.

// mayName reports whether findings may name, and depend on, objects of a namespace.
func (f *Facts) mayName(namespace string) bool {
	return !f.IsPublic || namespace == f.Namespace.Name
}

// unlessPublic returns a text, or the one to publish in its place.
func (f *Facts) unlessPublic(text, public string) string {
	if f.IsPublic {
		return public
	}
	return text
}

// detail returns what follows a sentence that ends here in public findings, such as the text of
// an error: that can name anything.
func (f *Facts) detail(text string) string { return f.unlessPublic(": "+oneLine(text), "") }

// service names the Service behind a webhook or an aggregated API server.
func (f *Facts) service(name types.NamespacedName) string {
	if f.mayName(name.Namespace) {
		return "Service " + name.String()
	}
	return "its Service"
}

// publish removes what public findings do not have. The first remedy of a finding names nothing
// outside of the namespace but cluster-scoped objects; others may.
func (f *Facts) publish(findings []Finding) {
	for i := range findings {
		finding := &findings[i]
		finding.Evidence, finding.Remedies = nil, finding.Remedies[:min(len(finding.Remedies), 1)]
		finding.Objects = slices.DeleteFunc(finding.Objects, func(object Object) bool {
			return object.Namespace != "" && !f.mayName(object.Namespace)
		})
	}
}
