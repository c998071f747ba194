// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The comparison is fair only if all contenders create the same objects.
func TestContendersCreateTheSameObjects(t *testing.T) {
	const pods = 42
	want, err := makeObjects("alice", pods)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != int(kinds) {
		t.Fatalf("There are %d objects, but the observer expects %d", len(want), kinds)
	}
	spec, err := makeTemplate(pods, v1alpha1.WaitForApplied)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := makePolicy(pods)
	if err != nil {
		t.Fatal(err)
	}
	generated, _, err := unstructured.NestedSlice(policy.Object, "spec", "generate")
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := unstructured.NestedString(generated[0].(map[string]any), "template", "value")
	if err != nil {
		t.Fatal(err)
	}
	// Evaluates the expressions for the creator and the name of the namespace.
	evaluate := strings.NewReplacer("${ns.annotations['"+ownerAnnotation+"']}", "alice", "(( object.metadata.name ))", "a-namespace",
		`(( object.metadata.annotations["`+ownerAnnotation+`"] ))`, "alice").Replace
	documents := strings.Split(value, "---\n")
	for i, object := range want {
		var templated, policed map[string]any
		if err := json.Unmarshal([]byte(evaluate(string(spec.Objects[i].Template.Raw))), &templated); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(evaluate(documents[i])), &policed); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(templated, object.Object) {
			t.Errorf("The template contains %v, want %v", templated, object.Object)
		}
		object.SetNamespace("a-namespace")
		if !reflect.DeepEqual(policed, object.Object) {
			t.Errorf("The policy contains %v, want %v", policed, object.Object)
		}
	}
}

func TestObserver(t *testing.T) {
	o := &observer{states: map[string]*state{}, trackers: map[*tracker]bool{}}
	meta := func(uid, version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "a", Name: objectName, UID: types.UID(uid), ResourceVersion: version}
	}
	complete, initialized := o.track((*state).isComplete, "a"), o.track((*state).isInitialized, "a")
	initializing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{v1alpha1.LabelInitializing: "true"},
	}}
	o.observe(initializing, true)
	o.observe(&corev1.LimitRange{ObjectMeta: meta("1", "10")}, true)
	quota := &corev1.ResourceQuota{ObjectMeta: meta("2", "11")}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	o.observe(quota, true)
	o.observe(&networkingv1.NetworkPolicy{ObjectMeta: meta("3", "12")}, true)
	other := meta("4", "13")
	other.Name = "other"
	o.observe(&rbacv1.RoleBinding{ObjectMeta: other}, true)
	if len(complete.met) != 0 {
		t.Error("The namespace is complete without its RoleBinding")
	}
	o.observe(&rbacv1.RoleBinding{ObjectMeta: meta("5", "14")}, true)
	if len(complete.met) != 1 || len(initialized.met) != 0 {
		t.Error("The namespace must be complete, but not initialized, while it is initializing")
	}
	initializing.Labels = nil
	o.observe(initializing, true)
	select {
	case <-initialized.done:
	default:
		t.Error("The namespace must be initialized without the label")
	}
	s := o.get("a")
	if s.isEnforced() {
		t.Error("The quota must not be enforced without a status")
	}
	quota.Status.Hard, quota.ResourceVersion = quota.Spec.Hard, "15"
	o.observe(quota, true)
	if s = o.get("a"); !s.isEnforced() || s.objects[resourceQuota].created != 11 || s.objects[resourceQuota].version != 15 {
		t.Errorf("The quota was observed as %+v", s)
	}
	o.observe(quota, false)
	if s = o.get("a"); s.isComplete() {
		t.Error("The namespace is complete without its quota")
	}
	if late := o.track(func(s *state) bool { return s.initialized }, "a", "b"); len(late.met) != 1 {
		t.Error("A new tracker must use what is known")
	}
}

func TestGoals(t *testing.T) {
	at := func(milliseconds ...int) []time.Duration {
		var samples []time.Duration
		for _, one := range milliseconds {
			samples = append(samples, time.Duration(one)*time.Millisecond)
		}
		return samples
	}
	floor := results{crowds: map[int][]crowd{10: {{total: 10, complete: 10, took: time.Second, serverCPU: time.Second}}}}
	good := results{
		initialized: at(50, 60), deleted: at(5), early: map[int][]int{1: {0, 0}}, steady: time.Minute,
		crowds: map[int][]crowd{10: {{
			total: 10, complete: 10, took: 2 * time.Second, serverCPU: time.Second, controllerCPU: time.Second,
			requests: harness.Counts{"PATCH": 90}, memory: 120 << 20,
		}}},
		changes: []change{{total: 200, updated: 200, took: 3 * time.Second, initialized: at(60)}},
	}
	for name, test := range map[string]struct {
		peer    time.Duration
		change  func(*results)
		missing []string
	}{
		"all met":         {peer: 55 * time.Millisecond},
		"slower than one": {peer: 54 * time.Millisecond, missing: []string{"One namespace: times the faster Kyverno"}},
		"incomplete and slow": {
			change: func(r *results) {
				r.crowds = map[int][]crowd{10: {{total: 10, complete: 9, took: 3 * time.Second}}}
			},
			missing: []string{"10 at once: incomplete", "10 at once: time, times the bare client"},
		},
		"not updated": {
			change:  func(r *results) { r.changes = []change{{total: 200, updated: 199, took: time.Second}} },
			missing: []string{"Changed template: not updated"},
		},
		"one early write": {
			change:  func(r *results) { r.early = map[int][]int{1: {0, 1}} },
			missing: []string{"Early writes, writers: 1"},
		},
		"one request": {
			change: func(r *results) { r.writes = 1 }, missing: []string{"Write requests while nothing changes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := good
			if test.change != nil {
				test.change(&own)
			}
			o := &outcome{results: map[string]*results{bareClient: &floor, ours: &own}, sizes: []int{10}}
			if test.peer > 0 {
				o.results[kyvernoPeer] = &results{initialized: []time.Duration{test.peer}}
				o.results[raisedKyverno] = &results{initialized: []time.Duration{2 * test.peer}}
			}
			if _, missed := goalTable(o.goals()); !reflect.DeepEqual(missed, test.missing) {
				t.Errorf("The missed goals are %q, want %q", missed, test.missing)
			}
		})
	}
}
