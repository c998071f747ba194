// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
	"github.com/nslifecycle/nslifecycle/test/admission/cases"
)

// codec encodes objects as kube-apiserver does.
func codec(g Gomega) runtime.Codec {
	scheme := runtime.NewScheme()
	g.Expect(admissionv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion, corev1.SchemeGroupVersion)
}

func raw(g Gomega, namespace *corev1.Namespace) runtime.RawExtension {
	if namespace == nil {
		return runtime.RawExtension{}
	}
	data, err := runtime.Encode(codec(g), namespace)
	g.Expect(err).NotTo(HaveOccurred())
	// Fields of later versions are kept.
	return runtime.RawExtension{Raw: bytes.Replace(data, []byte(`"spec":{`), []byte(`"later":{"labels":{}},"spec":{`), 1)}
}

// review sends a review to a webhook, and returns the Namespace after its patch.
func review(
	g Gomega, address, path, user string, old, namespace *corev1.Namespace,
) (*corev1.Namespace, *httptest.ResponseRecorder) {
	operation := admissionv1.Create
	if old != nil {
		operation = admissionv1.Update
	}
	object := raw(g, namespace)
	body, err := runtime.Encode(codec(g), &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Operation: operation,
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Name: namespace.Name,
		UserInfo: authenticationv1.UserInfo{Username: user, Groups: []string{strings.Repeat("g", 1<<20)}},
		Object:   object, OldObject: raw(g, old), Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions"}`)},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.Post(address+path+"?timeout=10s", "application/json", bytes.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	recorder := httptest.NewRecorder()
	recorder.Code = response.StatusCode
	_, err = io.Copy(recorder.Body, response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	if recorder.Code != http.StatusOK {
		return nil, recorder
	}
	answer := &admissionv1.AdmissionReview{}
	g.Expect(json.Unmarshal(recorder.Body.Bytes(), answer)).To(Succeed())
	g.Expect(answer.Response.Allowed).To(BeTrue())
	result := object.Raw
	if answer.Response.Patch != nil {
		g.Expect(answer.Response.PatchType).To(HaveValue(Equal(admissionv1.PatchTypeJSONPatch)))
		patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
		g.Expect(err).NotTo(HaveOccurred())
		result, err = patch.Apply(object.Raw)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(string(result)).To(ContainSubstring(`"later":{"labels":{}}`))
	patched := &corev1.Namespace{}
	g.Expect(json.Unmarshal(result, patched)).To(Succeed())
	return patched, recorder
}

// serve serves the webhooks with a set, and returns the address.
func serve(t *testing.T, set *internalv1alpha1.NamespaceInitializerSet) string {
	t.Helper()
	g := NewWithT(t)
	sets := newSets()
	if set != nil {
		sets.set(set)
	}
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	server := limitedhttp.NewServer(webhooks.NewHandler(logr.Discard(), sets.webhooks()...))
	go func() { _ = server.Serve(limitedhttp.Limit(tcp, nil)) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + tcp.Addr().String()
}

func TestInjectWebhook(t *testing.T) {
	address := serve(t, cases.Set())
	for name, test := range cases.Creations() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace, recorder := review(g, address, "/inject/1", test.User, nil, defaulted(test.Request()))
			g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
			delete(namespace.Labels, corev1.LabelMetadataName)
			expectObject(g, namespace, test.Want)
		})
	}
}

func TestUpdateWebhooks(t *testing.T) {
	address := serve(t, nil)
	starts := cases.Starts()
	for name, test := range cases.Updates() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := starts[test.Start].DeepCopy()
			after := before.DeepCopy()
			test.Change(after)
			path := pathRestore
			if test.User == cases.Initializer {
				path = pathComplete
			}
			got, recorder := review(g, address, path, test.User, before, after)
			g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
			got, recorder = review(g, address, pathRestoreLocked, test.User, before, got)
			g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
			want := test.Expected(before)
			expectObject(g, got, cases.Object{Labels: want.Labels, Annotations: want.Annotations})
		})
	}
}

