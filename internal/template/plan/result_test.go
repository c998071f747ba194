// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// A Namespace does not count as updated to what it does not record.
func TestNotRecorded(t *testing.T) {
	g := NewWithT(t)
	unchanged, changed := template.Entry{Revision: "b"}, template.Entry{Revision: "b", Objects: []template.ObjectState{recordedConfigMap("config")}}
	namespace := wrappers.MakeNamespace("ns").Annotation(v1alpha1.AnnotationAppliedTemplates,
		template.State{"unchanged": unchanged, "changed": {Revision: "a"}}.String()).Obj()
	result := Result{
		State:     template.State{"unchanged": unchanged, "changed": changed},
		Templates: []Outcome{{Template: "changed", Revision: "b"}, {Template: "unchanged"}},
		Kept:      []template.Problem{{Reason: v1alpha1.ReasonObjectRetained}},
	}
	result.NotRecorded(namespace, errors.New("x"))
	g.Expect(result.Templates[0].Problems).To(HaveExactElements(template.Problem{Template: "changed", Reason: v1alpha1.ReasonNotRecorded, Message: "x"}))
	g.Expect(result.Templates[1].Problems).To(BeEmpty())
	g.Expect(result.Kept).To(BeEmpty(), "they are still recorded")
}
