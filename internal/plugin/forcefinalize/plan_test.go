// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Namespace: "shop", UID: "1", State: diagnosis.StateTerminating, Result: diagnosis.Blocked, Summary: message,
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
	g := NewWithT(t)
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
	g.Expect(names).To(Equal([]string{"configmaps/a", "widgets.example.com/b", "widgets.example.com/c"}))
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
		refusal string
		targets []string
		heldBy  []string
		orphans []string

		objections []string
	}{
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
			refusal: "matches --resource=configmaps and has the finalizer",
		},
		"type without its group": {
			change:  func(state *clusterState) { state.objects = append(state.objects, terminating(widgets, "b", hold)) },
			wanted:  Removal{Finalizer: hold, Resources: []string{"widgets"}},
			targets: []string{"widgets.example.com/b"}, heldBy: held,
		},
		"finalizer of an object that does not exist": {
			wanted:  Removal{Finalizer: hold, Resources: []string{"configmaps/b"}},
			refusal: "matches --resource=configmaps/b and has the finalizer",
		},
		"finalizer that no object has": {
			wanted: Removal{Finalizer: "example.com/ho"}, allowed: everything,
			refusal: "no readable object in namespace \"shop\" has the finalizer example.com/ho;",
		},
		"finalizer of objects that are not terminating": {
			change: func(state *clusterState) { state.objects[0].IsTerminating = false },
			wanted: finalizer, allowed: everything, refusal: "is being deleted (configmaps/a)",
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
			objections: []string{"not proven to be absent (" + string(diagnosis.CauseFinalizerPending) + ": owner of example.com/hold no longer exists)"},
		},
		"finalizer whose owner might be active according to one of two findings": {
			change: func(state *clusterState) {
				state.diagnosis.Findings = append(state.diagnosis.Findings, diagnosis.Finding{
					Cause: diagnosis.CausePodFinalizer, Finalizer: hold, Message: "a pod",
				})
			},
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"not proven to be absent (" + string(diagnosis.CausePodFinalizer) + ": a pod)"},
		},
		"finalizer with the name of a namespace finalizer": {
			change: func(state *clusterState) { state.diagnosis = blockedBy(diagnosis.CauseNamespaceFinalizer, hold, "") },
			wanted: finalizer, targets: []string{"configmaps/a"}, heldBy: held,
			objections: []string{"there is no finding for the " + finalizer.String()},
		},
		"deletion that is not blocked": {
			change: func(state *clusterState) { state.diagnosis.Result = diagnosis.Progressing },
			wanted: kubernetes, allowed: Permissions{Orphan: true},
			heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)}, orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{"not known to be blocked (owner of example.com/hold no longer exists)"},
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
			objections: []string{"2 objects would be orphaned"},
		},
		"finalizer of the Namespace": {
			change: func(state *clusterState) {
				state.diagnosis = blockedBy(diagnosis.CauseNamespaceMetadataFinalizer, project, "")
			},
			wanted: Removal{MetadataFinalizer: project}, heldBy: held[1:],
		},
		"finalizer of the Namespace without a finding": {
			wanted: Removal{MetadataFinalizer: project}, heldBy: held[1:],
			objections: []string{"there is no finding for the " + describeMetadataFinalizer(project)},
		},
		"duplicate namespace finalizer kubernetes, with content": {
			change: func(state *clusterState) {
				state.namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, corev1.FinalizerKubernetes}
			},
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project)},
			orphans:    []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{"2 objects would be orphaned", "there is no finding for the " + kubernetes.String()},
		},
		"namespace finalizer kubernetes, without content": {
			change: func(state *clusterState) { state.objects = nil },
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			objections: []string{"there is no finding for the " + kubernetes.String()},
		},
		"all objections": {
			change: func(state *clusterState) {
				state.unread = []string{"listing widgets: forbidden"}
				state.diagnosis.Result = diagnosis.Progressing
			},
			wanted: kubernetes, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
			objections: []string{
				"2 objects would be orphaned", "some objects could not be read and might be missing from the plan (listing widgets: forbidden)",
				"not known to be blocked (owner of example.com/hold no longer exists)",
			},
		},
		"all objections, permitted": {
			change: func(state *clusterState) {
				state.unread = []string{"listing widgets: forbidden"}
				state.diagnosis.Result = diagnosis.Progressing
			},
			wanted: kubernetes, allowed: everything, heldBy: []string{describeMetadataFinalizer(project), describeNamespaceFinalizer(agent)},
			orphans: []string{"configmaps/a", "persistentvolumeclaims/disk"},
		},
		"namespace finalizer that does not exist": {
			wanted: Removal{NamespaceFinalizer: "example.com/age"}, allowed: everything,
			refusal: "does not have the ",
		},
		"namespace finalizer that is a metadata finalizer": {
			wanted: Removal{NamespaceFinalizer: project}, allowed: everything, refusal: "does not have the ",
		},
		"metadata finalizer that is a namespace finalizer": {
			wanted: Removal{MetadataFinalizer: agent}, allowed: everything, refusal: "does not have the ",
		},
		"initialized namespace": {
			change: func(state *clusterState) { state.namespace.DeletionTimestamp = nil },
			wanted: namespaceFinalizer, allowed: everything, refusal: "is not being deleted",
		},
		"recreated namespace": {
			change: func(state *clusterState) { state.namespace.UID = "2" },
			wanted: namespaceFinalizer, allowed: everything, refusal: "was recreated",
		},
		"kube-system": {
			change: func(state *clusterState) { state.namespace.Name = "kube-system" },
			wanted: namespaceFinalizer, allowed: everything, refusal: "is a system namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := stuckNamespace()
			if test.change != nil {
				test.change(state)
			}
			plan, err := computePlan(state, test.wanted, test.allowed)
			if test.refusal != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.refusal)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(namesOf(plan.Targets)).To(Equal(test.targets))
			g.Expect(plan.HeldBy).To(Equal(test.heldBy))
			g.Expect(namesOf(plan.Orphans)).To(Equal(test.orphans))
			objections := make([]any, len(test.objections))
			for i, objection := range test.objections {
				objections[i] = ContainSubstring(objection)
			}
			g.Expect(plan.Objections).To(HaveExactElements(objections...))
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
	g := NewWithT(t)
	plan, err := computePlan(stuckNamespace(), Removal{NamespaceFinalizer: "kubernetes"}, Permissions{})
	g.Expect(err).NotTo(HaveOccurred())
	expected := []string{
		"The orphaned objects remain in etcd after the namespace is deleted; they become visible again when a namespace " +
			"with the same name is created.", printer.Sentence("1 persistentvolumeclaims: " + orphanConsequences["persistentvolumeclaims"]),
		"A bucket.",
	}
	g.Expect(plan.Losses).To(Equal(expected))
	state := stuckNamespace()
	state.diagnosis.Findings[0].Finalizer = "another/one"
	plan, err = computePlan(state, Removal{Finalizer: hold}, Permissions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plan.Losses).To(HaveExactElements(ContainSubstring("are left behind")), "finalizer without a finding")
}