// TestLargest verifies that the webhooks handle the largest Namespaces.
func TestLargest(t *testing.T) {
	g := NewWithT(t)
	address := serve(t, cases.Set())
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{}}}
	for i := range 2000 {
		created.Labels[fmt.Sprintf("%s%d.example.com/%s", strings.Repeat("a.", 115), i, strings.Repeat("k", 58))] = strings.Repeat("v", 63)
	}
	for i := range 1000 {
		created.Spec.Finalizers = append(created.Spec.Finalizers,
			corev1.FinalizerName(fmt.Sprintf("%s%d.example.com/%s", strings.Repeat("a.", 115), i, strings.Repeat("k", 58))))
	}
	created.Status.Conditions = []corev1.NamespaceCondition{{Message: strings.Repeat("<", 3<<20)}}
	namespace, recorder := review(g, address, "/inject/1", "alice", nil, created)
	g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
	g.Expect(namespace.Labels).To(HaveLen(2001))
	g.Expect(namespace.Spec.Finalizers).To(HaveLen(1001))

	before := cases.Starts()[cases.StartFresh]
	before.Annotations[v1alpha1.AnnotationInitializationResult] = strings.Repeat("<", 240<<10)
	before.Status.Conditions = []corev1.NamespaceCondition{{Message: strings.Repeat("<", 1<<20)}}
	for i := range 100_000 {
		before.Labels[fmt.Sprintf("k%d", i)] = ""
	}
	after := before.DeepCopy()
	after.Annotations = nil
	namespace, recorder = review(g, address, pathRestore, "alice", before, after)
	g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
	g.Expect(namespace.Annotations).To(HaveLen(4))
	_, recorder = review(g, address, pathRestore, "alice", before, before)
	g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())

	created.Labels["large"] = strings.Repeat("<", 1<<20)
	_, recorder = review(g, address, "/inject/1", "alice", nil, created)
	g.Expect(recorder.Code).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(recorder.Body.String()).To(ContainSubstring("the review is too large"))
}

func TestRestoreConditionsWebhook(t *testing.T) {
	address := serve(t, nil)
	for name, test := range cases.ConditionUpdates() {
		if test.User == cases.Initializer {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := cases.Starts()[cases.StartCompleted]
			before.Status.Conditions = cases.Conditions()
			after := before.DeepCopy()
			after.Status.Conditions = test.Change(before.Status.Conditions)
			got, recorder := review(g, address, pathRestoreConditions, test.User, before, after)
			g.Expect(recorder.Code).To(Equal(http.StatusOK), recorder.Body.String())
			want, err := json.Marshal(test.Expected(before.Status.Conditions))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(json.Marshal(got.Status.Conditions)).To(MatchJSON(want))
		})
	}
}

func TestWithoutSpecAndMaps(t *testing.T) {
	g := NewWithT(t)
	before, has, err := decode([]byte(`{"metadata":{"labels":{}}}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(has).To(Equal(parents{}))
	after := before.DeepCopy()
	Inject(after, cases.Set(), "alice")
	after.Status.Conditions = cases.Conditions()
	operations := map[string]bool{}
	for _, operation := range computePatch(before, after, has) {
		operations[operation.Op+" "+operation.Path] = true
	}
	g.Expect(operations).To(Equal(map[string]bool{
		"add /metadata/labels/nslifecycle.dev~1initializing": true, "add /metadata/annotations": true, "add /spec": true,
		"add /status": true,
	}))
}

// TestGenerations verifies that a creation waits for the generation that the API server requests.
func TestGenerations(t *testing.T) {
	tests := map[string]struct {
		has     *internalv1alpha1.NamespaceInitializerSet
		path    string
		arrives *internalv1alpha1.NamespaceInitializerSet
		want    int
	}{
		"the generation": {has: withGeneration(3), path: "/inject/3", want: http.StatusOK},
		"a newer one":    {has: withGeneration(4), path: "/inject/3", want: http.StatusOK},
		"an older one":   {has: withGeneration(2), path: "/inject/3", want: http.StatusServiceUnavailable},
		"none":           {path: "/inject/3", want: http.StatusServiceUnavailable},
		"no set exists":  {path: "/inject/0", want: http.StatusOK},
		"it arrives":     {has: withGeneration(2), path: "/inject/3", arrives: withGeneration(3), want: http.StatusOK},
		"it is created":  {path: "/inject/3", arrives: withGeneration(3), want: http.StatusOK},
		"no generation":  {has: withGeneration(3), path: "/inject/", want: http.StatusServiceUnavailable},
		"no number":      {has: withGeneration(3), path: "/inject/x", want: http.StatusServiceUnavailable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				sets := newSets()
				if test.has != nil {
					sets.set(test.has)
				}
				handle := sets.webhooks()[0].Handle
				answered := make(chan error, 1)
				go func() {
					_, err := handle(t.Context(), &webhooks.Request{
						Subpath: strings.TrimPrefix(test.path, pathInject), Object: []byte(`{"metadata":{"name":"web"}}`),
					})
					answered <- err
				}()
				synctest.Wait()
				if test.arrives != nil {
					g.Expect(answered).NotTo(Receive())
					sets.set(test.arrives)
				}
				g.Expect(<-answered == nil).To(Equal(test.want == http.StatusOK))
			})
		})
	}
}

func withGeneration(generation int64) *internalv1alpha1.NamespaceInitializerSet {
	set := cases.Set()
	set.Generation = generation
	return set
}
