// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const held = "widgets.example.com/records"

// The facts are collected at the time now, long after the deletion of the namespace was requested.
var (
	now     = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	deleted = now.Add(-10 * time.Minute)

	configMaps = makeType("", "configmaps")
	widgets    = makeType("widgets.example.com", "widgets")

	unavailable = makeError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
)

func makeType(group, resource string) resourcetypes.Type {
	return resourcetypes.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Kind:                 "Kind", Verbs: []string{"delete", "list", "patch"},
	}
}

func makeError(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
}

func makeObject(name string, finalizers ...string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-of-" + name), Finalizers: finalizers,
	}}
}

func makeTerminatingObject(name string, finalizers ...string) metav1.PartialObjectMetadata {
	object := makeObject(name, finalizers...)
	object.DeletionTimestamp = &metav1.Time{Time: deleted}
	return object
}

func contentOf(of resourcetypes.Type, objects ...metav1.PartialObjectMetadata) resourcetypes.Content {
	return resourcetypes.Content{Type: of, Objects: objects, Count: len(objects)}
}

func makeFacts(content ...resourcetypes.Content) *diagnosis.Facts {
	return &diagnosis.Facts{
		Now: now, ProgressDeadline: diagnosis.DefaultProgressDeadline, Content: content,
		Namespace: wrappers.MakeNamespace("shop").Terminating(deleted).Obj(),
	}
}

func setCondition(facts *diagnosis.Facts, conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, message string) {
	condition := corev1.NamespaceCondition{
		Type: conditionType, Status: status, Message: message,
		LastTransitionTime: metav1.Time{Time: deleted.Add(5 * time.Second)},
	}
	if have := facts.Condition(conditionType); have != nil {
		*have = condition
		return
	}
	facts.Namespace.Status.Conditions = append(facts.Namespace.Status.Conditions, condition)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
