// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Public findings are published in conditions and Events of the Namespace, where users who cannot
// read other namespaces can read them. They name only objects in the namespace and cluster-scoped
// objects, and quote no errors. They do not depend on workloads, ServiceAccounts and Leases in
// other namespaces. Otherwise, a user could add a finalizer with a guessed name to determine whether
// this name exists in another namespace.

// MayName reports whether findings may name, and depend on, objects in a namespace.
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

// Detail returns text for the end of a message, such as an error. It returns "" for public findings,
// because the text can name any object.
func (f *Facts) Detail(text string) string { return f.UnlessPublic(": "+OneLine(text), "") }

// ServiceName returns a name for the Service of a webhook or an aggregated API server.
func (f *Facts) ServiceName(name types.NamespacedName) string {
	if f.MayName(name.Namespace) {
		return "Service " + name.String()
	}
	return "its Service"
}

// Redact removes what must not be published. It keeps the first remedy of each finding, which names
// only objects in the namespace and cluster-scoped objects. Other remedies can name other objects.
func (f *Facts) Redact(findings []Finding) {
	for i := range findings {
		finding := &findings[i]
		finding.Evidence, finding.Remedies = nil, finding.Remedies[:min(len(finding.Remedies), 1)]
		finding.Objects = slices.DeleteFunc(finding.Objects, func(object Object) bool {
			return object.Namespace != "" && !f.MayName(object.Namespace)
		})
	}
}
