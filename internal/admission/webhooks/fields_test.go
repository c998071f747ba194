// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
)

func TestPrune(t *testing.T) {
	fields := Fields{"a": nil, "b": {"c": nil, "p/": nil, "k/": KeyOnly}, "k": KeyOnly}
	tests := map[string]struct{ json, want string }{
		"everything":        {`{"a":1,"b":{"c":[{"d":"}"}]}}`, `{"a":1,"b":{"c":[{"d":"}"}]}}`},
		"nothing":           {`{"x":1,"y":{"a":1},"z":["a","b"]}`, `{}`},
		"empty":             {`{}`, `{}`},
		"some":              {`{"x":{"a":1},"a":"\"}","y":[1,{"b":2}],"b":{"d":1,"c":2,"e":"x"}}`, `{"a":"\"}","b":{"c":2}}`},
		"spaces":            {" {\n\"x\" : [ 1 , 2 ] , \"a\"\t:\r 1 , \"b\" : { \"c\" : null } }", `{"a":1,"b":{"c":null}}`},
		"literals":          {`{"x":-1.5e3,"a":true,"y":false,"b":{"x":null,"c":0}}`, `{"a":true,"b":{"c":0}}`},
		"prefixes":          {`{"b":{"p/x":"1","p":"2","px":"3","k/y":"4","k/z":{"a":1},"p/":5}}`, `{"b":{"p/x":"1","k/y":null,"k/z":{},"p/":5}}`},
		"only keys":         {`{"k":"long","a":1}`, `{"k":null,"a":1}`},
		"another type":      {`{"b":[1,2],"a":2}`, `{"b":null,"a":2}`},
		"null":              {`{"b":null,"a":2}`, `{"b":null,"a":2}`},
		"escaped":           {`{"x":"\\","a":"\\\"\u003c","y\"":1,"b":{"\\":1,"c":"\\\\"}}`, `{"a":"\\\"\u003c","b":{"c":"\\\\"}}`},
		"escaped keys":      {`{"b":{"p/\"\u003c\\":1}}`, `{"b":{"p/\"\u003c\\":1}}`},
		"what follows":      {`{"a":1}{"a":2}`, `{"a":1}`},
		"a list":            {`[{"a":1}]`, `null`},
		"a string":          {`"a"`, `null`},
		"strings as values": {`{"x":"{[","y":"]}\"","a":1}`, `{"a":1}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, source := range []io.Reader{strings.NewReader(test.json), iotest.OneByteReader(strings.NewReader(test.json))} {
				got, err := io.ReadAll(prune(source, fields, 100))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(got)).To(Equal(test.want))
			}
		})
	}
}

func TestPruneLimit(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	tests := map[string]struct {
		json    string
		wantErr bool
	}{
		"what remains":           {`{"a":"` + strings.Repeat("x", 80) + `"}`, false},
		"too much remains":       {`{"a":"` + large + `"}`, true},
		"a large value":          {`{"x":"` + large + `","a":1}`, false},
		"a nested value":         {`{"x":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `,"a":1}`, false},
		"a large key":            {`{"` + large + `":1}`, true},
		"a large key in a value": {`{"x":{"` + large + `":1}}`, false},
		"many members":           {`{` + strings.Repeat(`"x":1,`, 1<<18) + `"a":1}`, false},
		"many kept members":      {`{` + strings.Repeat(`"a":1,`, 1<<18) + `"a":1}`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := io.ReadAll(prune(strings.NewReader(test.json), Fields{"a": nil}, 100))
			if test.wantErr {
				g.Expect(err).To(MatchError(errTooLarge))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(json.Valid(got)).To(BeTrue())
		})
	}
}

// FuzzPrune verifies that what remains of valid JSON has the values that the JSON has, and that no other input makes
// the reader panic or exceed its limit.
func FuzzPrune(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":["x"],"p/x":{"y":null}},"k":"v","x":{"a":1}}`))
	fields := Fields{"a": nil, "b": {"c": nil}}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := io.ReadAll(prune(bytes.NewReader(data), fields, 1<<10))
		if err != nil || len(got) > 1<<10 {
			return
		}
		var before, after struct {
			A any `json:"a"`
			B struct {
				C any `json:"c"`
			} `json:"b"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) != nil || json.Unmarshal(data, &before) != nil || bytes.Contains(data, []byte(`\`)) {
			return
		}
		if bytes.ContainsAny(data, "ABC") || bytes.Count(data, []byte(`"a"`))+bytes.Count(data, []byte(`"b"`)) > 2 {
			return // encoding/json ignores the case of keys, and merges duplicates.
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q of %q: %v", got, data, err)
		}
		want, _ := json.Marshal(before)
		result, _ := json.Marshal(after)
		if !bytes.Equal(want, result) {
			t.Errorf("got %s of %q, want %s", result, data, want)
		}
	})
}
