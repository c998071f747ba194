// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// encode returns a review as kube-apiserver encodes it.
func encode(g Gomega, object string) string {
	scheme := runtime.NewScheme()
	g.Expect(admissionv1.AddToScheme(scheme)).To(Succeed())
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion)
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespace: "shop", Name: "web", Operation: admissionv1.Update,
		UserInfo: authenticationv1.UserInfo{
			Username: "alice", UID: "2", Groups: []string{"a", "b"},
			Extra: map[string]authenticationv1.ExtraValue{"username": {"mallory"}},
		},
		Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(`{"old":true}`)},
	}}
	data, err := runtime.Encode(codec, review)
	g.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

var allFields = Fields{"object": nil}

func TestDecodeReview(t *testing.T) {
	g := NewWithT(t)
	review := encode(g, `{"spec":{"a":[1]}}`)
	want := &Request{
		UID: "1", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespace: "shop", Name: "web", Operation: admissionv1.Update, Username: "alice",
	}
	// The object and what follows are not read.
	g.Expect(decodeReview(strings.NewReader(review[:strings.Index(review, `"object"`)+9]), nil, maxHead)).To(Equal(want))
	want.Object = json.RawMessage(`{"spec":{"a":[1]}}`)
	g.Expect(decodeReview(strings.NewReader(review), allFields, maxHead)).To(Equal(want))
	want.OldObject = json.RawMessage(`{"old":true}`)
	g.Expect(decodeReview(strings.NewReader(review), Fields{"object": nil, "oldObject": nil}, maxHead)).To(Equal(want))
	want.Object, want.OldObject = json.RawMessage(`{"spec":{}}`), json.RawMessage(`{"old":null}`)
	g.Expect(decodeReview(strings.NewReader(review),
		Fields{"object": {"spec": {"b": nil}}, "oldObject": {"old": {}}}, maxHead)).To(Equal(want))
}

func TestRefusedReviews(t *testing.T) {
	const start = `{"request":{"uid":"1","object":`
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nrequest: {uid: '1', object: *b}"
	tests := map[string]string{
		"nothing":               "",
		"a list":                "[]",
		"a string":              `"request"`,
		"no request":            `{"kind":"AdmissionReview"}`,
		"request of null":       `{"request":null}`,
		"no UID":                `{"request":{"object":{}}}`,
		"no object":             `{"request":{"uid":"1"}}`,
		"YAML":                  "kind: AdmissionReview\nrequest: {uid: '1', object: {}}",
		"a YAML alias bomb":     bomb,
		"the same after JSON":   `{"kind":"AdmissionReview"` + "\n" + bomb,
		"the same in the value": start + "\n" + bomb,
		"another type":          `{"request":{"uid":["1"],"object":{}}}`,
		"incomplete":            start + `{"spec":`,
		"many elements":         start + `{"spec":{"objects":[` + strings.Repeat("{},", maxElements) + `{}]}}}}`,
		"many nested elements":  start + `[[1,[` + strings.Repeat(`"a,",`, maxElements) + `{}]]]}}`,
		"many values":           start + `[` + strings.Repeat(`[`+strings.Repeat("1,", 1000)+"1],", maxValues/1000+1) + `1]}}`,
		"many keys":             start + `{` + strings.Repeat(`"a":1,`, maxValues) + `"b":1}}}`,
		"deep":                  start + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + "}}",
		"deep maps":             start + strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1) + "}}",
		"very deep":             start + strings.Repeat("[", 1<<20),
		"very deep head":        strings.Repeat(`{"a":`, 1<<20),
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := decodeReview(strings.NewReader(body), allFields, maxHead+maxObject)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}

func TestCheckSize(t *testing.T) {
	tests := map[string]string{
		"empty":                       "",
		"a list with the most values": "[" + strings.Repeat(`{"a,[":"\"]["},`, maxElements-1) + "1]",
		"lists beside each other": "[" + strings.Repeat("["+strings.Repeat("1,", maxElements-1)+"1],", 10) +
			"[" + strings.Repeat("1,", maxElements-1) + "1]]",
		"the deepest": strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		"many keys":   "{" + strings.Repeat(`"a":"b",`, 2*maxElements) + `"c":[1,2]}`,
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(checkSize([]byte(data))).To(Succeed())
		})
	}
}

// FuzzDecodeReview verifies that no body makes the decoder panic, or pass more than the limits.
func FuzzDecodeReview(f *testing.F) {
	f.Add(`{"request":{"uid":"1","object":{"a":["\\\"",{}]}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		request, err := decodeReview(strings.NewReader(body), allFields, maxHead+maxObject)
		if err != nil {
			return
		}
		if !json.Valid(request.Object) || len(request.Object) > maxHead+maxObject {
			t.Errorf("accepted %q", request.Object)
		}
	})
}
