// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

const (
	hold  = "example.com/hold"
	agent = "example.com/agent"
)

var (
	configMaps = servedType("", "configmaps", "ConfigMap")
	widgets    = servedType("example.com", "widgets", "Widget")
	claims     = servedType("", "persistentvolumeclaims", "PersistentVolumeClaim")
)

func servedType(group, resource, kind string) inventory.Type {
	return inventory.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Kind:                 kind, Verbs: []string{"create", "delete", "list"},
	}
}

// left is an object that is being deleted.
func left(served inventory.Type, name string, finalizers ...string) remnant {
	return remnant{
		Resource: served.String(), Kind: served.Kind, Name: name, UID: types.UID("uid-of-" + name),
		ResourceVersion: "7", Finalizers: finalizers, IsTerminating: true, served: served,
	}
}

func undeleted(object remnant) remnant {
	object.IsTerminating = false
	return object
}

// blockedBy is a diagnosis which says that the owner of a finalizer is gone.
func blockedBy(cause diagnosis.Cause, finalizer, loss string) *diagnosis.Diagnosis {
	message := "owner of " + finalizer + " is gone"
	return &diagnosis.Diagnosis{
		Namespace: "shop", UID: "1", Stage: diagnosis.StageTerminating, State: diagnosis.Blocked, Summary: message,
		Findings: []diagnosis.Finding{{
			Cause: cause, Certainty: diagnosis.Confirmed, Message: message, Loss: loss, Finalizer: finalizer, IsOwnerGone: true,
		}},
	}
}

// stuckNamespace has one object that is held by a finalizer whose owner is gone, and a
// claim that nobody has deleted.
func stuckNamespace() *predicament {
	return &predicament{
		namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: "shop", UID: "1", ResourceVersion: "100", DeletionTimestamp: &metav1.Time{Time: noon},
				Finalizers: []string{"example.com/project"},
			},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes, agent}},
		},
		diagnosis: blockedBy(diagnosis.CauseFinalizerOwnerGone, hold, "a bucket"),
		remnants:  []remnant{left(configMaps, "a", "other/one", hold), undeleted(left(claims, "disk"))},
	}
}

