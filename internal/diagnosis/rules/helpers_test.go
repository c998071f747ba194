// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// All facts were collected at the time now, long after the namespace was deleted.
var (
	now     = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	deleted = now.Add(-10 * time.Minute)
)

const (
	shop = "shop"
	held = "widgets.example.com/records"
)

var everyVerb = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

func makeType(group, resource, kind string) resourcetypes.Type {
	return resourcetypes.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Kind:                 kind, Verbs: everyVerb,
	}
}

var (
	configMaps  = makeType("", "configmaps", "ConfigMap")
	pods        = makeType("", "pods", "Pod")
	claims      = makeType("", "persistentvolumeclaims", "PersistentVolumeClaim")
	services    = makeType("", "services", "Service")
	deployments = makeType("apps", "deployments", "Deployment")
	replicaSets = makeType("apps", "replicasets", "ReplicaSet")
	widgets     = makeType("widgets.example.com", "widgets", "Widget")
)

// makeObject returns an object as the API server lists it.
func makeObject(name string, finalizers ...string) metav1.PartialObjectMetadata {
	object := metav1.PartialObjectMetadata{}
	object.Namespace, object.Name, object.UID = shop, name, types.UID("uid-of-"+name)
	object.Finalizers, object.ResourceVersion = finalizers, "7"
	return object
}

// makeDeleted returns an object that was deleted at the same time as the namespace.
func makeDeleted(name string, finalizers ...string) metav1.PartialObjectMetadata {
	object := makeObject(name, finalizers...)
	object.DeletionTimestamp = &metav1.Time{Time: deleted}
	return object
}

func contentOf(of resourcetypes.Type, objects ...metav1.PartialObjectMetadata) resourcetypes.Content {
	return resourcetypes.Content{Type: of, Objects: objects, Count: len(objects)}
}

func failing(of resourcetypes.Type, err error) resourcetypes.Content {
	return resourcetypes.Content{Type: of, Err: fmt.Errorf("listing %s: %w", of, err)}
}

func makeLease(namespace, name, holder string, renewed time.Time) coordinationv1.Lease {
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	lease.Spec.HolderIdentity = &holder
	lease.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	lease.Spec.LeaseDurationSeconds = new(int32(15))
	return lease
}

// makeTerminating returns facts about a namespace that was deleted long ago and that
// kube-controller-manager finalizes.
func makeTerminating(changes ...func(*diagnosis.Facts)) *diagnosis.Facts {
	facts := &diagnosis.Facts{
		Now: now, ProgressDeadline: diagnosis.DefaultProgressDeadline,
		Namespace:     wrappers.MakeNamespace(shop).UID("uid-of-shop").Terminating(deleted).Obj(),
		ResourceTypes: &resourcetypes.Set{},
		Leases:        []coordinationv1.Lease{makeLease("kube-system", "kube-controller-manager", "master-1_7", now.Add(-time.Second))},
	}
	for _, condition := range []struct{ name, reason, message string }{
		{"NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"},
		{"NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		{"NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		{"NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"},
		{"NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
	} {
		setStatus(facts, condition.name, corev1.ConditionFalse, condition.reason, condition.message)
	}
	for _, change := range changes {
		change(facts)
	}
	return facts
}

func setStatus(facts *diagnosis.Facts, name string, status corev1.ConditionStatus, reason, message string) {
	conditions := facts.Namespace.Status.Conditions
	for i := range conditions {
		if string(conditions[i].Type) == name {
			conditions[i].Status, conditions[i].Reason, conditions[i].Message = status, reason, message
			return
		}
	}
	facts.Namespace.Status.Conditions = append(conditions, corev1.NamespaceCondition{
		Type: corev1.NamespaceConditionType(name), Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.Time{Time: deleted.Add(5 * time.Second)},
	})
}

func withContent(contents ...resourcetypes.Content) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.Content = append(facts.Content, contents...) }
}

func withContentFailure(message string) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		setStatus(facts, "NamespaceDeletionContentFailure", corev1.ConditionTrue, "ContentDeletionFailed", message)
	}
}

func withDiscoveryFailure(message string) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		setStatus(facts, "NamespaceDeletionDiscoveryFailure", corev1.ConditionTrue, "DiscoveryFailed", message)
	}
}

func withDryRuns(dryRuns ...diagnosis.DryRun) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.DryRuns = append(facts.DryRuns, dryRuns...) }
}

// withRejectedWrite adds an Event of the operator about a rejected write to the Namespace.
func withRejectedWrite(text string, at time.Time) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		object := diagnosis.RemainingObject{
			Type: diagnosis.NamespaceType, PartialObjectMetadata: &metav1.PartialObjectMetadata{},
		}
		facts.RejectedWrites = append(facts.RejectedWrites,
			diagnosis.MakeEventReport(object, v1alpha1.ReasonWriteRejected, text, at))
	}
}

func withUnread(sources ...diagnosis.Source) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		for _, source := range sources {
			facts.Unread = append(facts.Unread, diagnosis.Unread{Source: source, Why: string(source) + " cannot be read"})
		}
	}
}

func withWorkloads(workloads ...diagnosis.Workload) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.Workloads = append(facts.Workloads, workloads...) }
}

func withLeases(leases ...coordinationv1.Lease) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.Leases = append(facts.Leases, leases...) }
}

func withDefinition(changes ...func(*apiextensionsv1.CustomResourceDefinition)) func(*diagnosis.Facts) {
	definition := apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: widgets.String()}}
	definition.Spec.Group, definition.Spec.Names.Kind = widgets.Group, widgets.Kind
	for _, change := range changes {
		change(&definition)
	}
	return func(facts *diagnosis.Facts) {
		facts.CRDNames = append(facts.CRDNames, definition.Name)
		facts.CRDs = append(facts.CRDs, definition)
	}
}

