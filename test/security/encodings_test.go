// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
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

// CBOR is an alpha feature, so these specs enable it on a second API server.
var _ = Describe("An API server that accepts CBOR", Ordered, func() {
	var ordinary *framework.User

	BeforeAll(func(ctx context.Context) {
		ordinary = cluster.StartSecondAPIServer(ctx, "--feature-gates=CBORServingAndStorage=true").As(cluster.Ordinary)
	}, NodeTimeout(5*time.Minute))

	It("injects the pending list into a new namespace", func(ctx context.Context) {
		cluster.Register(ctx, "cbor", "absent.test.example.com")
		expectInjected(ctx, ordinary)
		for description, metadata := range map[string][]byte{
			"plain":           cborMap("name", cborText("cbor-1")),
			"duplicate names": cborMap("name", cborText("kube-system"), "name", cborText("cbor-2")),
			"forged": cborMap("name", cborText("cbor-3"), "labels", cborMap(labelKey, cborText("")),
				"annotations", cborMap(pendingKey, cborText(""), requesterKey, cborText("mallory"))),
			"null":        cborMap("name", cborText("cbor-4"), "labels", []byte{0xf6}, "annotations", []byte{0xf6}),
			"byte string": cborMap("name", append([]byte{0x46}, "cbor-5"...)),
		} {
			By(description)
			created, err := send(ctx, ordinary, http.MethodPost, "/api/v1/namespaces", cborType,
				cborMap("apiVersion", cborText("v1"), "kind", cborText("Namespace"), "metadata", metadata))
			if err != nil {
				Expect(err).To(Or(HaveCode(http.StatusBadRequest), HaveCode(http.StatusUnprocessableEntity)))
				continue
			}
			Expect(created["metadata"]).To(HaveKeyWithValue("labels", HaveKeyWithValue(labelKey, "true")))
			Expect(created["metadata"]).To(HaveKeyWithValue("annotations", And(
				HaveKeyWithValue(pendingKey, "absent.test.example.com"), HaveKeyWithValue(requesterKey, framework.OrdinaryUser))))
		}
	}, SpecTimeout(2*specTimeout))

	It("does not let an ordinary user change the state of an initialization", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "cbor-state")
		for description, metadata := range map[string][]byte{
			"an empty list":             cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, cborText(""))),
			"an empty label":            cborMap("name", cborText(namespace.Name), "labels", cborMap(labelKey, cborText(""))),
			"duplicate keys":            cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, cborText("absent.test.example.com"), pendingKey, cborText(""))),
			"another creator":           cborMap("name", cborText(namespace.Name), "annotations", cborMap(requesterKey, cborText("mallory"))),
			"an indefinite-length list": cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, []byte{0x7f, 0x60, 0xff})),
		} {
			By(description)
			body := cborMap("apiVersion", cborText("v1"), "kind", cborText("Namespace"), "metadata", metadata)
			for _, subresource := range []string{"", "status"} {
				_, _ = send(ctx, ordinary, http.MethodPatch, pathOf(namespace, subresource)+"?fieldManager=x&force=true", applyCBORType, body)
				_, _ = send(ctx, ordinary, http.MethodPut, pathOf(namespace, subresource), cborType, body)
				expectUnchanged(ctx, namespace)
			}
		}
	}, SpecTimeout(specTimeout))

	It("does not let an ordinary user write to an initializing namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "cbor-content")
		body, err := direct.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}})
		Expect(err).NotTo(HaveOccurred())
		path := "/api/v1/namespaces/" + namespace.Name + "/configmaps"
		_, err = send(ctx, ordinary, http.MethodPost, path, cborType, body)
		Expect(err).To(BeForbiddenBy("gate"))
		_, err = send(ctx, ordinary, http.MethodPatch, path+"/a?fieldManager=x", applyCBORType, body)
		Expect(err).To(BeForbiddenBy("gate"))
	}, SpecTimeout(specTimeout))
})

// expectInjected waits until an API server injects the pending list into new namespaces.
func expectInjected(ctx context.Context, user *framework.User) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		created, err := send(ctx, user, http.MethodPost, "/api/v1/namespaces?dryRun=All", jsonType,
			[]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"probe-"}}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(created["metadata"]).To(HaveKeyWithValue("labels", HaveKey(labelKey)))
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
}

// cborMap encodes a map with fewer than 24 entries. The map can contain duplicate keys.
func cborMap(entries ...any) []byte {
	encoded := []byte{0xa0 | byte(len(entries)/2)}
	for _, entry := range entries {
		switch value := entry.(type) {
		case string:
			encoded = append(encoded, cborText(value)...)
		case []byte:
			encoded = append(encoded, value...)
		}
	}
	return encoded
}

// cborText encodes a text string of fewer than 256 bytes.
func cborText(text string) []byte {
	return append([]byte{0x78, byte(len(text))}, text...)
}
