// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

func TestToProblem(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	tests := map[string]struct {
		object     string
		err        error
		want       Problem
		isConflict bool
	}{
		"a known reason": {"config", fmt.Errorf("wrapped: %w", Problemf(v1alpha1.ReasonAlreadyExists, "x")),
			Problem{Object: "config", Reason: v1alpha1.ReasonAlreadyExists, Message: "wrapped: x"}, true},
		"an object that cannot be rendered": {"", &render.Error{Object: "config", Reason: "R", Err: errors.New("x")},
			Problem{Object: "config", Reason: "R", Message: "x"}, false},
		"forbidden": {"config", apierrors.NewForbidden(configMaps, "config", errors.New("x")),
			Problem{Object: "config", Reason: v1alpha1.ReasonForbidden, Message: `configmaps "config" is forbidden: x`}, false},
		"a quota that is not counted": {"config", apierrors.NewForbidden(configMaps, "config", errors.New("status unknown for quota: a")),
			Problem{Object: "config", Reason: v1alpha1.ReasonQuotaNotCounted, Message: `configmaps "config" is forbidden: status unknown for quota: a`}, false},
		"invalid": {"config", apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "config",
			field.ErrorList{field.Required(field.NewPath("data"), "x"), field.Required(field.NewPath("type"), "y")}),
			Problem{Object: "config", Reason: v1alpha1.ReasonInvalidObject, Message: `ConfigMap "config" is invalid: ` +
				`data: Required value: x; type: Required value: y`}, false},
		"another field": {"config", apierrors.NewBadRequest("x"), Problem{Object: "config", Reason: v1alpha1.ReasonInvalidObject, Message: "x"}, false},
		"a conflict": {"config", apierrors.NewConflict(configMaps, "config", errors.New("x")),
			Problem{Object: "config", Reason: v1alpha1.ReasonConflict, Message: `Operation cannot be fulfilled on configmaps "config": x`}, true},
		"denied by a webhook with the code 409": {
			"config", apierrors.NewConflict(configMaps, "config", errors.New(`admission webhook "a" denied the request: x`)),
			Problem{Object: "config", Reason: v1alpha1.ReasonApplyFailed, Message: `Operation cannot be fulfilled on configmaps "config": ` +
				`admission webhook "a" denied the request: x`}, false,
		},
		"another error": {"config", errors.New("x"), Problem{Object: "config", Reason: v1alpha1.ReasonApplyFailed, Message: "x"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.want.Template = "a"
			found := ToProblem("a", test.object, test.err)
			g.Expect(found).To(Equal(test.want))
			g.Expect(found.IsConflict()).To(Equal(test.isConflict))
			g.Expect(found.String()).To(Equal(`template "a", object "config": ` + test.want.Message))
		})
	}
}

// TestExpensiveExpression shows that values which make an expression too expensive concern only their Namespace.
func TestExpensiveExpression(t *testing.T) {
	g := NewWithT(t)
	program, errs := render.Compile(&v1alpha1.NamespaceTemplateSpec{
		Parameters: []v1alpha1.TemplateParameter{{Name: "a"}},
		Variables: []v1alpha1.TemplateVariable{{
			Name: "pairs", Expression: "params.a.split('').all(c, params.a.split('').all(d, c + d != ''))",
		}},
	})
	g.Expect(errs).To(BeEmpty())
	in := render.Input{Namespace: &corev1.Namespace{}, Parameters: map[string]string{"a": "short"}}
	_, err := program.Render(context.Background(), in)
	g.Expect(err).NotTo(HaveOccurred())
	in.Parameters["a"] = strings.Repeat("a", 1000)
	_, err = program.Render(context.Background(), in)
	found := ToProblem("a", "", err)
	g.Expect(found.Message).To(Equal("variable pairs: line 1, column 49: the expression costs more than 20000000"))
	g.Expect(found.IsLocal()).To(BeTrue())
	g.Expect(found.Remedy()).To(ContainSubstring("shorten its parameters"))
}

func TestRemedy(t *testing.T) {
	for found, want := range map[Problem]string{
		{Reason: v1alpha1.ReasonForbidden, Message: "x"}:                                          "grant the ServiceAccount",
		{Reason: v1alpha1.ReasonForbidden, Message: "exceeded quota: team"}:                       "",
		{Reason: v1alpha1.ReasonInvalidObject, Message: "x"}:                                      "correct the template",
		{Reason: v1alpha1.ReasonAlreadyExists, Message: "x"}:                                      "spec.sync.adoptionPolicy",
		{Reason: v1alpha1.ReasonConflict, Message: `conflict with "kubectl-edit"`}:                "spec.sync.adoptionPolicy",
		{Reason: v1alpha1.ReasonConflict, Message: "Operation cannot be fulfilled on configmaps"}: "",
		{Reason: v1alpha1.ReasonFieldImmutable, Message: "x"}:                                     "delete the object",
		{Reason: v1alpha1.ReasonApplyFailed, Message: "x"}:                                        "",
		{Reason: v1alpha1.ReasonClaimedByTemplate, Message: "x"}:                                  "",
	} {
		if got := found.Remedy(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%+v: %q", found, got)
		}
	}
}

// The message of a condition and the note of an Event contain the whole message.
func TestMessageFitsWithNames(t *testing.T) {
	name := strings.Repeat("n", 63)
	found := ToProblem(name, name, errors.New(strings.Repeat("word ", 1000)))
	NewWithT(t).Expect(len(found.String())).To(BeNumerically("<=", nsobject.MaxEventNote))
	events := failureEvents(nil, []v1alpha1.TemplateFailure{{Namespace: name, Object: name, Reason: found.Reason, Message: found.Message}})
	NewWithT(t).Expect(len(events[0].Note)).To(BeNumerically("<=", nsobject.MaxEventNote))
}