func TestPlanFinalize(t *testing.T) {
	everything := permits{isOrphaning: true, allowsUnread: true, isEvenIfAlive: true}
	finalizer, token := removal{Finalizer: hold}, removal{Token: agent}
	kubernetes := removal{Token: "kubernetes"}
	held := []string{"finalizer example.com/project", "token kubernetes", "token " + agent}
	for name, test := range map[string]struct {
		change  func(*predicament)
		wanted  removal
		allowed permits
		// refusal is part of the error, where no flag helps.
		refusal string
		targets []string
		heldBy  []string
		orphans []string
		// objections are parts of the objections, one of each.
		objections []string
	}{
		"finalizer of an object": {
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer of a type": {
			wanted:  removal{Finalizer: hold, Resources: []string{"configmaps"}},
			targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer of another type": {
			wanted:  removal{Finalizer: hold, Resources: []string{"configmaps", "widgets.example.com"}},
			refusal: "has finalizer example.com/hold and is selected by --resource=widgets.example.com",
		},
		"finalizer of another object": {
			wanted:  removal{Finalizer: hold, Resources: []string{"configmaps/b"}},
			refusal: "--resource=configmaps/b",
		},
		"finalizer that no object has": {
			wanted: removal{Finalizer: "example.com/ho"}, allowed: everything,
			refusal: "no object that could be read in namespace \"shop\" has finalizer example.com/ho",
		},
		"finalizer of objects that nobody has deleted": {
			change: func(facts *predicament) { facts.remnants[0].IsTerminating = false },
			wanted: finalizer, allowed: everything, refusal: "is being deleted yet",
		},
		"finalizer that some have who are not deleted": {
			change: func(facts *predicament) {
				facts.remnants = append(facts.remnants, undeleted(left(configMaps, "b", hold)))
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
		},
		"finalizer whose owner is not known to be gone": {
			change: func(facts *predicament) {
				facts.diagnosis.Findings[0].Cause = diagnosis.CauseFinalizerPending
				facts.diagnosis.Findings[0].IsOwnerGone = false
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"(FinalizerPending: owner of example.com/hold is gone); " + flagEvenIfAlive},
		},
		"finalizer with one finding of two that somebody may be there": {
			change: func(facts *predicament) {
				facts.diagnosis.Findings = append(facts.diagnosis.Findings, diagnosis.Finding{
					Cause: diagnosis.CausePodFinalizer, Finalizer: hold, Message: "a pod",
				})
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"(PodFinalizer: a pod); " + flagEvenIfAlive},
		},
		"finalizer with the name of a token": {
			change: func(facts *predicament) { facts.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, hold, "") },
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"no finding says that finalizer example.com/hold is stuck"},
		},
		"finalizer that no finding is about": {
			change: func(facts *predicament) { facts.diagnosis.Findings[0].Finalizer = "example.com/hold-more" },
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"no finding says that finalizer example.com/hold is stuck"},
		},
		"nothing is blocked": {
			change: func(facts *predicament) { facts.diagnosis.State = diagnosis.Progressing },
			wanted: kubernetes, allowed: permits{isOrphaning: true},
			heldBy: []string{"finalizer example.com/project", "token " + agent}, orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{"nothing is known to be wrong"},
		},
		"agent's token, and the content is deleted all the same": {
			change: func(facts *predicament) { facts.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, agent, "") },
			wanted: token, heldBy: held[:2],
		},
		"agent's token, and nobody deletes the content": {
			change: func(facts *predicament) {
				facts.namespace.Spec.Finalizers = []corev1.FinalizerName{agent}
				facts.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, agent, "")
			},
			wanted: token, heldBy: held[:1], orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{"2 objects would be left without a namespace"},
		},
		"finalizer of the Namespace": {
			change: func(facts *predicament) {
				facts.diagnosis = blockedBy(diagnosis.CauseNamespaceMetadataFinalizer, "example.com/project", "")
			},
			wanted: removal{NamespaceFinalizer: "example.com/project"}, heldBy: held[1:],
		},
		"finalizer of the Namespace that no finding is about": {
			wanted: removal{NamespaceFinalizer: "example.com/project"}, heldBy: held[1:],
			objections: []string{flagEvenIfAlive},
		},
		"the namespace's own token, with content": {
			wanted: kubernetes, heldBy: []string{"finalizer example.com/project", "token " + agent},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{flagOrphan},
		},
		"the namespace's own token, which is there twice, with content": {
			change: func(facts *predicament) {
				facts.namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, corev1.FinalizerKubernetes}
			},
			wanted: kubernetes, heldBy: []string{"finalizer example.com/project"},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{flagOrphan},
		},
		"the namespace's own token, without content": {
			change: func(facts *predicament) { facts.remnants = nil },
			wanted: kubernetes, heldBy: []string{"finalizer example.com/project", "token " + agent},
		},
		"everything at once": {
			change: func(facts *predicament) {
				facts.unread = []string{"listing widgets: forbidden"}
				facts.diagnosis.State = diagnosis.Progressing
			},
			wanted: kubernetes, heldBy: []string{"finalizer example.com/project", "token " + agent},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{flagOrphan, "(listing widgets: forbidden); " + flagAllowUnread, flagEvenIfAlive},
		},
		"everything at once, permitted": {
			change: func(facts *predicament) {
				facts.unread = []string{"listing widgets: forbidden"}
				facts.diagnosis.State = diagnosis.Progressing
			},
			wanted: kubernetes, allowed: everything, heldBy: []string{"finalizer example.com/project", "token " + agent},
			orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
		},
		"token that is not there": {
			wanted: removal{Token: "example.com/age"}, allowed: everything,
			refusal: "the Namespace \"shop\" has no token example.com/age in spec.finalizers of the Namespace; it has finalizer",
		},
		"token that is a finalizer": {
			wanted: removal{Token: "example.com/project"}, allowed: everything, refusal: "has no token example.com/project",
		},
		"finalizer of the Namespace that is a token": {
			wanted: removal{NamespaceFinalizer: agent}, allowed: everything, refusal: "has no finalizer " + agent,
		},
		"not being deleted": {
			change: func(facts *predicament) { facts.namespace.DeletionTimestamp = nil },
			wanted: token, allowed: everything, refusal: "is not being deleted",
		},
		"created anew": {
			change: func(facts *predicament) { facts.namespace.UID = "2" },
			wanted: token, allowed: everything, refusal: "was created anew while it was looked at",
		},
		"default": {
			change: func(facts *predicament) { facts.namespace.Name = "default" },
			wanted: token, allowed: everything, refusal: "no cluster can do without",
		},
		"kube-node-lease": {
			change: func(facts *predicament) { facts.namespace.Name = "kube-node-lease" },
			wanted: token, allowed: everything, refusal: "no cluster can do without",
		},
		"kube-system": {
			change: func(facts *predicament) { facts.namespace.Name = "kube-system" },
			wanted: token, allowed: everything, refusal: "no cluster can do without",
		},
		"kube-public": {
			change: func(facts *predicament) { facts.namespace.Name = "kube-public" },
			wanted: token, allowed: everything, refusal: "no cluster can do without",
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := stuckNamespace()
			if test.change != nil {
				test.change(facts)
			}
			planned, err := planFinalize(facts, test.wanted, test.allowed)
			if test.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), test.refusal) {
					t.Fatalf("expected %q, got %v", test.refusal, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for what, diff := range map[string]string{
				"targets": cmp.Diff(test.targets, namesOf(planned.Targets)),
				"held by": cmp.Diff(test.heldBy, planned.HeldBy),
				"orphans": cmp.Diff(test.orphans, namesOf(planned.Orphans)),
			} {
				if diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			if len(planned.Objections) != len(test.objections) {
				t.Fatalf("objections: %q", planned.Objections)
			}
			for i, expected := range test.objections {
				if !strings.Contains(planned.Objections[i], expected) {
					t.Errorf("expected %q in %q", expected, planned.Objections[i])
				}
			}
		})
	}
}

