// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// specTimeout is the timeout of a spec. On a busy machine, a control plane can take a minute to
// serve a new type.
const specTimeout = 5 * time.Minute

// send sends a request with a raw body that client-go would not produce. An error contains the
// Status that the API server returned.
func send(
	ctx context.Context, user *framework.User, method, path, contentType string, body []byte,
) (map[string]any, error) {
	GinkgoHelper()
	httpClient, err := rest.HTTPClientFor(user.Config)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(user.Config.Host, "/")+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := httpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	Expect(err).NotTo(HaveOccurred())
	if response.StatusCode >= http.StatusBadRequest {
		status := metav1.Status{}
		if json.Unmarshal(answer, &status) != nil || status.Kind != "Status" {
			status = metav1.Status{Status: metav1.StatusFailure, Message: string(answer)}
		}
		status.Code = int32(response.StatusCode)
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	object := map[string]any{}
	Expect(json.Unmarshal(answer, &object)).To(Succeed(), string(answer))
	return object, nil
}

// HaveCode matches an error returned by the API server with the given HTTP status code.
func HaveCode(code int32) gomegatypes.GomegaMatcher {
	return WithTransform(func(err error) int32 {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return status.Status().Code
		}
		return 0
	}, Equal(code))
}

// pathOf returns the path of a namespace or of one of its subresources, such as "status" or
// "status?dryRun=All".
func pathOf(namespace *corev1.Namespace, subresource string) string {
	path := "/api/v1/namespaces/" + namespace.Name
	if subresource == "" || strings.HasPrefix(subresource, "?") {
		return path + subresource
	}
	return path + "/" + subresource
}

// fill replaces %NAME% in a body with the name of the namespace.
func fill(body string, namespace *corev1.Namespace) string {
	return strings.ReplaceAll(body, "%NAME%", namespace.Name)
}

// withoutFinalizers is a patch that removes all finalizers of an object.
var withoutFinalizers = mergePatch(`{"metadata":{"finalizers":null}}`)

func mergePatch(body string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(body))
}

// resultPatch returns a patch that sets the result of an initialization.
func resultPatch(result string) client.Patch {
	GinkgoHelper()
	return mergePatch(string(mustEncode(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		v1alpha1.AnnotationInitializationResult: result,
	}}})))
}

func mustEncode(value any) []byte {
	GinkgoHelper()
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// repeatUntil calls a function repeatedly until the channel is closed.
func repeatUntil(stop <-chan struct{}, do func()) {
	for {
		select {
		case <-stop:
			return
		default:
			do()
		}
	}
}

// stateKeys are the keys of the annotations that policy inject sets.
var stateKeys = []string{
	v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy,
}

// expectUnchanged checks that a namespace is still initializing and has the state that policy
// inject set.
func expectUnchanged(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	now := cluster.GetNamespace(Default, ctx, namespace.Name)
	Expect(now.UID).To(Equal(namespace.UID))
	Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	for _, key := range stateKeys {
		Expect(now.Annotations).To(HaveKeyWithValue(key, namespace.Annotations[key]))
	}
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializationResult))
}
