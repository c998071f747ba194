// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const (
	hold    = "example.com/hold"
	agent   = "example.com/agent"
	project = "example.com/project"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func plainScreen() printer.Screen {
	return printer.Screen{Columns: 500, Colors: printer.Palette{IsPlain: true}, Now: noon}
}

var (
	configMaps = resourceType("", "configmaps", "ConfigMap")
	widgets    = resourceType("example.com", "widgets", "Widget")
	claims     = resourceType("", "persistentvolumeclaims", "PersistentVolumeClaim")
)

func resourceType(group, resource, kind string) resourcetypes.Type {
	return resourcetypes.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Kind:                 kind, Verbs: []string{"create", "delete", "list"},
	}
}

// terminating returns an object with a deletionTimestamp.
func terminating(of resourcetypes.Type, name string, finalizers ...string) RemainingObject {
	return RemainingObject{
		Resource: of.String(), Kind: of.Kind, Name: name, UID: types.UID("uid-of-" + name),
		ResourceVersion: "7", Finalizers: finalizers, IsTerminating: true, resourceType: of,
	}
}

func notDeleted(object RemainingObject) RemainingObject {
	object.IsTerminating = false
	return object
}

// blockedBy returns a diagnosis of a namespace that is blocked by a finalizer whose owner no longer
// exists.
func blockedBy(cause diagnosis.Cause, finalizer, loss string) *diagnosis.Diagnosis {
	message := "owner of " + finalizer + " no longer exists"
	return &diagnosis.Diagnosis{
		Namespace: "shop", UID: "1", Stage: diagnosis.StageTerminating, State: diagnosis.Blocked, Summary: message,
		Findings: []diagnosis.Finding{{
			Cause: cause, Rank: diagnosis.RankProven, Message: message, Loss: loss, Finalizer: finalizer, OwnerState: diagnosis.OwnerAbsent,
		}},
	}
}

// stuckNamespace returns a namespace with a terminating ConfigMap, which is blocked by a finalizer
// whose owner no longer exists, and a PersistentVolumeClaim without a deletionTimestamp.
func stuckNamespace() *clusterState {
	return &clusterState{
		namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: "shop", UID: "1", ResourceVersion: "100", DeletionTimestamp: &metav1.Time{Time: noon},
				Finalizers: []string{project},
			},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes, agent}},
		},
		diagnosis: blockedBy(diagnosis.CauseFinalizerOwnerNotFound, hold, "a bucket"),
		objects:   []RemainingObject{terminating(configMaps, "a", "other/one", hold), notDeleted(terminating(claims, "disk"))},
		types:     []resourcetypes.Type{configMaps, claims, widgets},
	}
}

// TestObjectsWithoutUID verifies that objects of aggregated API servers are distinguished by their names.
func TestObjectsWithoutUID(t *testing.T) {
	object := func(name string, uid types.UID) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: name}}
	}
	state := &clusterState{namespace: &corev1.Namespace{}}
	state.addContents([]resourcetypes.Content{
		{Type: configMaps, Objects: []metav1.PartialObjectMetadata{object("a", "1")}},
		{Type: widgets, Objects: []metav1.PartialObjectMetadata{object("a", "1"), object("b", ""), object("c", "")}},
	})
	var names []string
	for i := range state.objects {
		names = append(names, state.objects[i].String())
	}
	if diff := cmp.Diff([]string{"configmaps/a", "widgets.example.com/b", "widgets.example.com/c"}, names); diff != "" {
		t.Error(diff)
	}
	plan := &Plan{Removal: &Removal{NamespaceFinalizer: "kubernetes"}, Orphans: state.objects}
	if changes := computeChanges(plan, state); changes != nil {
		t.Errorf("got changes %q", changes)
	}
}

