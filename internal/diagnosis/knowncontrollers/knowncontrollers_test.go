// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package knowncontrollers

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDataIsComplete(t *testing.T) {
	controllers, err := decode()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range controllers {
		controller := &controllers[i]
		t.Run(controller.Name, func(t *testing.T) {
			if names[controller.Name] {
				t.Error("two controllers have this name")
			}
			names[controller.Name] = true
			expectSources(t, controller)
			if len(controller.Finalizers) == 0 {
				t.Error("no finalizers")
			}
			for _, finalizer := range controller.Finalizers {
				expectFinalizer(t, finalizer)
			}
			for _, workload := range controller.Workloads {
				kinds := []string{"Deployment", "StatefulSet", "DaemonSet", "Pod"}
				if !slices.Contains(kinds, workload.Kind) || len(workload.Labels) == 0 {
					t.Errorf("workload %q has kind %q and labels %v", workload.Name, workload.Kind, workload.Labels)
				}
			}
			for _, failure := range controller.Failures {
				expectFailure(t, failure)
			}
			for _, pause := range controller.Pauses {
				if pause.Annotation == "" && pause.Label == "" && pause.Field == "" {
					t.Error("a pause is empty")
				}
			}
		})
	}
}

var (
	sentence = regexp.MustCompile(`^[A-Z].*[^.]$`)
	commit   = regexp.MustCompile(`^[0-9a-f]{12}$`)
	project  = regexp.MustCompile(`^[\w-]+/[\w.-]+$`)
	source   = regexp.MustCompile(`^([\w-]+/[\w.-]+@[0-9a-f]{12}:)?[\w./-]+$`)
)

// expectSources expects that each fact has a source.
func expectSources(t *testing.T, controller *Controller) {
	t.Helper()
	if !project.MatchString(controller.Project) || !commit.MatchString(controller.Version) {
		t.Errorf("invalid project %q or version %q", controller.Project, controller.Version)
	}
	data, err := json.Marshal(controller)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"name", "project", "version", "sources", "outside", "namespaces"} {
		delete(fields, field)
	}
	for field := range fields {
		if controller.Sources[field] == "" {
			t.Errorf("%s has no source", field)
		}
	}
	for field, paths := range controller.Sources {
		if _, ok := fields[field]; !ok {
			t.Errorf("there is a source of %s, but no such fact", field)
		}
		for path := range strings.FieldsSeq(paths) {
			if !source.MatchString(path) {
				t.Errorf("source %q of %s is invalid", path, field)
			}
		}
	}
}

func expectFinalizer(t *testing.T, finalizer Finalizer) {
	t.Helper()
	name := finalizer.Name + finalizer.Prefix
	if (finalizer.Name == "") == (finalizer.Prefix == "") {
		t.Errorf("finalizer %q must have either a name or a prefix", name)
	}
	if !sentence.MatchString(finalizer.Loss) {
		t.Errorf("the loss of finalizer %s is not a sentence without a period: %q", name, finalizer.Loss)
	}
	for _, resource := range finalizer.Resources {
		if resource.Name == "" || strings.ToLower(resource.Name) != resource.Name || resource.Kind == "" {
			t.Errorf("finalizer %s has an invalid resource %+v", name, resource)
		}
	}
}

func expectFailure(t *testing.T, failure Failure) {
	t.Helper()
	forms := 0
	for _, is := range []bool{failure.Condition != "", failure.IsEvent, failure.Field != ""} {
		if is {
			forms++
		}
	}
	if forms != 1 || failure.Message == "" || failure.IsEvent && failure.Reason == "" {
		t.Errorf("invalid failure %+v", failure)
	}
}

func TestByFinalizer(t *testing.T) {
	tests := map[string]struct {
		finalizer, resource string
		controller          string
	}{
		"an unknown finalizer": {"example.com/hold", "widgets.example.com", ""},
		"a shared finalizer of one type": {
			"finalizers.fluxcd.io", "kustomizations.kustomize.toolkit.fluxcd.io", "Flux's kustomize-controller",
		},
		"a shared finalizer of another type": {
			"finalizers.fluxcd.io", "helmreleases.helm.toolkit.fluxcd.io", "Flux's helm-controller",
		},
		"a shared finalizer of an unknown type": {"finalizers.fluxcd.io", "widgets.example.com", ""},
		"a shared finalizer without a type":     {"finalizers.fluxcd.io", "", ""},
		"a finalizer without a type": {
			"longhorn.io", "", "the manager of Longhorn",
		},
		"a finalizer of a known type": {
			"finalizer.managedresource.crossplane.io", "objects.kubernetes.m.crossplane.io",
			"the Crossplane provider for Kubernetes",
		},
		"a finalizer of any other type": {
			"finalizer.managedresource.crossplane.io", "buckets.s3.aws.upbound.io", "a Crossplane provider",
		},
		"a finalizer with more types than the data contains": {
			"cnrm.cloud.google.com/finalizer", "computedisks.compute.cnrm.cloud.google.com",
			"the controller manager of Config Connector",
		},
		"a prefix": {
			"group.ingress.k8s.aws/web", "ingresses.networking.k8s.io", "the AWS Load Balancer Controller",
		},
		"a prefix of other types": {
			"snapshot.storage.kubernetes.io/new-protection", "widgets.example.com", "the snapshot controller",
		},
		"a name before a prefix": {
			"controller.cattle.io/namespace-auth", "namespaces", "Rancher",
		},
		"not a finalizer of a type": {"longhorn.io", "widgets.example.com", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			controller, finalizer, ok := ByFinalizer(test.finalizer, test.resource)
			if ok != (test.controller != "") {
				t.Fatalf("ok is %v", ok)
			}
			if !ok {
				return
			}
			if controller.Name != test.controller {
				t.Errorf("got %s", controller.Name)
			}
			if finalizer.Name != test.finalizer && !finalizer.hasPrefixOf(test.finalizer) {
				t.Errorf("got finalizer %+v", finalizer)
			}
		})
	}
}

// TestFinalizersAreUnique expects that no two controllers have the same finalizer on objects of the same type, and that
// a controller that has a finalizer twice is not ambiguous.
func TestFinalizersAreUnique(t *testing.T) {
	for _, controller := range All() {
		for _, finalizer := range controller.Finalizers {
			resources := finalizer.Resources
			if finalizer.canBeOn("widgets.example.com") {
				resources = append(slices.Clone(resources), Resource{Name: "widgets.example.com"})
			}
			for _, resource := range resources {
				found, _, ok := ByFinalizer(finalizer.Name+finalizer.Prefix, resource.Name)
				if !ok || found.Name != controller.Name {
					t.Errorf("%s on %s is not a finalizer of %s", finalizer.Name+finalizer.Prefix, resource.Name, controller.Name)
				}
			}
		}
	}
}
