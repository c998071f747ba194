// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestPatchesOf(t *testing.T) {
	ready := corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse}
	stalled := corev1.NamespaceCondition{Type: v1alpha1.ConditionStalled}
	NewWithT(t).Expect(patchesOf([]corev1.NamespaceCondition{ready, stalled})).To(Equal([]any{
		ready, map[string]any{"type": stalled.Type, "$patch": "delete"},
	}))
}

func TestPatchAnnotationsKeepsOtherConditions(t *testing.T) {
	condition := func(name corev1.NamespaceConditionType) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: name, Status: corev1.ConditionTrue, Reason: "Reason"}
	}
	for name, test := range map[string]struct {
		conditions, want []corev1.NamespaceCondition
	}{
		"no condition": {want: []corev1.NamespaceCondition{condition("example.com/Audited")}},
		"one condition": {
			conditions: []corev1.NamespaceCondition{condition("Initializing")},
			want:       []corev1.NamespaceCondition{condition("Initializing"), condition("example.com/Audited")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "x-uid"},
				Status:     corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{condition("example.com/Audited")}},
			}
			c := fake.NewClientBuilder().WithObjects(namespace).WithStatusSubresource(namespace).Build()
			annotations := map[string]string{v1alpha1.AnnotationAppliedTemplates: "y"}
			g.Expect(PatchAnnotations(t.Context(), c, namespace.DeepCopy(), "", annotations, test.conditions)).To(Succeed())
			stored := &corev1.Namespace{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(namespace), stored)).To(Succeed())
			g.Expect(stored.Status.Conditions).To(ConsistOf(test.want))
		})
	}
}

func TestPatchDoesNotDeleteTerminatingNamespaces(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
	// Without a client, any request would panic.
	g.Expect(PatchConditions(t.Context(), nil, namespace, nil, "")).To(Satisfy(apierrors.IsConflict))
}

func TestIgnoreStale(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	denied := apierrors.NewNotFound(configMaps, "a")
	denied.ErrStatus.Message = `admission webhook "usages.example.com" denied the request: ` + denied.ErrStatus.Message
	for name, test := range map[string]struct {
		err                    error
		isNotFound, isConflict bool
	}{
		"no error":                 {},
		"not found":                {err: fmt.Errorf("wrapped: %w", apierrors.NewNotFound(configMaps, "a")), isNotFound: true},
		"changed":                  {err: apierrors.NewConflict(configMaps, "a", errors.New("changed")), isConflict: true},
		"forbidden":                {err: apierrors.NewForbidden(configMaps, "a", errors.New("x"))},
		"denied with the code 404": {err: fmt.Errorf("wrapped: %w", denied)},
		"denied with the code 409": {err: apierrors.NewConflict(configMaps, "a",
			errors.New(`admission webhook "usages.example.com" denied the request: in use`))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(IsNotFound(test.err)).To(Equal(test.isNotFound))
			g.Expect(IsConflict(test.err)).To(Equal(test.isConflict))
			isIgnored := test.err == nil || test.isNotFound || test.isConflict
			g.Expect(IgnoreStale(test.err) == nil).To(Equal(isIgnored))
		})
	}
}
