// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	ordinaryUID = "f0ab3e52-9dd9-4a9b-8a6f-0d6b6f3a8c11"
	encoded     = "8Ks-Up3ZSpuKbw1rbzqMEZEi2iFUs7kNZzSt8g"
)

var recordedSecret = ObjectState{
	Kind: schema.GroupKind{Kind: "Secret"}, Name: "pull", UID: ordinaryUID, Content: "9122da2154b3", Fields: "b90d6734adf2",
}

// The tests of all forms that the operator writes.
func TestRecord(t *testing.T) {
	with := func(change func(*ObjectState)) ObjectState {
		changed := recordedSecret
		change(&changed)
		return changed
	}
	recording := func(value string) string { return `{"team":{"objects":{"Secret":{"pull":"` + value + `"}}}}` }
	tests := map[string]struct {
		state Record
		text  string
	}{
		"nothing":                     {Record{}, ""},
		"a template without objects":  {Record{"team": {Revision: "a"}}, `{"team":{"revision":"a"}}`},
		"a template without anything": {Record{"team": {}}, `{"team":{}}`},
		"templates, and one that is being applied": {
			Record{"team": {Revision: "a", Target: "b"}, "all": {Target: "c"}},
			`{"all":{"target":"c"},"team":{"revision":"a","target":"b"}}`,
		},
		"an object":         {Record{"team": {Objects: []ObjectState{recordedSecret}}}, recording(encoded)},
		"an adopted object": {Record{"team": {Objects: []ObjectState{with(func(o *ObjectState) { o.IsAdopted = true })}}}, recording(encoded + "~")},
		"an adopted object that differs": {
			Record{"team": {Objects: []ObjectState{with(func(o *ObjectState) { o.IsAdopted, o.IsDifferent = true, true })}}}, recording(encoded + "~!"),
		},
		"kinds in groups": {
			Record{"team": {Objects: []ObjectState{
				with(func(o *ObjectState) {
					o.Kind, o.Name = schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}, "system:x<y"
				}),
				with(func(o *ObjectState) { o.Kind = schema.GroupKind{Group: "a.example.com", Kind: "Secret"} }),
			}}},
			`{"team":{"objects":{"Role.rbac.authorization.k8s.io":{"system:x\u003cy":"` + encoded + `"},` +
				`"Secret.a.example.com":{"pull":"` + encoded + `"}}}}`,
		},
		// An aggregated API server can assign any UID, and return no managedFields.
		"another UID": {
			Record{"team": {Objects: []ObjectState{with(func(o *ObjectState) { o.UID = "a:1" })}}}, recording("a:1:9122da2154b3:b90d6734adf2"),
		},
		"a UID in capitals": {
			Record{"team": {Objects: []ObjectState{with(func(o *ObjectState) { o.UID = types.UID(strings.ToUpper(ordinaryUID)) })}}},
			recording(strings.ToUpper(ordinaryUID) + ":9122da2154b3:b90d6734adf2"),
		},
		"no managedFields, adopted": {
			Record{"team": {Objects: []ObjectState{with(func(o *ObjectState) { o.Fields, o.IsAdopted = "", true })}}},
			recording(ordinaryUID + ":9122da2154b3:~"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.state.String()).To(Equal(test.text))
			g.Expect(ParseRecord(namespaceWith("1", test.text))).To(Equal(test.state))
		})
	}
}

func TestFind(t *testing.T) {
	g, entry := NewWithT(t), Entry{Objects: []ObjectState{recordedConfigMap("config")}}
	g.Expect(entry.Find(recordedConfigMap("config").Key())).To(HaveField("UID", BeEquivalentTo(objectUID)))
	g.Expect(entry.Find(recordedConfigMap("other").Key())).To(BeNil())
}

