// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Request is the part of an AdmissionRequest that the webhooks use.
type Request struct {
	UID       types.UID
	Resource  metav1.GroupVersionResource
	Namespace string
	Name      string
	Operation admissionv1.Operation
	// Username is the name of the user.
	Username string
	// Object is the JSON of the object, if the webhook needs it. It has a bounded number of values.
	Object json.RawMessage

	serving func()
}

// Serving marks the request as one that the handler works on. From then on, the server no longer ends it in
// favor of newer ones, so the handler must bound the number of these requests.
func (r *Request) Serving() {
	if r.serving != nil {
		r.serving()
	}
}

var errNoReview = errors.New("the body is not an AdmissionReview with a request")

// decodeReview decodes the beginning of an AdmissionReview. It is JSON, and never YAML, whose aliases expand.
// kube-apiserver encodes the fields in the order of the type, so the object follows all other fields that are
// used. What comes after them is not decoded.
func decodeReview(body io.Reader, needsObject bool) (*Request, error) {
	decoder := json.NewDecoder(body)
	if err := enter(decoder); err != nil {
		return nil, err
	}
	for decoder.More() {
		switch name, err := decoder.Token(); {
		case err != nil:
			return nil, err
		case name == "request":
			return decodeRequest(decoder, needsObject)
		}
		if err := decoder.Decode(&skipped{}); err != nil {
			return nil, err
		}
	}
	return nil, errNoReview
}

func decodeRequest(decoder *json.Decoder, needsObject bool) (*Request, error) {
	request := &Request{}
	var user struct {
		Username string `json:"username"`
	}
	fields := map[json.Token]any{
		"uid": &request.UID, "resource": &request.Resource, "namespace": &request.Namespace, "name": &request.Name,
		"operation": &request.Operation, "userInfo": &user,
	}
	if err := enter(decoder); err != nil {
		return nil, err
	}
	hasObject := false
	for decoder.More() && !hasObject {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var target any = &skipped{}
		if field, ok := fields[name]; ok {
			target = field
		}
		if hasObject = name == "object"; hasObject && !needsObject {
			break
		} else if hasObject {
			target = &request.Object
		}
		if err := decoder.Decode(target); err != nil {
			return nil, err
		}
	}
	request.Username = user.Username
	if request.UID == "" || needsObject && len(request.Object) == 0 {
		return nil, errNoReview
	}
	return request, checkSize(request.Object)
}

// enter reads the beginning of a JSON object.
func enter(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err == nil && token != json.Delim('{') {
		err = errNoReview
	}
	return err
}

// skipped is any JSON value, which is not decoded.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// checkSize limits the number, the nesting and the lists of values in valid JSON. It allocates nothing.
func checkSize(data []byte) error {
	var lengths [maxDepth + 1]int // the number of elements at each level
	var isList [maxDepth + 1]bool
	values, depth := 1, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i)
		case '[', '{':
			values++
			if depth++; depth > maxDepth {
				return fmt.Errorf("values are nested more than %d levels", maxDepth)
			}
			lengths[depth], isList[depth] = 1, data[i] == '['
		case ']', '}':
			depth--
		case ',':
			values++
			lengths[depth]++
		}
		if values > maxValues {
			return fmt.Errorf("the object contains more than %d values", maxValues)
		}
		if isList[depth] && lengths[depth] > maxElements {
			return fmt.Errorf("a list contains more than %d elements", maxElements)
		}
	}
	return nil
}

// endOfString returns the index of the quotation mark that ends a string.
func endOfString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}