// answer returns an error in the format of kube-apiserver 1.36.
func answer(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func internalError(message string) error {
	return answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: "+message)
}

var unavailable = answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
	"the server is currently unable to handle the request")

// want is an expected finding. message and evidence are substrings of the finding's fields.
type want struct {
	cause    diagnosis.Cause
	rank     diagnosis.Rank
	message  string
	evidence string
	objects  []string
}

type diagnoseCase struct {
	facts *diagnosis.Facts
	// want lists all expected findings, in order.
	want []want
}

// runCases runs the rules for each case and compares the findings.
func runCases(t *testing.T, cases map[string]diagnoseCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := Diagnose(test.facts)
			if len(got.Findings) != len(test.want) {
				t.Fatalf("got %d findings, want %d: %+v", len(got.Findings), len(test.want), got.Findings)
			}
			for i, want := range test.want {
				expectFinding(t, got.Findings[i], want)
			}
			if isBlocked := got.Result == diagnosis.Blocked; isBlocked != (len(test.want) > 0) {
				t.Errorf("state is %s, but there are %d findings", got.Result, len(test.want))
			}
			expectPublishable(t, test.facts)
			if again := Diagnose(test.facts); !reflect.DeepEqual(got, again) {
				t.Errorf("a repeated diagnosis differs: %+v and %+v", got, again)
			}
		})
	}
}

func expectFinding(t *testing.T, got diagnosis.Finding, want want) {
	t.Helper()
	expectParameters(t, got)
	if got.Cause != want.cause || got.Rank != want.rank {
		t.Fatalf("got %s (%s), want %s (%s): %s %q", got.Cause, got.Rank, want.cause, want.rank, got.Message, got.Evidence)
	}
	if !strings.Contains(got.Message, want.message) {
		t.Errorf("message %q lacks %q", got.Message, want.message)
	}
	if !strings.Contains(fmt.Sprint(got.Evidence), want.evidence) {
		t.Errorf("evidence %q lacks %q", got.Evidence, want.evidence)
	}
	if len(got.Evidence) == 0 || len(got.Remedies) == 0 {
		t.Errorf("%s has evidence %q and remedies %q", got.Cause, got.Evidence, got.Remedies)
	}
	expectForce(t, got)
	var names []string
	for _, object := range got.Objects {
		names = append(names, object.Resource+"/"+object.Name)
	}
	if want.objects != nil && !reflect.DeepEqual(names, want.objects) {
		t.Errorf("objects are %v, want %v", names, want.objects)
	}
}

// expectParameters fails if a text of a finding contains a parameter that the rule has not set.
func expectParameters(t *testing.T, got diagnosis.Finding) {
	t.Helper()
	if strings.Contains(fmt.Sprint(got.Remedies, got.Loss), "${") {
		t.Errorf("a parameter of %s is not set: %v %s", got.Cause, got.Remedies, got.Loss)
	}
}

// expectForce expects that the finalize command names the finding's finalizer.
func expectForce(t *testing.T, got diagnosis.Finding) {
	t.Helper()
	flag := "finalizer"
	switch got.Cause {
	case diagnosis.CauseNamespaceFinalizer:
		flag = "namespace-finalizer"
	case diagnosis.CauseNamespaceMetadataFinalizer:
		flag = "metadata-finalizer"
	}
	for _, remedy := range got.Remedies {
		want := "kubectl nslifecycle finalize " + shop + " --" + flag + "=" + got.Finalizer
		if strings.Contains(remedy.Command, " finalize ") && (remedy.Command != want || got.Finalizer == "" || !remedy.Changes) {
			t.Errorf("remedy is %q, want %q", remedy, want)
		}
	}
	if got.OwnerState != "" && got.Finalizer == "" {
		t.Errorf("%s reports no finalizer whose owner is %s", got.Cause, got.OwnerState)
	}
}

// literal returns the longest part of a format string without verbs. This part identifies a message.
func literal(format string) string {
	longest := ""
	for _, part := range regexp.MustCompile(`%[a-z]`).Split(format, -1) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

func makeDryRun(verb string, of resourcetypes.Type, name, finalizer string, err error) diagnosis.DryRun {
	return diagnosis.DryRun{Verb: verb, Type: of, Name: name, Finalizer: finalizer, Err: err}
}

func makeAccessReview(account types.NamespacedName, resource schema.GroupResource, missing ...string) diagnosis.AccessReview {
	return diagnosis.AccessReview{ServiceAccount: account, Resource: resource, Missing: missing}
}

// makeNamespaceWrite returns the dry run of a write to the Namespace: of its status, or the removal of a finalizer.
func makeNamespaceWrite(finalizer string, err error) diagnosis.DryRun {
	dryRun := makeDryRun(diagnosis.VerbPatch, diagnosis.NamespaceType, shop, finalizer, err)
	dryRun.Subresource = diagnosis.SubresourceStatus
	if finalizer != "" {
		dryRun.Verb, dryRun.Subresource = diagnosis.VerbPut, diagnosis.SubresourceFinalize
	}
	return dryRun
}

// withNamespaceWrites adds dry runs that the API server responds to with the given error.
func withNamespaceWrites(err error) func(*diagnosis.Facts) {
	return withDryRuns(makeNamespaceWrite("", err), makeNamespaceWrite("kubernetes", err))
}
