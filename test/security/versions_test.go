// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

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

// otherVersions are requests that use various types, versions, groups and names.
var otherVersions = map[string]write{
	"HorizontalPodAutoscaler v1": {http.MethodPost, "/apis/autoscaling/v1/namespaces/%NAME%/horizontalpodautoscalers", jsonType,
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`},
	"HorizontalPodAutoscaler v2": {http.MethodPost, "/apis/autoscaling/v2/namespaces/%NAME%/horizontalpodautoscalers", jsonType,
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`},
	"Event in the core group": {http.MethodPost, "/api/v1/namespaces/%NAME%/events", jsonType,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a"},"involvedObject":{"namespace":"%NAME%"}}`},
	"Event in events.k8s.io": {http.MethodPost, "/apis/events.k8s.io/v1/namespaces/%NAME%/events", jsonType,
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal","reason":"r","action":"a","reportingController":"example.com/c","reportingInstance":"i","regarding":{"namespace":"%NAME%"}}`},
	"Lease": {http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/%NAME%/leases", jsonType,
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"}}`},
	"PodDisruptionBudget": {http.MethodPost, "/apis/policy/v1/namespaces/%NAME%/poddisruptionbudgets", jsonType,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"a"}}`},
	"CronJob": {http.MethodPost, "/apis/batch/v1/namespaces/%NAME%/cronjobs", jsonType,
		`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"a"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"example.com/i"}]}}}}}}`},
	"EndpointSlice": {http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/%NAME%/endpointslices", jsonType,
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a"},"addressType":"IPv4","endpoints":[]}`},
	"ControllerRevision": {http.MethodPost, "/apis/apps/v1/namespaces/%NAME%/controllerrevisions", jsonType,
		`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"a"},"revision":1,"data":{}}`},
	"Binding": {http.MethodPost, "/api/v1/namespaces/%NAME%/bindings", jsonType,
		`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"existing"},"target":{"kind":"Node","name":"n"}}`},
	"Pod resize": {http.MethodPatch, "/api/v1/namespaces/%NAME%/pods/existing/resize", mergeType,
		`{"spec":{"containers":[{"name":"c","image":"example.com/i","resources":{"requests":{"cpu":"2"}}}]}}`},
	"Secret in a dry run": {http.MethodPost, "/api/v1/namespaces/%NAME%/secrets?dryRun=All", jsonType,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`},
	"a path with a percent-encoded name": {http.MethodPost, "/api/v1/namespaces/%NAME%%2fconfigmaps", jsonType, configMapA},
	"a custom resource in v1": {http.MethodPost, "/apis/%GROUP%/v1/namespaces/%NAME%/gadgets", jsonType,
		`{"apiVersion":"%GROUP%/v1","kind":"Gadget","metadata":{"name":"a"}}`},
	"a custom resource in v2": {http.MethodPost, "/apis/%GROUP%/v2/namespaces/%NAME%/gadgets", jsonType,
		`{"apiVersion":"%GROUP%/v2","kind":"Gadget","metadata":{"name":"a"}}`},
	"an apply of a custom resource in v2": {http.MethodPatch, "/apis/%GROUP%/v2/namespaces/%NAME%/gadgets/existing?fieldManager=x&force=true", applyYAMLType,
		`{"apiVersion":"%GROUP%/v2","kind":"Gadget","metadata":{"name":"existing"},"spec":{"replicas":3}}`},
	"the scale of a custom resource in v2": {http.MethodPut, "/apis/%GROUP%/v2/namespaces/%NAME%/gadgets/existing/scale", jsonType,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"existing","namespace":"%NAME%"},"spec":{"replicas":3}}`},
	"the status of a custom resource in v2": {http.MethodPatch, "/apis/%GROUP%/v2/namespaces/%NAME%/gadgets/existing/status", mergeType, `{"status":{"replicas":3}}`},
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

// pluralNamespaces are requests for namespaced custom resources with the plural "namespaces".
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
	"DELETE":           {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces/existing", jsonType, `{}`},
	"deletecollection": {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%/namespaces", jsonType, `{}`},
	// The API server also parses <namespace> as the name of the object.
	"PATCH on the short path":        {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%", mergeType, `{"spec":{"replicas":9}}`},
	"apply on the short path":        {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%?fieldManager=x&force=true", applyYAMLType, `{"apiVersion":"%GROUP%/v1","kind":"Space","metadata":{"name":"%NAME%"}}`},
	"status patch on the short path": {http.MethodPatch, "/apis/%GROUP%/v1/namespaces/%NAME%/status", mergeType, `{"status":{"replicas":3}}`},
	"DELETE on the short path":       {http.MethodDelete, "/apis/%GROUP%/v1/namespaces/%NAME%", jsonType, `{}`},
}

var _ = Describe("The name and the version of a type", Ordered, ContinueOnFailure, func() {
	var (
		namespace *corev1.Namespace
		group     string
	)

	BeforeAll(func(ctx context.Context) {
		group = framework.Unique("versions") + ".example.com"
		installCRD(ctx, group, "gadgets", "gadget", "Gadget", "gg", "Namespaced")
		installCRD(ctx, "kind."+group, "spaces", "space", "Namespace", "sp", "Namespaced")
		installCRD(ctx, "names."+group, "areas", "namespace", "Area", "ns", "Namespaced")
		installCRD(ctx, "plural."+group, "namespaces", "namespace", "Space", "ns", "Namespaced")
		installCRD(ctx, "cluster."+group, "namespaces", "namespace", "Space", "ns", "Cluster")
		namespace = cluster.CreateInitializing(ctx, "versions")
		for path, body := range map[string]string{
			"/apis/%GROUP%/v1/namespaces/%NAME%/gadgets":           `{"apiVersion":"%GROUP%/v1","kind":"Gadget","metadata":{"name":"existing"}}`,
			"/apis/plural.%GROUP%/v1/namespaces/%NAME%/namespaces": `{"apiVersion":"plural.%GROUP%/v1","kind":"Space","metadata":{"name":"existing"}}`,
			"/apis/plural.%GROUP%/v2/namespaces/%NAME%/namespaces": `{"apiVersion":"plural.%GROUP%/v2","kind":"Space","metadata":{"name":"%NAME%"}}`,
			"/api/v1/namespaces/%NAME%/configmaps":                 `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"existing","labels":{"a":"b"}}}`,
			"/api/v1/namespaces/%NAME%/pods":                       `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"existing"},"spec":{"containers":[{"name":"c","image":"example.com/i","resources":{"requests":{"cpu":"1"}}}]}}`,
		} {
			_, err := send(ctx, cluster.Initializer, http.MethodPost, in(path, group, namespace), jsonType, []byte(in(body, group, namespace)))
			Expect(err).NotTo(HaveOccurred())
		}
	}, NodeTimeout(3*specTimeout))

	for name, one := range otherVersions {
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
