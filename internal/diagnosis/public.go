// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Public findings are published in conditions and Events of the Namespace, where users who cannot
// read other namespaces can read them. They name only objects of the namespace and cluster-scoped
// objects, and quote no errors. They do not depend on workloads, ServiceAccounts and Leases of
// other namespaces: a user who uses a guessed word as the name of a finalizer must not learn
// whether it occurs there.

// mayName reports whether findings may name, and depend on, objects of a namespace.
func (f *Facts) mayName(namespace string) bool {
	return !f.IsPublic || namespace == f.Namespace.Name
}

// unlessPublic returns text, or public in its place if the findings are published.
func (f *Facts) unlessPublic(text, public string) string {
	if f.IsPublic {
		return public
	}
	return text
}

// detail returns the end of a message, such as the text of an error. Public findings omit it, since
// it can name any object.
func (f *Facts) detail(text string) string { return f.unlessPublic(": "+oneLine(text), "") }

// service names the Service behind a webhook or an aggregated API server.
func (f *Facts) service(name types.NamespacedName) string {
	if f.mayName(name.Namespace) {
		return "Service " + name.String()
	}
	return "its Service"
}

// publish removes what must not be published. The first remedy of each finding names only objects
// of the namespace and cluster-scoped objects; others may name more.
func (f *Facts) publish(findings []Finding) {
	for i := range findings {
		finding := &findings[i]
		finding.Evidence, finding.Remedies = nil, finding.Remedies[:min(len(finding.Remedies), 1)]
		finding.Objects = slices.DeleteFunc(finding.Objects, func(object Object) bool {
			return object.Namespace != "" && !f.mayName(object.Namespace)
		})
	}
}
