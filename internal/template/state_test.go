// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestEarlier(t *testing.T) {
	g, key := NewWithT(t), recordedConfigMap("config").Key()
	inB, inC := recordedConfigMap("config"), recordedConfigMap("config")
	inC.UID = "c"
	state := Record{"a": {Objects: []ObjectState{inB}}, "b": {Objects: []ObjectState{inB}}, "c": {Objects: []ObjectState{inC}}}
	g.Expect(state.Earlier(key, "a").UID).To(BeEquivalentTo(objectUID), "the first other template by name")
	delete(state, "b")
	g.Expect(state.Earlier(key, "a").UID).To(BeEquivalentTo("c"))
	delete(state, "c")
	g.Expect(state.Earlier(key, "a")).To(BeNil())
}

func TestNextEntry(t *testing.T) {
	tests := map[string]struct {
		recorded   Entry
		isComplete bool
		want       Entry
	}{
		"first, complete":           {Entry{}, true, Entry{Revision: "b"}},
		"first, not complete":       {Entry{}, false, Entry{Target: "b"}},
		"the same, complete":        {Entry{Revision: "b"}, true, Entry{Revision: "b"}},
		"the same, not complete":    {Entry{Revision: "b"}, false, Entry{Revision: "b"}},
		"a later one, complete":     {Entry{Revision: "a"}, true, Entry{Revision: "b"}},
		"a later one, not complete": {Entry{Revision: "a"}, false, Entry{Revision: "a", Target: "b"}},
		"the target, complete":      {Entry{Revision: "a", Target: "b"}, true, Entry{Revision: "b"}},
		"the target, not complete":  {Entry{Revision: "a", Target: "b"}, false, Entry{Revision: "a", Target: "b"}},
		"another target":            {Entry{Revision: "a", Target: "c"}, false, Entry{Revision: "a", Target: "b"}},
		"undone, not complete":      {Entry{Revision: "b", Target: "c"}, false, Entry{Revision: "b"}},
		"the objects are deleted":   {Entry{Objects: []ObjectState{recordedConfigMap("x")}}, true, Entry{Revision: "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, objects := NewWithT(t), []ObjectState{recordedConfigMap("config")}
			test.want.Objects = objects
			g.Expect(test.recorded.Next("b", objects, test.isComplete)).To(Equal(test.want))
		})
	}
}