func namesOf(objects []remnant) []string {
	var names []string
	for i := range objects {
		names = append(names, objects[i].String())
	}
	return names
}

func TestLossesOf(t *testing.T) {
	planned, err := planFinalize(stuckNamespace(), removal{Token: "kubernetes"}, permits{})
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{
		"The orphans stay in storage, where no deletion of a namespace reaches them; " +
			"a new namespace with the same name has them in it.",
		"1 persistentvolumeclaims: their volumes stay, with what is on them and what they cost.",
		"A bucket.",
	}
	if diff := cmp.Diff(expected, planned.Losses); diff != "" {
		t.Error(diff)
	}
	facts := stuckNamespace()
	facts.diagnosis.Findings[0].Finalizer = "another/one"
	if planned, err = planFinalize(facts, removal{Finalizer: hold}, permits{}); err != nil {
		t.Fatal(err)
	}
	if len(planned.Losses) != 1 || !strings.Contains(planned.Losses[0], "Whatever the owner") {
		t.Errorf("nothing is known of the finalizer: %q", planned.Losses)
	}
}

func TestListCandidates(t *testing.T) {
	facts := stuckNamespace()
	facts.remnants = append(facts.remnants, left(configMaps, "b", hold), left(configMaps, "c", hold),
		left(configMaps, "d", hold), undeleted(left(configMaps, "e", "not/deleted")))
	var actual []string
	for _, one := range listCandidates(facts) {
		actual = append(actual, one.Command+": "+one.Effect)
	}
	expected := []string{
		"kubectl nslifecycle finalize shop --finalizer=example.com/hold: " +
			"takes it off configmaps/a, configmaps/b, configmaps/c, and 1 more",
		"kubectl nslifecycle finalize shop --finalizer=other/one: takes it off configmaps/a",
		"kubectl nslifecycle finalize shop --metadata-finalizer=example.com/project: takes it off the Namespace",
		"kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent: releases the token of an agent",
		"kubectl nslifecycle finalize shop --namespace-finalizer=kubernetes --orphan: gives up everything that is left, " +
			"configmaps/a, configmaps/b, configmaps/c, and 2 more; persistentvolumeclaims/disk: nobody deletes it any more",
	}
	if diff := cmp.Diff(expected, actual); diff != "" {
		t.Error(diff)
	}
}