// An unknown form must never count as an empty state, or as one with fewer objects.
func TestParseStateRejects(t *testing.T) {
	recording := func(value string) string { return `{"team":{"objects":{"Secret":{"pull":"` + value + `"}}}}` }
	for name, text := range map[string]string{
		"no JSON":                     "{",
		"nothing":                     "{}",
		"null":                        "null",
		"a list":                      "[]",
		"a space":                     " ",
		"text after the record":       recording(encoded) + "{}",
		"a template without a value":  `{"team":null}`,
		"no objects":                  `{"team":{"objects":{}}}`,
		"null for the objects":        `{"team":{"objects":null}}`,
		"a kind without objects":      `{"team":{"objects":{"Secret":{}}}}`,
		"null for a kind":             `{"team":{"objects":{"Secret":null}}}`,
		"null for an object":          `{"team":{"objects":{"Secret":{"pull":null}}}}`,
		"an unknown field":            `{"team":{"revision":"a","version":2}}`,
		"a field in capitals":         `{"team":{"Objects":{"Secret":{"pull":"` + encoded + `"}}}}`,
		"a list of objects":           `{"team":{"objects":[{"kind":"Secret","name":"pull"}]}}`,
		"a kind twice":                `{"team":{"objects":{"Secret":{"pull":"` + encoded + `"},"Secret":{"a":"` + encoded + `"}}}}`,
		"a template twice":            `{"team":{"revision":"a"},"team":{"revision":"b"}}`,
		"no kind":                     `{"team":{"objects":{"":{"pull":"` + encoded + `"}}}}`,
		"no kind, but a group":        `{"team":{"objects":{".example.com":{"pull":"` + encoded + `"}}}}`,
		"an invalid group":            `{"team":{"objects":{"Secret.../x":{"pull":"` + encoded + `"}}}}`,
		"a kind with a dot":           `{"team":{"objects":{"Secret.":{"pull":"` + encoded + `"}}}}`,
		"no name":                     `{"team":{"objects":{"Secret":{"":"` + encoded + `"}}}}`,
		"no value":                    recording(""),
		"only the mark of adoption":   recording("~"),
		"adopted twice":               recording(encoded + "~~"),
		"too short":                   recording(encoded[:37]),
		"too long":                    recording(encoded + "AA"),
		"bits after the value":        recording(encoded[:37] + "h"),
		"padding":                     recording(encoded + "=="),
		"base64 for URLs":             recording(strings.ReplaceAll(encoded, "-", "+")),
		"an ordinary UID as text":     recording(ordinaryUID + ":9122da2154b3:b90d6734adf2"),
		"no UID":                      recording(":9122da2154b3:b90d6734adf2"),
		"no hashes":                   recording(ordinaryUID + ":9122da2154b3"),
		"a character in another form": recording(strings.Replace(encoded, "8", `\u0038`, 1)),
		"invalid UTF-8":               `{"team":{"revision":"` + "\xff" + `"}}`,
		"too large":                   `{"team":{"revision":"` + strings.Repeat("a", maxRecord) + `"}}`,
		"nested too deeply":           strings.Repeat(`{"a":`, maxRecord/6) + "1" + strings.Repeat("}", maxRecord/6),
	} {
		t.Run(name, func(t *testing.T) {
			state, err := ParseRecord(namespaceWith("1", text))
			g := NewWithT(t)
			g.Expect(err).To(MatchError(ContainSubstring(`namespace "ns"`)))
			g.Expect(state).To(BeNil())
			g.Expect(len(err.Error())).To(BeNumerically("<", 1024), "a message of a bounded size")
		})
	}
}

