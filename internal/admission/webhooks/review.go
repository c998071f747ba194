// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

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
	// Subpath follows the path of the webhook, if that is a prefix.
	Subpath string
	// Object and OldObject are the JSON of the parts of the objects that the webhook decodes. They have a bounded number
	// of values.
	Object, OldObject json.RawMessage

	serving func()
}

// Serving marks the request as one that the handler works on. From then on, the server no longer ends it in
// favor of newer ones, so the handler must bound the number of these requests.
func (r *Request) Serving() {
	if r.serving != nil {
		r.serving()
	}
}

// admissionReview is a decoded AdmissionReview.
type admissionReview struct {
	*Request
	webhook Webhook
}

func (w Webhook) decode(body io.Reader, limit int) (review, error) {
	request, err := decodeReview(body, w.Fields, limit)
	return &admissionReview{request, w}, err
}

func (a *admissionReview) respond(ctx context.Context, r *http.Request, serving func()) (any, *refusal) {
	a.Subpath, a.serving = strings.TrimPrefix(r.URL.Path, a.webhook.Path), serving
	response, err := a.webhook.Handle(ctx, a.Request)
	if err != nil {
		return nil, &refusal{http.StatusServiceUnavailable, err}
	}
	response.UID = a.UID
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	}, nil
}

var errNoReview = errors.New("the body is not an AdmissionReview with a request")

// decodeReview decodes parts of an AdmissionReview, which have at most limit bytes. It is JSON, and never YAML, whose
// aliases expand. kube-apiserver encodes the fields in the order of the type, so the objects follow all other fields
// that are used, except the options. What comes after the last field is not read.
func decodeReview(body io.Reader, fields Fields, limit int) (*Request, error) {
	decoder := json.NewDecoder(prune(body, reviewFields(fields), limit))
	if err := enter(decoder); err != nil {
		return nil, err
	}
	if name, err := decoder.Token(); err != nil || name != "request" {
		return nil, cmp.Or(err, errNoReview)
	}
	return decodeRequest(decoder, fields)
}

func decodeRequest(decoder *json.Decoder, fields Fields) (*Request, error) {
	request := &Request{}
	var user struct {
		Username string `json:"username"`
	}
	targets := map[json.Token]any{
		"uid": &request.UID, "resource": &request.Resource, "namespace": &request.Namespace, "name": &request.Name,
		"operation": &request.Operation, "userInfo": &user,
		fieldObject: &request.Object, fieldOldObject: &request.OldObject,
	}
	if err := enter(decoder); err != nil {
		return nil, err
	}
	for remaining := max(len(fields), 1); remaining > 0 && decoder.More(); {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		if _, isField := fields[fmt.Sprint(name)]; isField {
			remaining--
		}
		if name == fieldObject && len(fields) == 0 {
			break
		}
		if err := decoder.Decode(targets[name]); err != nil {
			return nil, err
		}
	}
	request.Username = user.Username
	if request.UID == "" || fields.has(fieldObject) && len(request.Object) == 0 ||
		fields.has(fieldOldObject) && len(request.OldObject) == 0 {
		return nil, errNoReview
	}
	return request, errors.Join(checkSize(request.Object), checkSize(request.OldObject))
}

// enter reads the beginning of a JSON object.
func enter(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err == nil && token != json.Delim('{') {
		err = errNoReview
	}
	return err
}

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
				return fmt.Errorf("%w: values are nested more than %d levels", errTooLarge, maxDepth)
			}
			lengths[depth], isList[depth] = 1, data[i] == '['
		case ']', '}':
			depth--
		case ',':
			values++
			lengths[depth]++
		}
		if values > maxValues {
			return fmt.Errorf("%w: an object contains more than %d values", errTooLarge, maxValues)
		}
		if isList[depth] && lengths[depth] > maxElements {
			return fmt.Errorf("%w: a list contains more than %d elements", errTooLarge, maxElements)
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

// Limits of reviews. Peers are not authenticated, unless a CA for client certificates is configured. At these limits
// and those for connections, test/webhooks measures less than half of the memory limit in config/manager.
const (
	// maxBody is the size of a review. A request to an API server has up to 3 MiB, and an object in etcd 1.5 MiB.
	// JSON encodes each byte of both with up to 6 bytes.
	maxBody = 32 << 20
	// maxHead is the size of the fields of a review that are decoded before the objects.
	maxHead = 64 << 10
	// maxObject is the size of the fields of an object that a webhook decodes. A valid template contains at most 1 MiB,
	// and the annotations of a Namespace 256 KiB, which JSON encodes with up to six times as many bytes.
	maxObject = 2 << 20
	// maxBuffered is the part of all reviews that is buffered.
	maxBuffered = 16 << 20

	// maxValues is the number of JSON values in an object, maxElements the number of elements of a list, and
	// maxDepth their nesting. Decoding can need hundreds of bytes for a value of two characters. The values are
	// those that a valid template can contain, and more than CustomResourceDefinitions allow in any other list.
	maxValues   = 96 << 10
	maxElements = 1024
	maxDepth    = 100
)