func TestComputePlan(t *testing.T) {
	everything := Permissions{Orphan: true, AllowUnread: true, IgnoreActiveOwner: true}
	finalizer, namespaceFinalizer := Removal{Finalizer: hold}, Removal{NamespaceFinalizer: agent}
	kubernetes := Removal{NamespaceFinalizer: "kubernetes"}
	held := []string{describeMetadataFinalizer(project), describeNamespaceFinalizer("kubernetes"), describeNamespaceFinalizer(agent)}
	for name, test := range map[string]struct {
		change  func(*clusterState)
		wanted  Removal
		allowed Permissions
		// refusal is the expected error if no permission allows the removal.
		refusal error
		targets []string
		heldBy  []string
		orphans []string

		objections []string
	}{
		"finalizer of an object": {
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer of objects of one type": {
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps"}},
			targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer of an object that two values select": {
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps", "configmaps/a"}},
			targets: []string{"configmaps/a"}, heldBy: held,
		},
		"type with the same name as a type without a group": {
			change: func(state *clusterState) {
				state.objects = append(state.objects, terminating(resourceType("example.com", "configmaps", "ConfigMap"), "b", hold))
			},
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps"}},
			targets: []string{"configmaps/a"}, heldBy: held,
		},
		"type with the same name as a type without a group that has no objects": {
			change: func(state *clusterState) {
				state.objects = []RemainingObject{terminating(resourceType("example.com", "configmaps", "ConfigMap"), "b", hold)}
			},
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps"}},
			refusal: errNoObjectSelected("shop", hold, "configmaps"),
		},
		"type without its group": {
			change:  func(state *clusterState) { state.objects = append(state.objects, terminating(widgets, "b", hold)) },
			wanted:  Removal{Finalizer: hold, Resources: []string{"widgets"}},
			targets: []string{"widgets.example.com/b"}, heldBy: held,
		},
		"finalizer that no object of a selected type has": {
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps", "widgets.example.com"}},
			refusal: errNoObjectSelected("shop", hold, "widgets.example.com"),
		},
		"finalizer of an object that does not exist": {
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps/b"}},
			refusal: errNoObjectSelected("shop", hold, "configmaps/b"),
		},
		"finalizer that no object has": {
			wanted: Removal{Finalizer: "example.com/ho"}, allowed: everything,
			refusal: errNoObjectWithFinalizer("shop", "example.com/ho"),
		},
		"finalizer of objects that are not terminating": {
			change: func(state *clusterState) { state.objects[0].IsTerminating = false },
			wanted: finalizer, allowed: everything, refusal: errNoObjectTerminating(hold, []RemainingObject{notDeleted(terminating(configMaps, "a", "other/one", hold))}),
		},
		"finalizer of terminating and of other objects": {
			change: func(state *clusterState) {
				state.objects = append(state.objects, notDeleted(terminating(configMaps, "b", hold)))
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer whose owner might be active": {
			change: func(state *clusterState) {
				state.diagnosis.Findings[0].Cause = diagnosis.CauseFinalizerPending
				state.diagnosis.Findings[0].OwnerState = diagnosis.OwnerNotFound
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{objectionActiveOwner(reasonOwnerNotGone(&finalizer, &diagnosis.Finding{
				Cause: diagnosis.CauseFinalizerPending, Message: "owner of example.com/hold no longer exists",
			}))},
		},
		"finalizer whose owner might be active according to one of two findings": {
			change: func(state *clusterState) {
				state.diagnosis.Findings = append(state.diagnosis.Findings, diagnosis.Finding{
					Cause: diagnosis.CausePodFinalizer, Finalizer: hold, Message: "a pod",
				})
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{objectionActiveOwner(reasonOwnerNotGone(&finalizer, &diagnosis.Finding{
				Cause: diagnosis.CausePodFinalizer, Message: "a pod",
			}))},
		},
		"finalizer with the name of a namespace finalizer": {
			change: func(state *clusterState) { state.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, hold, "") },
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{objectionActiveOwner(reasonNoFinding(&finalizer))},
		},
		"finalizer without a finding": {
			change: func(state *clusterState) { state.diagnosis.Findings[0].Finalizer = "example.com/hold-more" },
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{objectionActiveOwner(reasonNoFinding(&finalizer))},
		},
		"deletion that is not blocked": {
			change: func(state *clusterState) { state.diagnosis.State = diagnosis.Progressing },
			wanted: kubernetes, allowed: Permissions{Orphan: true},
			heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)}, orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{objectionActiveOwner(reasonNotBlocked("owner of example.com/hold no longer exists"))},
		},
		"namespace finalizer, kubernetes remains": {
			change: func(state *clusterState) { state.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, agent, "") },
			wanted: namespaceFinalizer, heldBy: held[:2],
		},
		"namespace finalizer, kubernetes already removed": {
			change: func(state *clusterState) {
				state.namespace.Spec.Finalizers = []corev1.FinalizerName{agent}
				state.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, agent, "")
			},
			wanted: namespaceFinalizer, heldBy: held[:1], orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{objectionOrphans(2)},
		},
		"finalizer of the Namespace": {
			change: func(state *clusterState) {
				state.diagnosis = blockedBy(diagnosis.CauseNamespaceMetadataFinalizer, project, "")
			},
			wanted: Removal{MetadataFinalizer: project}, heldBy: held[1:],
		},
		"finalizer of the Namespace without a finding": {
			wanted: Removal{MetadataFinalizer: project}, heldBy: held[1:],
			objections: []string{objectionActiveOwner(reasonNoFinding(&Removal{MetadataFinalizer: project}))},
		},
		"namespace finalizer kubernetes, with content": {
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{objectionOrphans(2), objectionActiveOwner(reasonNoFinding(&kubernetes))},
		},
		"duplicate namespace finalizer kubernetes, with content": {
			change: func(state *clusterState) {
				state.namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, corev1.FinalizerKubernetes}
			},
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project)},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{objectionOrphans(2), objectionActiveOwner(reasonNoFinding(&kubernetes))},
		},
		"namespace finalizer kubernetes, without content": {
			change: func(state *clusterState) { state.objects = nil },
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			objections: []string{objectionActiveOwner(reasonNoFinding(&kubernetes))},
		},
		"all objections": {
			change: func(state *clusterState) {
				state.unread = []string{"listing widgets: forbidden"}
				state.diagnosis.State = diagnosis.Progressing
			},
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{
				objectionOrphans(2), objectionUnread([]string{"listing widgets: forbidden"}),
				objectionActiveOwner(reasonNotBlocked("owner of example.com/hold no longer exists")),
			},
		},
		"all objections, permitted": {
			change: func(state *clusterState) {
				state.unread = []string{"listing widgets: forbidden"}
				state.diagnosis.State = diagnosis.Progressing
			},
			wanted: kubernetes, allowed: everything, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
		},
		"namespace finalizer that does not exist": {
			wanted: Removal{NamespaceFinalizer: "example.com/age"}, allowed: everything,
			refusal: errNoSuchFinalizer("shop", Removal{NamespaceFinalizer: "example.com/age"}, held),
		},
		"namespace finalizer that is a metadata finalizer": {
			wanted: Removal{NamespaceFinalizer: project}, allowed: everything, refusal: errNoSuchFinalizer("shop", Removal{NamespaceFinalizer: project}, held),
		},
		"metadata finalizer that is a namespace finalizer": {
			wanted: Removal{MetadataFinalizer: agent}, allowed: everything, refusal: errNoSuchFinalizer("shop", Removal{MetadataFinalizer: agent}, held),
		},
		"active namespace": {
			change: func(state *clusterState) { state.namespace.DeletionTimestamp = nil },
			wanted: namespaceFinalizer, allowed: everything, refusal: errNotTerminating("shop"),
		},
		"recreated namespace": {
			change: func(state *clusterState) { state.namespace.UID = "2" },
			wanted: namespaceFinalizer, allowed: everything, refusal: errRecreated("shop"),
		},
		"default": {
			change: func(state *clusterState) { state.namespace.Name = "default" },
			wanted: namespaceFinalizer, allowed: everything, refusal: errSystemNamespace("default"),
		},
		"kube-node-lease": {
			change: func(state *clusterState) { state.namespace.Name = "kube-node-lease" },
			wanted: namespaceFinalizer, allowed: everything, refusal: errSystemNamespace("kube-node-lease"),
		},
		"kube-system": {
			change: func(state *clusterState) { state.namespace.Name = "kube-system" },
			wanted: namespaceFinalizer, allowed: everything, refusal: errSystemNamespace("kube-system"),
		},
		"kube-public": {
			change: func(state *clusterState) { state.namespace.Name = "kube-public" },
			wanted: namespaceFinalizer, allowed: everything, refusal: errSystemNamespace("kube-public"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := stuckNamespace()
			if test.change != nil {
				test.change(state)
			}
			plan, err := computePlan(state, test.wanted, test.allowed)
			if test.refusal != nil {
				if err == nil || err.Error() != test.refusal.Error() {
					t.Fatalf("got %v, want %q", err, test.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for what, diff := range map[string]string{
				"targets":    cmp.Diff(test.targets, namesOf(plan.Targets)),
				"held by":    cmp.Diff(test.heldBy, plan.HeldBy),
				"orphans":    cmp.Diff(test.orphans, namesOf(plan.Orphans)),
				"objections": cmp.Diff(test.objections, plan.Objections),
			} {
				if diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
		})
	}
}

func namesOf(objects []RemainingObject) []string {
	var names []string
	for i := range objects {
		names = append(names, objects[i].String())
	}
	return names
}

func TestComputeLosses(t *testing.T) {
	plan, err := computePlan(stuckNamespace(), Removal{NamespaceFinalizer: "kubernetes"}, Permissions{})
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{
		printer.Sentence(lossOrphans), printer.Sentence("1 persistentvolumeclaims: " + orphanConsequences["persistentvolumeclaims"]),
		"A bucket.",
	}
	if diff := cmp.Diff(expected, plan.Losses); diff != "" {
		t.Error(diff)
	}
	state := stuckNamespace()
	state.diagnosis.Findings[0].Finalizer = "another/one"
	if plan, err = computePlan(state, Removal{Finalizer: hold}, Permissions{}); err != nil {
		t.Fatal(err)
	}
	if len(plan.Losses) != 1 || plan.Losses[0] != printer.Sentence(lossUnknownFinalizer) {
		t.Errorf("finalizer without a finding: got %q", plan.Losses)
	}
}

func TestComputeCandidates(t *testing.T) {
	state := stuckNamespace()
	state.objects = append(state.objects, terminating(configMaps, "b", hold), terminating(configMaps, "c", hold),
		terminating(configMaps, "d", hold), notDeleted(terminating(configMaps, "e", "not/deleted")))
	var actual []string
	for _, one := range computeCandidates(state) {
		actual = append(actual, one.Command+": "+one.Effect)
	}
	expected := []string{
		"kubectl nslifecycle finalize shop --finalizer=example.com/hold: " +
			effectObjects([]RemainingObject{state.objects[0], state.objects[2], state.objects[3], state.objects[4]}),
		"kubectl nslifecycle finalize shop --finalizer=other/one: " + effectObjects(state.objects[:1]),
		"kubectl nslifecycle finalize shop --metadata-finalizer=example.com/project: " + effectMetadataFinalizer,
		"kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent: " + effectNamespaceFinalizer,
		"kubectl nslifecycle finalize shop --namespace-finalizer=kubernetes --orphan: " + effectAbandonContent(state.objects),
	}
	if diff := cmp.Diff(expected, actual); diff != "" {
		t.Error(diff)
	}
}

func TestListObjects(t *testing.T) {
	objects := []RemainingObject{terminating(claims, "disk")}
	for _, name := range []string{"d", "c", "b", "a"} {
		objects = append(objects, terminating(configMaps, name))
	}
	const expected = "configmaps/a, configmaps/b, configmaps/c, and 1 more; persistentvolumeclaims/disk"
	if actual := ListObjects(objects); actual != expected {
		t.Errorf("got %q", actual)
	}
	if actual := (&RemainingObject{Resource: "roles", Name: "a, b\n"}).String(); actual != `roles/"a, b\n"` {
		t.Errorf("got %s", actual)
	}
}

func TestRemovalCommand(t *testing.T) {
	const expected = "kubectl nslifecycle finalize n --namespace-finalizer=a/b --orphan"
	if actual := (Removal{NamespaceFinalizer: "a/b"}).command("n", "--"+FlagOrphan); actual != expected {
		t.Errorf("got %q", actual)
	}
	const unsafe = `nslifecycle finalize n --finalizer="a b"`
	if actual := (Removal{Finalizer: "a b"}).command("n"); shell.IsCommand(actual) || !strings.Contains(actual, unsafe) {
		t.Errorf("got %q", actual)
	}
}

func TestRender(t *testing.T) {
	state := stuckNamespace()
	state.objects = append(state.objects, notDeleted(terminating(configMaps, "b", hold)))
	plan, err := computePlan(state, Removal{Finalizer: hold}, Permissions{})
	if err != nil {
		t.Fatal(err)
	}
	plan.Backup = "shop.yaml"
	_, text, _ := strings.Cut(Render(plan, plainScreen()), headingPlan+"\n\n")
	expected := "" +
		labelRemove + ": finalizer example.com/hold\n" +
		"  - from configmaps/a\n" +
		labelNotDeleted + ": configmaps/b\n" +
		labelResult + ": " + textResult(plan) + "\n" +
		labelLosses + ":\n" +
		"  - A bucket.\n" +
		labelBackup + ": " + textBackup(plan) + "\n"
	if diff := cmp.Diff(expected, text); diff != "" {
		t.Error(diff)
	}
	for _, held := range plan.HeldBy {
		if !strings.Contains(textResult(plan), held) {
			t.Errorf("%q not found in %q", held, textResult(plan))
		}
	}
	for _, value := range []string{"shop.yaml", "3 objects"} {
		if !strings.Contains(textBackup(plan), value) {
			t.Errorf("%q not found in %q", value, textBackup(plan))
		}
	}

	if plan, err = computePlan(state, Removal{NamespaceFinalizer: "kubernetes"}, Permissions{}); err != nil {
		t.Fatal(err)
	}
	plan.HeldBy = nil
	_, text, _ = strings.Cut(Render(plan, plainScreen()), headingPlan+"\n\n")
	for _, expected := range []string{
		labelRemove + ": " + describeNamespaceFinalizer("kubernetes") + "\n",
		labelResult + ": " + textResult(plan) + "\n",
		labelOrphans(3) + ":\n  - configmaps/a, configmaps/b\n" +
			"  - persistentvolumeclaims/disk\n",
		labelBackup + ": " + textBackup(plan) + "\n",
	} {
		if !strings.Contains(text, expected) {
			t.Errorf("%q not found in\n%s", expected, text)
		}
	}
}

func TestComputeChanges(t *testing.T) {
	configMap, claim := &stuckNamespace().objects[0], &stuckNamespace().objects[1]
	for name, test := range map[string]struct {
		wanted   Removal
		change   func(*clusterState)
		expected []string
	}{
		"no change": {Removal{NamespaceFinalizer: "kubernetes"}, func(*clusterState) {}, nil},
		"modified Namespace": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.namespace.ResourceVersion = "101"
		}, []string{changeNamespaceModified}},
		"recreated Namespace": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.namespace.UID, now.namespace.CreationTimestamp = "2", metav1.Time{Time: noon}
		}, []string{changeRecreated(metav1.Time{Time: noon})}},
		"modified, deleted, created and unreadable orphans": {Removal{NamespaceFinalizer: "kubernetes"}, func(now *clusterState) {
			now.objects[0].ResourceVersion = "8"
			now.objects[1].UID = "another"
			now.unread = []string{"listing widgets: forbidden"}
		}, []string{
			changeModified(configMap), changeDeleted(claim), changeCreated(claim),
			changeUnreadable("listing widgets: forbidden"),
		}},
		"modified Event": {Removal{NamespaceFinalizer: "kubernetes"}, func(now *clusterState) {
			now.objects[0].ResourceVersion, now.objects[0].Resource = "8", "events"
		}, nil},
		"deleted object that would not be orphaned": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.objects = now.objects[:1]
		}, nil},
		"modified target": {Removal{Finalizer: hold}, func(now *clusterState) {
			now.objects[0].ResourceVersion = "8"
		}, []string{changeModified(configMap)}},
		"modified Namespace and objects that are not targets": {Removal{Finalizer: hold}, func(now *clusterState) {
			now.namespace.ResourceVersion = "101"
			now.objects[1].ResourceVersion = "8"
			now.objects = append(now.objects, terminating(configMaps, "new"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := computePlan(stuckNamespace(), test.wanted, Permissions{})
			if err != nil {
				t.Fatal(err)
			}
			now := stuckNamespace()
			test.change(now)
			if diff := cmp.Diff(test.expected, computeChanges(plan, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRemovalPatch(t *testing.T) {
	patch, err := removalPatch("u", "7", []string{hold, "a/b", hold}, hold)
	if err != nil {
		t.Fatal(err)
	}
	expected := `[{"op":"test","path":"/metadata/uid","value":"u"},` +
		`{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
		`{"op":"test","path":"/metadata/finalizers/2","value":"example.com/hold"},` +
		`{"op":"remove","path":"/metadata/finalizers/2"},` +
		`{"op":"test","path":"/metadata/finalizers/0","value":"example.com/hold"},` +
		`{"op":"remove","path":"/metadata/finalizers/0"}]`
	if diff := cmp.Diff(expected, string(patch)); diff != "" {
		t.Error(diff)
	}
}

func TestUnsaved(t *testing.T) {
	saved := &unstructured.Unstructured{}
	saved.SetGroupVersionKind(configMaps.GroupVersionKind())
	saved.SetName("a")
	missing := computeUnsaved([]RemainingObject{terminating(configMaps, "a"), terminating(configMaps, "b"), terminating(widgets, "a")},
		[]*unstructured.Unstructured{saved})
	all := []string{"configmaps/b", "widgets.example.com/a"}
	for name, test := range map[string]struct {
		now      *clusterState
		expected []string
	}{
		"all still exist":  {&clusterState{objects: []RemainingObject{*missing[0], *missing[1]}}, all},
		"one was deleted":  {&clusterState{objects: []RemainingObject{*missing[1]}}, all[1:]},
		"all were deleted": {&clusterState{}, nil},
		"unreadable type":  {&clusterState{unread: []string{"configmaps"}}, all},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.expected, filterExisting(missing, test.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithAdvice(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for text, err := range map[string]error{
		adviceForbidden: apierrors.NewForbidden(resource, "a", errors.New("User cannot patch")),
		adviceAdmissionDenied: apierrors.NewForbidden(resource, "a",
			errors.New(`admission webhook "w" denied the request`)),
		adviceWebhookFailing: apierrors.NewInternalError(errors.New("failed calling webhook")),
		adviceInvalid: apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"},
			"a", nil),
	} {
		if actual := withAdvice(err); !strings.Contains(actual.Error(), text) || !errors.Is(actual, err) {
			t.Errorf("%v", actual)
		}
	}
	if err := errors.New("another error"); !errors.Is(withAdvice(err), err) || withAdvice(err).Error() != err.Error() {
		t.Errorf("unexpected advice: %v", withAdvice(err))
	}
}

func TestCreateFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "backup.yaml")
	if err := createFile(name, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := createFile(name, []byte("second")); err == nil ||
		err.Error() != errBackupExists(name).Error() {
		t.Errorf("second file with the same name: got error %v", err)
	}
	text, err := os.ReadFile(name)
	if err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestIsUnanswered(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err      error
		expected bool
	}{
		"connection lost":   {fmt.Errorf("removing: %w", io.EOF), true},
		"interrupted":       {context.Canceled, true},
		"deadline exceeded": {context.DeadlineExceeded, true},
		"etcd timeout":      {apierrors.NewTimeoutError("etcdserver: request timed out", 1), true},
		"server timeout":    {apierrors.NewServerTimeout(resource, "patch", 1), true},
		"internal error":    {apierrors.NewInternalError(errors.New("rpc error")), true},
		"failed webhook":    {apierrors.NewInternalError(errors.New(`failed calling webhook "a"`)), false},
		"denying webhook":   {apierrors.NewInternalError(errors.New(`admission webhook "a" denied the request: x`)), false},
		"conflict":          {apierrors.NewConflict(resource, "a", errors.New("changed")), false},
		"forbidden":         {fmt.Errorf("removing: %w", apierrors.NewForbidden(resource, "a", nil)), false},
		"invalid":           {apierrors.NewInvalid(schema.GroupKind{}, "a", nil), false},
	} {
		if got := isUnanswered(test.err); got != test.expected {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