func TestRenderPlan(t *testing.T) {
	facts := stuckNamespace()
	facts.remnants = append(facts.remnants, undeleted(left(configMaps, "b", hold)))
	planned, err := planFinalize(facts, removal{Finalizer: hold}, permits{})
	if err != nil {
		t.Fatal(err)
	}
	planned.Backup = "shop.yaml"
	_, text, _ := strings.Cut(renderPlan(planned, plainScreen()), "What it would do\n\n")
	expected := "" +
		"├── Remove: finalizer example.com/hold\n" +
		"│   └── from configmaps/a\n" +
		"├── Leave alone, since nobody has deleted them yet: configmaps/b\n" +
		"├── Afterwards: the object can go, unless another finalizer holds it; the Namespace is still held by " +
		"finalizer example.com/project, token kubernetes, token example.com/agent\n" +
		"├── What that means\n" +
		"│   └── A bucket.\n" +
		"└── Backup: shop.yaml, with the Namespace, 3 objects and what is secret in them\n"
	if diff := cmp.Diff(expected, text); diff != "" {
		t.Error(diff)
	}

	if planned, err = planFinalize(facts, removal{Token: "kubernetes"}, permits{}); err != nil {
		t.Fatal(err)
	}
	planned.HeldBy = nil
	_, text, _ = strings.Cut(renderPlan(planned, plainScreen()), "What it would do\n\n")
	for _, expected := range []string{
		"├── Remove: token kubernetes in spec.finalizers of the Namespace\n",
		"├── Afterwards: nothing holds the Namespace any more, and it is gone at once\n",
		"├── Orphans, left without a namespace: 3\n│   ├── configmaps/a, configmaps/b\n" +
			"│   └── persistentvolumeclaims/disk\n",
		"└── Backup: none\n",
	} {
		if !strings.Contains(text, expected) {
			t.Errorf("there is no %q in\n%s", expected, text)
		}
	}
}

