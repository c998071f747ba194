// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import "testing"

func TestDomainOf(t *testing.T) {
	for finalizer, domain := range map[string]string{
		"foo.example.com/bar": "foo.example.com", "finalizer.example.com": "example.com",
		"resources-finalizer.argocd.argoproj.io": "argocd.argoproj.io", "hold": "", "hold/it": "", "": "",
	} {
		if got := domainOf(finalizer); got != domain {
			t.Errorf("domain of %q is %q, want %q", finalizer, got, domain)
		}
	}
}

func TestImageName(t *testing.T) {
	for image, name := range map[string]string{
		"registry.test:5000/a/operator:v1": "operator", "operator@sha256:0": "operator", "a/operator:v1@sha256:0": "operator",
		"operator": "operator", "": ".",
	} {
		if got := imageName(image); got != name {
			t.Errorf("name of image %q is %q, want %q", image, got, name)
		}
	}
}

func TestIdentifiesController(t *testing.T) {
	for manager, want := range map[string]bool{
		"widget-operator": true, "source-controller": true, "manager": false, "kubectl-edit": false, "helm": false,
		"argocd-controller": false, "kustomize-controller": false, "abc": false, "": false,
	} {
		if got := identifiesController(manager); got != want {
			t.Errorf("%q identifies a controller: %t, want %t", manager, got, want)
		}
	}
}
