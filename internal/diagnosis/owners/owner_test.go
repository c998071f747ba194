// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import "testing"

func TestOf(t *testing.T) {
	for finalizer, domain := range map[string]string{
		"foo.example.com/bar": "foo.example.com", "finalizer.example.com": "example.com",
		"resources-finalizer.argocd.argoproj.io": "argocd.argoproj.io", "hold": "", "hold/it": "", "": "",
	} {
		if got := Of(finalizer, nil).Domain; got != domain {
			t.Errorf("domain of %q is %q, want %q", finalizer, got, domain)
		}
	}
	owner := Of("foo.example.com/bar", nil)
	for text, fit := range map[string]Match{
		"foo.example.com": StrongMatch, "x-foo.example.com/lock": StrongMatch, "foo-operator": WeakMatch, "food": NoMatch, "": NoMatch,
	} {
		if got := owner.match(text); got != fit {
			t.Errorf("%q matches %d, want %d", text, got, fit)
		}
	}
	// Many images are from this registry.
	registry := Of("records.cnrm.google.com/bar", nil)
	if got := registry.match("registry.k8s.io/google-containers/pause"); got != NoMatch {
		t.Errorf("the name of a registry matches %d", got)
	}
	if isRelated("resource.k8s.io", "snapshot.k8s.io") || isRelated("k8s.io", "x.k8s.io") || isRelated("", "") {
		t.Error("unrelated groups are related")
	}
	if !isRelated("sub.example.com", "example.com") || !isRelated("example.com", "sub.example.com") {
		t.Error("related groups are not related")
	}
}