// FuzzParseState checks that a text is rejected or is exactly what the operator would write.
func FuzzParseState(f *testing.F) {
	f.Add(`{"team":{"revision":"a","target":"b","objects":{"Secret":{"pull":"` + encoded + `~"}}}}`)
	f.Add(`{"team":{"objects":{"Widget.example.com":{"a":"a:1::","b":"x:9122da2154b3:b90d6734adf2~"}}}}`)
	f.Add(`{"team":{"objects":{"Secret":{"pull":null}}},"team":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		g := NewWithT(t)
		state, err := ParseRecord(namespaceWith("1", text))
		if err != nil {
			g.Expect(state).To(BeNil())
			return
		}
		g.Expect(state.String()).To(Equal(text))
		for _, entry := range state {
			for _, object := range entry.Objects {
				g.Expect(object.UID).NotTo(BeEmpty())
				g.Expect(entry.Find(object.Key())).To(HaveValue(Equal(object)), "each object is recorded once")
			}
		}
	})
}

// FuzzRecord checks that nothing is lost of what the operator records.
func FuzzRecord(f *testing.F) {
	f.Add("team", "Secret", "", "pull", ordinaryUID, []byte("123456"), []byte("123456"), true)
	f.Add("team", "Widget", "example.com", "a:b~c", "u:1~", []byte{}, []byte{}, false)
	f.Fuzz(func(t *testing.T, template, kind, group, name, uid string, content, fields []byte, isAdopted bool) {
		g := NewWithT(t)
		hash := func(seed []byte) string {
			if len(seed) == 0 {
				return ""
			}
			return HashOf(seed)
		}
		object := ObjectState{
			Kind: schema.GroupKind{Group: group, Kind: kind}, Name: name, UID: types.UID(uid), Content: HashOf(content),
			Fields: hash(fields), IsAdopted: isAdopted,
		}
		state := Record{template: {Revision: hash(fields), Objects: []ObjectState{object}}}
		parsed, err := ParseRecord(namespaceWith("1", state.String()))
		if err == nil && !strings.Contains(kind, ".") { // Kubernetes permits no dot in a kind.
			g.Expect(parsed).To(Equal(state))
		}
		isText := utf8.ValidString(template+kind+name+uid) && kind != "" && name != "" && uid != ""
		if isText && group == "" && !strings.Contains(kind, ".") {
			g.Expect(err).NotTo(HaveOccurred())
		}
	})
}

// Every watcher of Namespaces receives the record.
func TestRecordSize(t *testing.T) {
	long := func(kind string, number int) string {
		return strings.ToLower(fmt.Sprintf("%s-%0*d", kind, 29-len(kind), number))
	}
	kinds := []schema.GroupKind{
		{Kind: "ResourceQuota"}, {Kind: "LimitRange"}, {Kind: "ServiceAccount"}, {Kind: "ConfigMap"}, {Kind: "Secret"},
		{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}, {Group: rbacv1.GroupName, Kind: "RoleBinding"},
	}
	entry := Entry{Revision: HashOf("revision"), Target: HashOf("target")}
	for i := range 10 {
		kind := kinds[min(i, len(kinds)-1)]
		entry.Objects = append(entry.Objects, ObjectState{
			Kind: kind, Name: long(kind.Kind, i), UID: uuid.NewUUID(), Content: HashOf(i), Fields: HashOf(i, i),
		})
	}
	g := NewWithT(t)
	g.Expect(entry.Objects).To(HaveEach(HaveField("Name", HaveLen(30))))
	text := Record{long("template", 0): entry}.String()
	t.Logf("%d bytes: %s", len(text), text)
	g.Expect(len(text)).To(BeNumerically("<", 1024))
	g.Expect(ParseRecord(namespaceWith("1", text))).To(HaveLen(1))

	// The policies leave half of the annotations of an initializing Namespace to the operator.
	largest := Entry{Revision: entry.Revision, Target: entry.Target}
	for i := range MaxObjects {
		largest.Objects = append(largest.Objects, ObjectState{
			Kind: kinds[len(kinds)-1], Name: fmt.Sprintf("%0253d", i), UID: uuid.NewUUID(), Content: HashOf(i), Fields: HashOf(i, i),
		})
	}
	g.Expect(len(Record{"team": largest}.String())).To(BeNumerically("<", maxRecord/2))
}

func BenchmarkParseState(b *testing.B) {
	entry := Entry{Revision: HashOf("revision")}
	for i := range 10 {
		entry.Objects = append(entry.Objects, ObjectState{
			Kind: configMaps.GroupKind(), Name: fmt.Sprint("config-", i), UID: uuid.NewUUID(), Content: HashOf(i), Fields: HashOf(i, i),
		})
	}
	namespace := namespaceWith("1", Record{"team": entry}.String())
	for b.Loop() {
		if _, err := ParseRecord(namespace); err != nil {
			b.Fatal(err)
		}
	}
}
