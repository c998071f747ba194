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

// MayName reports whether findings may name, and depend on, objects of a namespace.
func (f *Facts) MayName(namespace string) bool {
	return !f.IsPublic || namespace == f.Namespace.Name
}

// UnlessPublic returns public if the findings are published, and text otherwise.
func (f *Facts) UnlessPublic(text, public string) string {
	if f.IsPublic {
		return public
	}
	return text
}

// Detail returns the end of a message, such as the text of an error. Public findings omit it, since
// it can name any object.
func (f *Facts) Detail(text string) string { return f.UnlessPublic(": "+OneLine(text), "") }

// ServiceName names the Service of a webhook or an aggregated API server.
func (f *Facts) ServiceName(name types.NamespacedName) string {
	if f.MayName(name.Namespace) {
		return "Service " + name.String()
	}
	return "its Service"
}

// Redact removes what must not be published. The first remedy of each finding names only objects
// of the namespace and cluster-scoped objects; the other remedies may name more.
func (f *Facts) Redact(findings []Finding) {
	for i := range findings {
		finding := &findings[i]
		finding.Evidence, finding.Remedies = nil, finding.Remedies[:min(len(finding.Remedies), 1)]
		finding.Objects = slices.DeleteFunc(finding.Objects, func(object Object) bool {
			return object.Namespace != "" && !f.MayName(object.Namespace)
		})
	}
}
