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

func TestPreview(t *testing.T) {
	excluded := recordedConfigMap("excluded")
	state := template.Record{"a": {Revision: "a", Objects: []template.ObjectState{recordedConfigMap("one"), excluded}}}
	outside := objects("two")
	outside[0].Manifest.SetNamespace("other")
	for name, test := range map[string]struct {
		templates []applied
		actions   []Action
		deleted   []string
		isFailed  bool
		err       bool
	}{
		"changed":          {templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, actions: []Action{ActionUpdate}, deleted: []string{"excluded"}},
		"invalid":          {templates: []applied{{name: "a", revision: "b", objects: outside}}, actions: []Action{ActionCreate}, deleted: []string{"excluded", "one"}, isFailed: true},
		"of another one":   {templates: []applied{{name: "0", revision: "b", objects: objects("one")}, {name: "a", revision: "b", objects: objects("one")}}, actions: []Action{NoAction}, deleted: []string{"excluded"}, isFailed: true},
		"unknown":          {templates: []applied{{name: "a", err: errors.New("x")}}, err: true},
		"kept":             {templates: []applied{{name: "a"}}, actions: []Action{NoAction, NoAction}},
		"a label":          {templates: []applied{{name: "a", revision: "b", objects: []ObjectSnapshot{NewMetadata(template.KindLabel, "zone", "a", snapshotOf(nil).Namespace)}}}, actions: []Action{ActionCreate}},
		"a known label":    {templates: []applied{{name: "a", revision: "b", objects: []ObjectSnapshot{NewMetadata(template.KindLabel, "zone", "a", wrappers.MakeNamespace("ns").UID(namespaceUID).Label("zone", "a").Obj())}}}, actions: []Action{NoAction}},
		"no longer chosen": {deleted: []string{"excluded", "one"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), snapshotOf(state)
			s.Templates = []v1alpha1.NamespaceTemplate{{}}
			s.Templates[0].Name, s.Templates[0].Spec.ObjectRetentionPolicy.WhenDeselected = "a", v1alpha1.RetentionDelete
			s = s.with(test.templates...)
			decided, err := Preview(s, "a")
			g.Expect(err != nil).To(Equal(test.err))
			var actions []Action
			var deleted []string
			for _, d := range decided {
				if d.Action == ActionDelete {
					deleted = append(deleted, d.Key.Name)
					continue
				}
				actions = append(actions, d.Action)
				g.Expect(d.Err != nil).To(Equal(test.isFailed))
			}
			g.Expect(actions).To(Equal(test.actions))
			g.Expect(deleted).To(Equal(test.deleted))
		})
	}
}
