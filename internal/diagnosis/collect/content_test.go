// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestIsFromAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"an error with a reason":    {unavailable, true},
		"an error without a reason": {fmt.Errorf("listing: %w", makeError(http.StatusInternalServerError, "")), true},
		"a connection error":        {errors.New("connection refused"), false},
		"a timeout":                 {context.DeadlineExceeded, false},
	} {
		if got := isFromAPIServer(test.err); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// A type that cannot be listed but has no objects must not prevent the namespace from being empty.
func TestReadContentOmitsTypesReportedEmpty(t *testing.T) {
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme)
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: `User "dev" cannot list resource "widgets" in API group "widgets.example.com"`,
		}}
	})
	facts := makeFacts()
	facts.ResourceTypes = &resourcetypes.Set{Types: []resourcetypes.Type{widgets}}
	for _, conditionType := range []corev1.NamespaceConditionType{
		corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceContentRemaining,
	} {
		setCondition(facts, conditionType, corev1.ConditionFalse, "")
	}
	collection := &collection{Collector: &Collector{metadata: client}, facts: facts}
	collection.readContent(t.Context())
	if len(facts.Content) != 0 || len(facts.Unread) != 0 {
		t.Errorf("got content %+v, unread %+v", facts.Content, facts.Unread)
	}
}

func TestReadContentOmitsTypesThatCannotBeDeleted(t *testing.T) {
	client := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	facts := makeFacts()
	computed := resourcetypes.Type{Verbs: []string{"get", "list"}}
	computed.Group, computed.Version, computed.Resource = "metrics.k8s.io", "v1beta1", "pods"
	facts.ResourceTypes = &resourcetypes.Set{Types: []resourcetypes.Type{computed}}
	collection := &collection{Collector: &Collector{metadata: client}, facts: facts}
	collection.readContent(t.Context())
	if len(facts.Content) != 0 || len(client.Actions()) != 0 {
		t.Errorf("got content %+v after %+v", facts.Content, client.Actions())
	}
}

func TestIsReportedEmpty(t *testing.T) {
	const remaining = "Some resources are remaining: configmaps. has 1 resource instances, " +
		"widgets.widgets.example.com has 2 resource instances"
	type statuses map[corev1.NamespaceConditionType]corev1.ConditionStatus
	succeeded := statuses{
		corev1.NamespaceDeletionDiscoveryFailure: corev1.ConditionFalse, corev1.NamespaceContentRemaining: corev1.ConditionTrue,
		corev1.NamespaceDeletionGVParsingFailure: corev1.ConditionFalse, corev1.NamespaceDeletionContentFailure: corev1.ConditionFalse,
	}
	failed := maps.Clone(succeeded)
	failed[corev1.NamespaceDeletionContentFailure] = corev1.ConditionTrue
	secrets := makeType("", "secrets")
	for name, test := range map[string]struct {
		statuses statuses
		message  string
		of       resourcetypes.Type
		want     bool
	}{
		"not listed":            {succeeded, remaining, secrets, true},
		"listed":                {succeeded, remaining, configMaps, false},
		"listed custom type":    {succeeded, remaining, widgets, false},
		"another group":         {succeeded, remaining, makeType("other.example.com", "widgets"), true},
		"no conditions":         {nil, "", secrets, false},
		"only one condition":    {statuses{corev1.NamespaceContentRemaining: corev1.ConditionTrue}, remaining, secrets, false},
		"possibly truncated":    {succeeded, remaining + strings.Repeat(" ", maxCompleteMessage), secrets, false},
		"some types not listed": {failed, remaining, secrets, false},
	} {
		namespace := wrappers.MakeNamespace("shop")
		for conditionType, status := range test.statuses {
			namespace.Condition(corev1.NamespaceCondition{Type: conditionType, Status: status, Message: test.message})
		}
		facts := &diagnosis.Facts{Namespace: namespace.Obj()}
		if got := isReportedEmpty(facts, test.of); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestComputeProgress(t *testing.T) {
	first := []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a", held), makeTerminatingObject("b", held, "x")), contentOf(configMaps, makeObject("c"))}
	for name, test := range map[string]struct {
		second   []resourcetypes.Content
		deleted  int
		released int
	}{
		"no change":                     {second: first},
		"a new object":                  {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a", held), makeTerminatingObject("b", held), makeTerminatingObject("c")), first[1]}},
		"one deleted object":            {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("b", held, "x")), first[1]}, deleted: 1, released: 1},
		"all objects of a type deleted": {second: first[1:], deleted: 2, released: 2},
		"a removed finalizer":           {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a"), makeTerminatingObject("b", held, "x")), first[1]}, released: 1},
		"a failed list request":         {second: []resourcetypes.Content{{Type: widgets, Err: unavailable}, first[1]}},
	} {
		progress := computeProgress(first, test.second)
		if progress.Deleted[widgets.GroupResource()] != test.deleted || progress.Released[held] != test.released {
			t.Errorf("%s: got %+v", name, progress)
		}
	}
	many, fewer := contentOf(configMaps, makeObject("a")), contentOf(configMaps, makeObject("b"))
	many.Count, fewer.Count = 9000, 8000
	if got := computeProgress([]resourcetypes.Content{many}, []resourcetypes.Content{fewer}); got.Deleted[configMaps.GroupResource()] != 1 {
		t.Errorf("with many objects: got %+v", got)
	}
	fewer.Count = 9000
	if got := computeProgress([]resourcetypes.Content{many}, []resourcetypes.Content{fewer}); got.Observed() {
		t.Errorf("with the same number of objects: got %+v", got)
	}
}

func TestProgressInConditions(t *testing.T) {
	facts := makeFacts(contentOf(configMaps, makeObject("a")))
	setCondition(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "Some resources are remaining: configmaps. has 3 resource instances, widgets.widgets.example.com has 1 resource instances")
	written := func(ago time.Duration, fields string) {
		facts.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Subresource: "status", Time: &metav1.Time{Time: now.Add(-ago)},
			FieldsV1: metav1.NewFieldsV1(fields),
		}}
	}
	const own = `{"f:status":{"f:conditions":{"k:{\"type\":\"NamespaceContentRemaining\"}":{}}}}`
	written(10*time.Second, own)
	if got := progressInConditions(facts); got != "3 configmaps remained 10s ago, and 1 remain now" {
		t.Errorf("got %q", got)
	}
	written(time.Minute, own)
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with an old condition: got %q", got)
	}
	setCondition(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "Some resources are remaining: configmaps. has 1 resource instances")
	written(10*time.Second, own)
	if got := progressInConditions(facts); got != "the condition that counts the remaining objects changed 10s ago" {
		t.Errorf("with a changed count: got %q", got)
	}
	setCondition(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, "")
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with a blocked namespace: got %q", got)
	}
	setCondition(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionFalse, "")
	setCondition(facts, "NamespaceDeletionContentFailure", corev1.ConditionTrue, "port 4711")
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with an error: got %q", got)
	}
	written(10*time.Second, `{"f:status":{"f:conditions":{"k:{\"type\":\"Other\"}":{}}}}`)
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with a write of another condition: got %q", got)
	}
}
