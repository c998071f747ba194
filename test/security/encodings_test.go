// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

const (
	jsonType      = "application/json"
	yamlType      = "application/yaml"
	protobufType  = "application/vnd.kubernetes.protobuf"
	cborType      = "application/cbor"
	mergeType     = "application/merge-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	applyYAMLType = "application/apply-patch+yaml"
	applyCBORType = "application/apply-patch+cbor"
)

// onObject is a request to the initializing namespace %NAME%. It tries to complete the
// initialization, or to change its state, with a body that a decoder or patch handler might
// interpret differently from the policies.
type onObject struct{ contentType, subresource, body string }

const (
	pendingKey   = v1alpha1.AnnotationPendingInitializers
	labelKey     = v1alpha1.LabelInitializing
	requesterKey = v1alpha1.AnnotationRequestedBy
)

var hostileUpdates = map[string]onObject{
	"a merge patch that contains the list twice": {mergeType, "",
		`{"metadata":{"annotations":{"` + pendingKey + `":"absent.test.example.com","` + pendingKey + `":""}}}`},
	"a merge patch that contains metadata twice": {mergeType, "",
		`{"metadata":{"labels":{"a":"b"}},"metadata":{"annotations":{"` + pendingKey + `":""},"labels":{"` + labelKey + `":null}}}`},
	"a merge patch with keys in another case": {mergeType, "",
		`{"Metadata":{"annotations":{"` + pendingKey + `":""}},"metadata":{"Annotations":{"` + pendingKey + `":""},"labels":{"` + labelKey + `":null}}}`},
	"a merge patch that sets annotations to null": {mergeType, "", `{"metadata":{"annotations":null,"labels":null}}`},
	"a merge patch that sets metadata to null":    {mergeType, "", `{"metadata":null}`},
	"a merge patch with an empty label value":     {mergeType, "", `{"metadata":{"labels":{"` + labelKey + `":""}}}`},
	"a strategic merge patch that replaces metadata": {strategicType, "",
		`{"metadata":{"$patch":"replace","name":"%NAME%"}}`},
	"a strategic merge patch that deletes annotations": {strategicType, "",
		`{"metadata":{"annotations":{"$patch":"delete"}}}`},
	"a strategic merge patch that replaces annotations": {strategicType, "",
		`{"metadata":{"annotations":{"$patch":"replace","a":"b"},"labels":{"$patch":"replace","a":"b"}}}`},
	"a strategic merge patch that retains one key": {strategicType, "",
		`{"metadata":{"$retainKeys":["name"],"name":"%NAME%"}}`},
	"a strategic merge patch on /status that deletes labels": {strategicType, "status",
		`{"metadata":{"labels":{"$patch":"delete"}}}`},
	"a JSON patch that copies an empty value to the list": {jsonPatchType, "",
		`[{"op":"add","path":"/metadata/annotations/a","value":""},` +
			`{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/nslifecycle.dev~1pending-initializers"}]`},
	"a JSON patch that moves the list to another annotation": {jsonPatchType, "",
		`[{"op":"move","from":"/metadata/annotations/nslifecycle.dev~1pending-initializers","path":"/metadata/annotations/a"},` +
			`{"op":"remove","path":"/metadata/labels/nslifecycle.dev~1initializing"}]`},
	"a JSON patch that replaces metadata/annotations": {jsonPatchType, "",
		`[{"op":"replace","path":"/metadata/annotations","value":{}},{"op":"replace","path":"/metadata/labels","value":{}}]`},
	"a JSON patch on /finalize that removes the label": {jsonPatchType, "finalize",
		`[{"op":"remove","path":"/metadata/labels/nslifecycle.dev~1initializing"}]`},
	"a YAML apply that contains the list twice": {applyYAMLType, "?fieldManager=x&force=true",
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %NAME%\n  annotations:\n    " + pendingKey + ": absent.test.example.com\n    " + pendingKey + ": \"\"\n"},
	"a YAML apply with anchors": {applyYAMLType, "?fieldManager=x&force=true",
		"apiVersion: v1\nkind: Namespace\nmetadata: &m\n  name: %NAME%\n  labels: &l {" + labelKey + ": \"\"}\n  annotations: {" + pendingKey + ": \"\"}\n"},
	"an apply of an empty list": {applyYAMLType, "?fieldManager=x&force=true",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","annotations":{"` + pendingKey + `":""}}}`},
	"an apply of an empty list to /status": {applyYAMLType, "status?fieldManager=x&force=true",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","annotations":{"` + pendingKey + `":""}}}`},
	"an apply that changes the requester": {applyYAMLType, "?fieldManager=x&force=true",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","annotations":{"` + requesterKey + `":"mallory"}}}`},
	"a merge patch that empties the list and resets managedFields": {mergeType, "",
		`{"metadata":{"annotations":{"` + pendingKey + `":""},"managedFields":[{}]}}`},
}

var _ = Describe("The encoding of a request", func() {
	It("does not let an ordinary user change the state of an initialization", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "encoding")
		for name, attack := range hostileUpdates {
			By(name)
			_, _ = send(ctx, cluster.Ordinary, http.MethodPatch, pathOf(namespace, attack.subresource),
				attack.contentType, []byte(fill(attack.body, namespace)))
			expectUnchanged(ctx, namespace)
		}
	}, SpecTimeout(specTimeout))

	It("does not let an ordinary user change the state of an initialization with a protobuf body", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "protobuf")
		for name, change := range map[string]func(*corev1.Namespace){
			"without labels and annotations": func(n *corev1.Namespace) { n.Labels, n.Annotations = nil, nil },
			"with an empty list":             func(n *corev1.Namespace) { n.Annotations[pendingKey] = "" },
			"with another requester":         func(n *corev1.Namespace) { n.Annotations[requesterKey] = "mallory" },
			"without the label":              func(n *corev1.Namespace) { delete(n.Labels, labelKey) },
		} {
			for _, subresource := range []string{"", "status", "finalize"} {
				By(name + " on /" + subresource)
				changed := namespace.DeepCopy()
				changed.ResourceVersion = ""
				change(changed)
				_, _ = send(ctx, cluster.Ordinary, http.MethodPut, pathOf(namespace, subresource), protobufType, inProtobuf(changed))
				expectUnchanged(ctx, namespace)
			}
		}
	}, SpecTimeout(specTimeout))

	It("does not let an ordinary user prevent the injection into a new namespace", func(ctx context.Context) {
		cluster.Register(ctx, "create-encoding", "absent.test.example.com")
		forged := `"labels":{"` + labelKey + `":"","nslifecycle.dev/x":"y"},"annotations":{"` + pendingKey + `":"","` + requesterKey + `":"mallory"}`
		for contentType, bodies := range map[string][]string{
			jsonType: {
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%"}}`,
				`{"metadata":{"name":"%NAME%",` + forged + `}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"},"metadata":{"name":"%NAME%",` + forged + `}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","name":"%NAME%","labels":null,"annotations":null},"spec":null,"status":{"phase":"Terminating","conditions":[{"type":"Initializing","status":"False"}]}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"%NAME%-","labels":{},"annotations":{},"uid":"x","managedFields":[]},"unknown":{"a":[null]}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","NAME":"kube-system","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}],"finalizers":["example.com/x"],"deletionTimestamp":"2020-01-01T00:00:00Z"}}`,
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%","labels":{"kubernetes.io/metadata.name":"kube-system"}}}`,
			},
			yamlType: {
				"apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-public, name: %NAME%}\n",
				"apiVersion: v1\nkind: Namespace\nmetadata: &m\n  name: &n %NAME%\n  labels: {a: *n}\n",
			},
			protobufType: {string(inProtobuf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "protobuf-", Labels: map[string]string{labelKey: ""},
				Annotations: map[string]string{pendingKey: "", requesterKey: "mallory"},
			}}))},
		} {
			for _, body := range bodies {
				name := framework.Unique("create")
				By(contentType + " " + body)
				created, err := send(ctx, cluster.Ordinary, http.MethodPost, "/api/v1/namespaces", contentType,
					[]byte(fill(body, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})))
				Expect(err).NotTo(HaveOccurred())
				namespace := &corev1.Namespace{}
				Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(created, namespace)).To(Succeed())
				Expect(namespace.Labels).To(HaveKeyWithValue(labelKey, "true"))
				Expect(framework.PendingOf(namespace)).To(Equal("absent.test.example.com"))
				Expect(namespace.Annotations).To(HaveKeyWithValue(requesterKey, framework.OrdinaryUser))
				Expect(cluster.Admin.Patch(ctx, namespace, withoutFinalizers)).To(Succeed())
			}
		}
	}, SpecTimeout(specTimeout))

	It("does not let an ordinary user bypass the gate with a protobuf body", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "content-protobuf")
		body := inProtobuf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		_, err := send(ctx, cluster.Ordinary, http.MethodPost, "/api/v1/namespaces/"+namespace.Name+"/configmaps", protobufType, body)
		Expect(err).To(BeForbiddenBy("gate"))
	}, SpecTimeout(specTimeout))

	It("is rejected if it is CBOR and CBOR is not enabled", func(ctx context.Context) {
		_, err := send(ctx, cluster.Ordinary, http.MethodPost, "/api/v1/namespaces", cborType, []byte{0xd9, 0xd9, 0xf7, 0xa0})
		Expect(err).To(HaveCode(http.StatusUnsupportedMediaType))
	}, SpecTimeout(specTimeout))
})

// inProtobuf encodes an object in the core group.
func inProtobuf(object runtime.Object) []byte {
	GinkgoHelper()
	serializer := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	encoded, err := runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(serializer, corev1.SchemeGroupVersion), object)
	Expect(err).NotTo(HaveOccurred())
	return encoded
}