func TestComputeCandidates(t *testing.T) {
	g := NewWithT(t)
	state := stuckNamespace()
	state.objects = append(state.objects, terminating(configMaps, "b", hold), terminating(configMaps, "c", hold),
		terminating(configMaps, "d", hold), notDeleted(terminating(configMaps, "e", "not/deleted")))
	var actual []string
	for _, one := range computeCandidates(state) {
		actual = append(actual, one.Command+": "+one.Effect)
	}
	expected := []string{
		"kubectl nslifecycle finalize shop --finalizer=example.com/hold: removes the finalizer from " +
			"configmaps/a, configmaps/b, configmaps/c, and 1 more",
		"kubectl nslifecycle finalize shop --finalizer=other/one: removes the finalizer from configmaps/a",
		"kubectl nslifecycle finalize shop --metadata-finalizer=example.com/project: removes the finalizer from metadata.finalizers of the Namespace",
		"kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent: removes the finalizer from spec.finalizers of the Namespace",
		"kubectl nslifecycle finalize shop --namespace-finalizer=kubernetes --orphan: orphans the remaining objects (" + ListObjects(state.objects) + ")",
	}
	g.Expect(actual).To(Equal(expected))
}

func TestRemovalCommand(t *testing.T) {
	const unsafe = `nslifecycle finalize n --finalizer="a b"`
	if actual := (Removal{Finalizer: "a b"}).command("n"); shell.IsCommand(actual) || !strings.Contains(actual, unsafe) {
		t.Errorf("got %q", actual)
	}
}