func TestWhatChanged(t *testing.T) {
	for name, test := range map[string]struct {
		wanted   removal
		change   func(*predicament)
		expected []string
	}{
		"nothing": {removal{Token: "kubernetes"}, func(*predicament) {}, nil},
		"the Namespace": {removal{Token: agent}, func(now *predicament) {
			now.namespace.ResourceVersion = "101"
		}, []string{"the Namespace was written to"}},
		"another Namespace": {removal{Token: agent}, func(now *predicament) {
			now.namespace.UID, now.namespace.CreationTimestamp = "2", metav1.Time{Time: noon}
		}, []string{"the Namespace was created anew at 2026-03-01T12:00:00Z"}},
		"an orphan": {removal{Token: "kubernetes"}, func(now *predicament) {
			now.remnants[0].ResourceVersion = "8"
			now.remnants[1].UID = "another"
			now.unread = []string{"listing widgets: forbidden"}
		}, []string{
			"configmaps/a was written to", "persistentvolumeclaims/disk is gone", "persistentvolumeclaims/disk is new",
			"something cannot be read any more: listing widgets: forbidden",
		}},
		"an Event": {removal{Token: "kubernetes"}, func(now *predicament) {
			now.remnants[0].ResourceVersion, now.remnants[0].Resource = "8", "events"
		}, nil},
		"what the token does not orphan": {removal{Token: agent}, func(now *predicament) {
			now.remnants = now.remnants[:1]
		}, nil},
		"a target": {removal{Finalizer: hold}, func(now *predicament) {
			now.remnants[0].ResourceVersion = "8"
		}, []string{"configmaps/a was written to"}},
		"what is no target": {removal{Finalizer: hold}, func(now *predicament) {
			now.namespace.ResourceVersion = "101"
			now.remnants[1].ResourceVersion = "8"
			now.remnants = append(now.remnants, left(configMaps, "new"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			planned, err := planFinalize(stuckNamespace(), test.wanted, permits{})
			if err != nil {
				t.Fatal(err)
			}
			now := stuckNamespace()
			test.change(now)
			if diff := cmp.Diff(test.expected, whatChanged(planned, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPatchWithout(t *testing.T) {
	patch, err := patchWithout("u", "7", []string{hold, "a/b", hold}, hold)
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

func TestWhatIsMissing(t *testing.T) {
	saved := &unstructured.Unstructured{}
	saved.SetGroupVersionKind(configMaps.GroupVersionKind())
	saved.SetName("a")
	missing := notSaved([]remnant{left(configMaps, "a"), left(configMaps, "b"), left(widgets, "a")},
		[]*unstructured.Unstructured{saved})
	all := []string{"configmaps/b", "widgets.example.com/a"}
	for name, test := range map[string]struct {
		now      *predicament
		expected []string
	}{
		"all are still there":               {&predicament{remnants: []remnant{*missing[0], *missing[1]}}, all},
		"one has gone":                      {&predicament{remnants: []remnant{*missing[1]}}, all[1:]},
		"all have gone":                     {&predicament{}, nil},
		"nothing can be read of those left": {&predicament{unread: []string{"configmaps"}}, all},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.expected, stillThere(missing, test.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithAdvice(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for text, err := range map[string]error{
		"you lack this right": apierrors.NewForbidden(resource, "a", errors.New("User cannot patch")),
		"this rule does not allow it": apierrors.NewForbidden(resource, "a",
			errors.New(`admission webhook "w" denied the request`)),
		"the webhook does not answer": apierrors.NewInternalError(errors.New("failed calling webhook")),
		"the object is not valid any more": apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"},
			"a", nil),
	} {
		if actual := withAdvice(err); !strings.Contains(actual.Error(), text) || !errors.Is(actual, err) {
			t.Errorf("%v", actual)
		}
	}
	if err := errors.New("anything else"); !errors.Is(withAdvice(err), err) || withAdvice(err).Error() != err.Error() {
		t.Errorf("advice on %v", withAdvice(err))
	}
}

func TestCreateFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "backup.yaml")
	if err := createFile(name, []byte("first"), privateMode); err != nil {
		t.Fatal(err)
	}
	if err := createFile(name, []byte("second"), privateMode); err == nil ||
		!strings.Contains(err.Error(), "is not overwritten") {
		t.Errorf("a second file of the same name: %v", err)
	}
	text, err := os.ReadFile(name)
	if err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestEmptyResource(t *testing.T) {
	for _, flags := range [][]string{{"--resource="}, {"--resource", ""}} {
		command := newFinalizeCommand(newSession(genericiooptions.NewTestIOStreamsDiscard()))
		command.SetArgs(append([]string{"shop", "--finalizer=" + hold}, flags...))
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--resource is empty") {
			t.Errorf("%q: got %v", flags, err)
		}
	}
}

func TestIsUnanswered(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err      error
		expected bool
	}{
		"connection lost":    {fmt.Errorf("removing: %w", io.EOF), true},
		"interrupted":        {context.Canceled, true},
		"too late":           {context.DeadlineExceeded, true},
		"time-out of etcd":   {apierrors.NewTimeoutError("etcdserver: request timed out", 1), true},
		"time-out of server": {apierrors.NewServerTimeout(resource, "patch", 1), true},
		"internal":           {apierrors.NewInternalError(errors.New("rpc error")), true},
		"webhook":            {apierrors.NewInternalError(errors.New(`failed calling webhook "a"`)), false},
		"conflict":           {apierrors.NewConflict(resource, "a", errors.New("changed")), false},
		"forbidden":          {fmt.Errorf("removing: %w", apierrors.NewForbidden(resource, "a", nil)), false},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{}, "a", nil), false},
	} {
		if got := isUnanswered(test.err); got != test.expected {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
