// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
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