func TestRender(t *testing.T) {
	g := NewWithT(t)
	state := stuckNamespace()
	state.objects = append(state.objects, notDeleted(terminating(configMaps, "b", hold)))
	plan, err := computePlan(state, Removal{Finalizer: hold}, Permissions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, text, _ := strings.Cut(Render(plan, printer.Palette{IsPlain: true}, noon), "Plan\n\n")
	expected := "" +
		"Remove: finalizer example.com/hold\n" +
		"  - from configmaps/a\n" +
		"Kept on objects that are not being deleted: configmaps/b\n" +
		printer.RenderTree([]printer.Branch{{Label: "Result", Text: textResult(plan)}}) +
		"Consequences:\n" +
		"  - A bucket.\n"
	g.Expect(text).To(Equal(expected))
	for _, held := range plan.HeldBy {
		g.Expect(textResult(plan)).To(ContainSubstring(held))
	}

	plan, err = computePlan(state, Removal{NamespaceFinalizer: "kubernetes"}, Permissions{})
	g.Expect(err).NotTo(HaveOccurred())
	plan.HeldBy = nil
	_, text, _ = strings.Cut(Render(plan, printer.Palette{IsPlain: true}, noon), "Plan\n\n")
	for _, expected := range []string{
		"Remove: " + describeNamespaceFinalizer("kubernetes") + "\n",
		"Result: " + textResult(plan) + "\n",
		"Orphaned objects (3):\n  - configmaps/a, configmaps/b\n" +
			"  - persistentvolumeclaims/disk\n",
	} {
		g.Expect(text).To(ContainSubstring(expected))
	}
}

func TestComputeChanges(t *testing.T) {
	for name, test := range map[string]struct {
		wanted   Removal
		change   func(*clusterState)
		expected []string
	}{
		"no change": {Removal{NamespaceFinalizer: "kubernetes"}, func(*clusterState) {}, nil},
		"modified Namespace": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.namespace.ResourceVersion = "101"
		}, []string{"the Namespace was modified"}},
		"recreated Namespace": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.namespace.UID, now.namespace.CreationTimestamp = "2", metav1.Time{Time: noon}
		}, []string{"the Namespace was recreated at " + noon.UTC().Format(time.RFC3339)}},
		"modified, deleted, created and unreadable orphans": {Removal{NamespaceFinalizer: "kubernetes"}, func(now *clusterState) {
			now.objects[0].ResourceVersion = "8"
			now.objects[1].UID = "another"
			now.unread = []string{"listing widgets: forbidden"}
		}, []string{
			"configmaps/a was modified", "persistentvolumeclaims/disk was deleted", "persistentvolumeclaims/disk was created",
			"some objects are no longer readable: listing widgets: forbidden",
		}},
		"modified Event": {Removal{NamespaceFinalizer: "kubernetes"}, func(now *clusterState) {
			now.objects[0].ResourceVersion, now.objects[0].Resource = "8", "events"
		}, nil},
		"deleted object that would not be orphaned": {Removal{NamespaceFinalizer: agent}, func(now *clusterState) {
			now.objects = now.objects[:1]
		}, nil},
		"modified target": {Removal{Finalizer: hold}, func(now *clusterState) {
			now.objects[0].ResourceVersion = "8"
		}, []string{"configmaps/a was modified"}},
		"modified Namespace and objects that are not targets": {Removal{Finalizer: hold}, func(now *clusterState) {
			now.namespace.ResourceVersion = "101"
			now.objects[1].ResourceVersion = "8"
			now.objects = append(now.objects, terminating(configMaps, "new"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			plan, err := computePlan(stuckNamespace(), test.wanted, Permissions{})
			g.Expect(err).NotTo(HaveOccurred())
			now := stuckNamespace()
			test.change(now)
			g.Expect(computeChanges(plan, now)).To(Equal(test.expected))
		})
	}
}

func TestRemovalPatch(t *testing.T) {
	g := NewWithT(t)
	patch, err := removalPatch("u", "7", []string{hold, "a/b", hold}, hold)
	g.Expect(err).NotTo(HaveOccurred())
	expected := `[{"op":"test","path":"/metadata/uid","value":"u"},` +
		`{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
		`{"op":"test","path":"/metadata/finalizers/2","value":"example.com/hold"},` +
		`{"op":"remove","path":"/metadata/finalizers/2"},` +
		`{"op":"test","path":"/metadata/finalizers/0","value":"example.com/hold"},` +
		`{"op":"remove","path":"/metadata/finalizers/0"}]`
	g.Expect(string(patch)).To(Equal(expected))
}

func TestWithAdvice(t *testing.T) {
	g := NewWithT(t)
	resource := schema.GroupResource{Resource: "configmaps"}
	for text, err := range map[string]error{
		"ask a cluster administrator": apierrors.NewForbidden(resource, "a", errors.New("User cannot patch")),
		"an admission policy or webhook denies": apierrors.NewForbidden(resource, "a",
			errors.New(`admission webhook "w" denied the request`)),
		"cannot call the webhook": apierrors.NewInternalError(errors.New("failed calling webhook")),
		"the object is invalid": apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"},
			"a", nil),
	} {
		g.Expect(withAdvice(err)).To(And(MatchError(err), MatchError(ContainSubstring(text))))
	}
	other := errors.New("another error")
	g.Expect(withAdvice(other)).To(BeIdenticalTo(other))
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
		NewWithT(t).Expect(isUnanswered(test.err)).To(Equal(test.expected), name)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
