// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A terminating namespace that was being initialized", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = cluster.CreateInitializing(ctx, "terminating")
		for _, object := range []client.Object{wrappers.MakePod("", "held"), wrappers.MakeConfigMap("", "untouched")} {
			object.SetNamespace(namespace.Name)
			object.SetFinalizers([]string{"test.example.com/hold"})
			Eventually(cluster.Initializer.Create).WithContext(ctx).WithArguments(object).Should(Succeed())
			DeferCleanup(func(ctx context.Context) { _ = cluster.Admin.Patch(ctx, object, withoutFinalizers) })
		}
		cluster.Ordinary.Deletes(ctx, namespace)
		// The operator deletes Pods first, so the ConfigMap is not terminating yet.
		Eventually(func(g Gomega) {
			held := &corev1.Pod{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "held"}, held)).To(Succeed())
			g.Expect(held.DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("does not let a user update an object that is not terminating", func(ctx context.Context) {
		Expect(cluster.Ordinary.Patch(ctx, wrappers.MakeConfigMap(namespace.Name, "untouched"),
			framework.MergePatch(`{"data":{"a":"b"}}`))).To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("does not let a user add an ephemeral container, even to a terminating Pod", func(ctx context.Context) {
		_, err := cluster.Ordinary.Clientset().CoreV1().Pods(namespace.Name).Patch(ctx, "held", types.StrategicMergePatchType,
			[]byte(`{"spec":{"ephemeralContainers":[{"name":"d","image":"example.com/debug"}]}}`), metav1.PatchOptions{},
			"ephemeralcontainers")
		Expect(err).To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("allows a user to delete an object", func(ctx context.Context) {
		Expect(cluster.Ordinary.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "untouched"), client.DryRunAll)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("allows a controller without the initialize verb to remove its finalizer from a terminating object", func(ctx context.Context) {
		Expect(cluster.Ordinary.Patch(ctx, wrappers.MakePod(namespace.Name, "held"), withoutFinalizers)).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("The name of a namespace", func() {
	// 19 namespaces with 6 requests each.
	It("does not let an ordinary user write to it during the initialization", func(ctx context.Context) {
		cluster.Register(ctx, "names", "absent.test.example.com")
		for _, name := range reservedNames {
			namespace := framework.CreateNamespace(ctx, cluster.Ordinary, name)
			Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			for _, one := range []write{
				{http.MethodPost, "/api/v1/namespaces/%NAME%/configmaps", jsonType, configMapA},
				{http.MethodPost, "/api/v1/namespaces/%NAME%/configmaps?dryRun=All", jsonType, configMapA},
				{http.MethodPost, "/api/v1/namespaces/%NAME%/serviceaccounts", jsonType,
					`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"generateName":"a-"}}`},
				{http.MethodPatch, "/api/v1/namespaces/%NAME%/configmaps/%NAME%?fieldManager=x", applyYAMLType,
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%NAME%"}}`},
				{http.MethodPatch, "/apis/apps/v1/namespaces/%NAME%/deployments/status?fieldManager=x", applyYAMLType,
					`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"status"},"spec":{"selector":{"matchLabels":` +
						`{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
			} {
				_, err := send(ctx, cluster.Ordinary, one.method, fill(one.path, namespace), one.contentType, []byte(fill(one.body, namespace)))
				Expect(err).To(BeForbiddenBy("gate"), "%s %s", one.method, fill(one.path, namespace))
			}
			_, err := send(ctx, cluster.Ordinary, http.MethodPatch, pathOf(namespace, "status"), mergeType,
				[]byte(`{"metadata":{"annotations":{"`+pendingKey+`":""}}}`))
			Expect(err).To(BeForbiddenBy("guard"))
			expectUnchanged(ctx, namespace)
			cluster.Ordinary.Deletes(ctx, namespace)
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}
	}, SpecTimeout(5*time.Minute))
})

// crd is a CustomResourceDefinition with two versions, v1 and v2, and all subresources.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %PLURAL%.%GROUP%}
spec:
  group: %GROUP%
  names: {kind: %KIND%, plural: %PLURAL%, singular: %SINGULAR%, shortNames: [%SHORT%], listKind: %KIND%List}
  scope: %SCOPE%
  versions:
  - &v
    name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {
      spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {replicas: {type: integer}}},
      status: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {replicas: {type: integer}}}}}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
  - {<<: *v, name: v2, storage: false}
`

// installCRD creates a CustomResourceDefinition until the spec ends.
func installCRD(ctx context.Context, group, plural, singular, kind, short, scope string) {
	GinkgoHelper()
	manifest := strings.NewReplacer("%GROUP%", group, "%PLURAL%", plural, "%SINGULAR%", singular, "%KIND%", kind,
		"%SHORT%", short, "%SCOPE%", scope).Replace(crd)
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	name := plural + "." + group
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "crd", name)
		Expect(err).NotTo(HaveOccurred())
		const services = "/apis/apiregistration.k8s.io/v1/apiservices/"
		for _, path := range []string{"/apis/" + group, services + "v1." + group, services + "v2." + group} {
			Eventually(func() error {
				_, err := send(ctx, cluster.Admin, http.MethodGet, path, jsonType, nil)
				return err
			}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), path)
		}
	})
	_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "wait", "--for=condition=Established", "crd/"+name)
	Expect(err).NotTo(HaveOccurred())
	path := plural
	if plural == "watch" || plural == "proxy" { // The API server does not serve these names in all namespaces.
		path = "namespaces/default/" + plural
	}
	for _, version := range []string{"v1", "v2"} {
		Eventually(func() error {
			_, err := send(ctx, cluster.Admin, http.MethodGet, "/apis/"+group+"/"+version+"/"+path, jsonType, nil)
			return err
		}).WithContext(ctx).Should(Succeed())
	}
}

// write is a request that must be rejected. %NAME% is the initializing namespace.
type write struct{ method, path, contentType, body string }

// otherNames are requests with names that are similar to those of Namespaces. The matrix contains all types and versions.
var otherNames = map[string]write{
	"a path with a percent-encoded name": {http.MethodPost, "/api/v1/namespaces/%NAME%%2fconfigmaps", jsonType, configMapA},
	"a custom resource of kind Namespace": {http.MethodPost, "/apis/kind.%GROUP%/v1/namespaces/%NAME%/spaces", jsonType,
		`{"apiVersion":"kind.%GROUP%/v1","kind":"Namespace","metadata":{"name":"a"}}`},
	"a custom resource with the singular and short name of Namespaces": {http.MethodPost, "/apis/names.%GROUP%/v1/namespaces/%NAME%/areas", jsonType,
		`{"apiVersion":"names.%GROUP%/v1","kind":"Area","metadata":{"name":"a","labels":{"x":"y"}}}`},
}

// notServed are requests that the API server rejects before admission.
var notServed = map[string]write{
	"a body with another namespace": {http.MethodPost, "/api/v1/namespaces/%NAME%/configmaps", jsonType,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`},
	"a path with two slashes": {http.MethodPost, "/api/v1//namespaces/%NAME%/configmaps", jsonType, configMapA},
	"the watch prefix":        {http.MethodPost, "/api/v1/watch/namespaces/%NAME%/configmaps", jsonType, configMapA},
	"the proxy prefix":        {http.MethodPost, "/api/v1/proxy/namespaces/%NAME%/pods/existing", jsonType, configMapA},
	"a POST without a namespace in the path": {http.MethodPost, "/api/v1/configmaps", jsonType,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"%NAME%"}}`},
	"deletecollection in all namespaces": {http.MethodDelete, "/api/v1/configmaps?labelSelector=a%3Db", jsonType, `{}`},
}

const configMapA = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`

// pluralNamespaces are requests for namespaced custom resources with the plural "namespaces", like that of the group
// servicebus.azure.com. Deletions have no body, which would take precedence over a dry run in the query.
var pluralNamespaces = map[string]write{
	"POST": {http.MethodPost, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces", jsonType,
		`{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"a"}}`},
	"POST with generateName": {http.MethodPost, "/apis/%GROUP%/v2/namespaces/%NAME%/namespaces", jsonType,
		`{"apiVersion":"%GROUP%/v2","kind":"Space","metadata":{"generateName":"a-"}}`},
	"POST with the initializing label": {http.MethodPost, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces", jsonType,
		`{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"b","labels":{"nslifecycle.dev/initializing":"true"}}}`},
	"PATCH": {http.MethodPatch, "/apis/%GROUP%/v2/namespaces/%NAME%/namespaces/existing", mergeType, `{"spec":{"replicas":7}}`},
	"apply": {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/existing?fieldManager=x&force=true", applyYAMLType,
		`{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"existing"},"spec":{"replicas":8}}`},
	"apply that creates": {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/c?fieldManager=x&force=true", applyYAMLType,
		`{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"c"}}`},
	"/status": {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/existing/status", mergeType, `{"status":{"replicas":3}}`},
	"/scale": {http.MethodPut, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/existing/scale", jsonType,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"existing","namespace":"%NAME%"},"spec":{"replicas":3}}`},
	"DELETE":           {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/existing", jsonType, ""},
	"deletecollection": {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces", jsonType, ""},
	// The API server also parses <namespace> as the name of the object.
	"PATCH on the short path":        {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%", mergeType, `{"spec":{"replicas":9}}`},
	"apply on the short path":        {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%?fieldManager=x&force=true", applyYAMLType, `{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"%NAME%"}}`},
	"status patch on the short path": {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%/status", mergeType, `{"status":{"replicas":3}}`},
	"DELETE on the short path":       {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%", jsonType, ""},
}

var _ = Describe("The name and the version of a type", Ordered, ContinueOnFailure, func() {
	var (
		namespace, initialized *corev1.Namespace
		group                  string
	)

	BeforeAll(func(ctx context.Context) {
		group = framework.Unique("versions") + ".example.com"
		installCRD(ctx, "kind."+group, "spaces", "space", "Namespace", "sp", "Namespaced")
		installCRD(ctx, "names."+group, "areas", "namespace", "Area", "ns", "Namespaced")
		installCRD(ctx, "plural."+group, "namespaces", "namespace", "Space", "ns", "Namespaced")
		installCRD(ctx, "cluster."+group, "namespaces", "namespace", "Space", "ns", "Cluster")
		initialized = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initialized"))
		namespace = cluster.CreateInitializing(ctx, "versions")
		for path, body := range map[string]string{
			"/apis/plural.%GROUP%/v1/namespaces/%NAME%/namespaces": `{"apiVersion":"plural.%GROUP%/v1","kind":"Space","metadata":{"name":"existing"}}`,
			"/apis/plural.%GROUP%/v2/namespaces/%NAME%/namespaces": `{"apiVersion":"plural.%GROUP%/v2","kind":"Space","metadata":{"name":"%NAME%"}}`,
			"/api/v1/namespaces/%NAME%/configmaps":                 `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"existing","labels":{"a":"b"}}}`,
		} {
			for _, namespace := range []*corev1.Namespace{namespace, initialized} {
				_, err := send(ctx, cluster.Initializer, http.MethodPost, in(path, group, namespace), jsonType, []byte(in(body, group, namespace)))
				Expect(err).NotTo(HaveOccurred())
			}
		}
	}, NodeTimeout(3*specTimeout))

	for name, one := range otherNames {
		It("do not let an ordinary user bypass the gate: "+name, func(ctx context.Context) {
			_, err := send(ctx, cluster.Ordinary, one.method, in(one.path, group, namespace), one.contentType, []byte(in(one.body, group, namespace)))
			Expect(err).To(BeForbiddenBy("gate"))
		}, SpecTimeout(specTimeout))
	}

	for name, one := range notServed {
		It("do not let an ordinary user bypass the API server: "+name, func(ctx context.Context) {
			_, err := send(ctx, cluster.Ordinary, one.method, in(one.path, group, namespace), one.contentType, []byte(in(one.body, group, namespace)))
			Expect(err).To(HaveOccurred())
		}, SpecTimeout(specTimeout))
	}

	for name, one := range pluralNamespaces {
		It("do not let an ordinary user bypass the gate with the plural namespaces: "+name, func(ctx context.Context) {
			spaces := "plural." + group
			_, err := send(ctx, cluster.Ordinary, one.method, in(one.path, spaces, namespace), one.contentType, []byte(in(one.body, spaces, namespace)))
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			if strings.HasSuffix(name, "on the short path") {
				return
			}
			Expect(err).To(BeForbiddenBy("gate", `namespace "`+namespace.Name+`" is being initialized`))
			path := in(one.path, spaces, initialized)
			separator := map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]
			_, err = send(ctx, cluster.Ordinary, one.method, path+separator+dryRunQuery, one.contentType, []byte(in(one.body, spaces, initialized)))
			Expect(err).NotTo(HaveOccurred())
		}, SpecTimeout(specTimeout))
	}

	// The API server interprets the name of such an object as the name of a namespace, so it does
	// not serve such an object by name.
	It("do not let an ordinary user change a Namespace through cluster-scoped objects with the plural namespaces", func(ctx context.Context) {
		spaces := "cluster." + group
		for _, name := range []string{"a", namespace.Name} {
			body := `{"apiVersion":"` + spaces + `/v1","kind":"Space","metadata":{"name":"` + name + `"}}`
			_, err := send(ctx, cluster.Ordinary, http.MethodPost, "/apis/"+spaces+"/v1/namespaces", jsonType, []byte(body))
			Expect(err).NotTo(HaveOccurred())
			for _, subresource := range []string{"", "/status", "/finalize"} {
				_, _ = send(ctx, cluster.Ordinary, http.MethodPatch, "/apis/"+spaces+"/v1/namespaces/"+name+subresource, mergeType,
					[]byte(`{"metadata":{"labels":{"nslifecycle.dev/initializing":null}},"spec":{"replicas":2}}`))
				_, _ = send(ctx, cluster.Ordinary, http.MethodDelete, "/apis/"+spaces+"/v1/namespaces/"+name+subresource, jsonType, []byte(`{}`))
			}
		}
		expectUnchanged(ctx, namespace)
	}, SpecTimeout(specTimeout))
})

// in replaces %GROUP% and %NAME% in a path or a body.
func in(text, group string, namespace *corev1.Namespace) string {
	return strings.NewReplacer("%GROUP%", group, "%NAME%", namespace.Name).Replace(text)
}
