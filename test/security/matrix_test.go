// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// matrixExceptions are the namespaced resources whose requests the gate does not see, with the reason.
var matrixExceptions = map[string]string{
	"localsubjectaccessreviews.authorization.k8s.io": "the API server exempts access reviews from admission; " +
		"they change no object",
}

// matrixGroup is the group of a custom resource with the subresources status and scale.
const matrixGroup = "matrix.test.example.com"

const matrixExisting, matrixNew = "existing", "new"

// Options of a dry run, in a query or in the body of a DELETE.
const dryRunQuery, dryRunBody = "dryRun=All", `{"dryRun":["All"]}`

// matrixObjects are the bodies of the resources without a fixture, or that must differ from it, and of the
// subresources that can only be created.
var matrixObjects = map[string]object{
	"bindings": {"target": object{"kind": "Node", "name": "n"}},
	"pods": {"spec": object{"restartPolicy": "Never", "containers": []any{object{
		"name": "c", "image": "example.com/c", "resources": object{"requests": object{"cpu": "1"}},
	}}}},
	"widgets." + matrixGroup: {"spec": object{"replicas": 1}},
	// Two groups serve the same Events, so these must be equal.
	"events": {
		"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
		"reportingComponent": "example.com/c", "reportingInstance": "i", "involvedObject": object{"namespace": "%NAME%"},
	},
	"events.events.k8s.io": {
		"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
		"reportingController": "example.com/c", "reportingInstance": "i", "regarding": object{"namespace": "%NAME%"},
	},
	"pods/binding": {
		"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": matrixExisting},
		"target": object{"kind": "Node", "name": "n"},
	},
	"pods/eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": matrixExisting}},
	"serviceaccounts/token": {
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{"audiences": []any{"a"}},
	},
}

// parts returns the name of the resource, with its group, and that of the subresource.
func (r resource) parts() (name, subresource string) {
	name, subresource, _ = strings.Cut(r.Name, "/")
	return schema.GroupResource{Group: r.version.Group, Resource: name}.String(), subresource
}

// manifest returns the body of an object with the API version under which the resource is served.
func (r resource) manifest(name string) object {
	GinkgoHelper()
	resource, _ := r.parts()
	manifest := maps.Clone(matrixObjects[resource])
	if manifest == nil {
		fixture := fixturesByKind()[schema.GroupKind{Group: r.version.Group, Kind: r.Kind}]
		Expect(fixture).NotTo(BeNil(), "add a fixture for %s, or an exception with its reason", resource)
		manifest = fixture.DeepCopy().Object
	}
	metadata := object{"name": name}
	if name == "" {
		metadata = object{"generateName": "generated-"}
	}
	manifest["apiVersion"], manifest["kind"], manifest["metadata"] = r.version.String(), r.Kind, metadata
	return manifest
}

// listServed returns the namespaced resources of all groups, versions and kinds, built in and custom.
func listServed() []resource {
	GinkgoHelper()
	_, lists, err := cluster.Admin.Clientset().Discovery().ServerGroupsAndResources()
	Expect(err).NotTo(HaveOccurred())
	var found []resource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		if strings.HasSuffix(version.Group, ".example.com") && version.Group != matrixGroup {
			continue // Another spec has created the type.
		}
		for _, listed := range list.APIResources {
			one := resource{APIResource: listed, version: version}
			name, _ := one.parts()
			if _, isException := matrixExceptions[name]; listed.Namespaced && !isException {
				found = append(found, one)
			}
		}
	}
	return found
}

// patches returns all kinds of patches of an object or a subresource. current is what a GET returns.
func patches(one resource, path string, current map[string]any) []write {
	change := map[string]any{"metadata": map[string]any{"labels": map[string]string{"attack": "x"}}}
	applied := map[string]any{
		"apiVersion": current["apiVersion"], "kind": current["kind"],
		"metadata": map[string]any{"name": matrixExisting, "labels": map[string]string{"attack": "x"}},
	}
	_, subresource := one.parts()
	switch subresource {
	case "scale":
		change = map[string]any{"spec": map[string]any{"replicas": 5}}
		applied["metadata"], applied["spec"] = map[string]any{"name": matrixExisting}, change["spec"]
	case "":
		for key, value := range one.manifest(matrixExisting) {
			if key != "metadata" {
				applied[key] = value
			}
		}
	}
	result := []write{
		{http.MethodPatch, path, mergeType, string(mustEncode(change))},
		{http.MethodPatch, path + "?" + dryRunQuery, mergeType, string(mustEncode(change))},
		{http.MethodPatch, path, "application/json-patch+json", `[{"op":"test","path":"/kind","value":"` +
			fmt.Sprint(current["kind"]) + `"}]`},
	}
	isBuiltIn := one.version.Group != matrixGroup
	if isBuiltIn { // The API server does not support this for custom resources.
		result = append(result, write{http.MethodPatch, path, "application/strategic-merge-patch+json",
			string(mustEncode(change))})
	}
	if isBuiltIn || subresource != "scale" {
		result = append(result, write{http.MethodPatch, path + "?fieldManager=attack&force=true", applyYAMLType,
			string(mustEncode(applied))})
	}
	return result
}

// attempts returns all requests that write to a resource or a subresource.
func attempts(ctx context.Context, one resource, namespace string) []write {
	GinkgoHelper()
	resource, subresource := one.parts()
	object := one.path(namespace, matrixExisting)
	if subresource == "proxy" || one.Kind == "PodExecOptions" || one.Kind == "PodAttachOptions" ||
		one.Kind == "PodPortForwardOptions" {
		return connections(one, object)
	}
	var result []write
	if one.serves("create") {
		bodies := []map[string]any{matrixObjects[one.Name]}
		path := object
		if subresource == "" {
			path = one.path(namespace, "")
			bodies = []map[string]any{one.manifest(matrixNew), one.manifest("")}
			if !one.serves("get") { // The name of a Binding is that of a Pod.
				bodies = []map[string]any{one.manifest(matrixExisting)}
			}
		}
		for _, body := range bodies {
			Expect(body).NotTo(BeNil(), "add a body for %s", one.Name)
			text := string(mustEncode(body))
			result = append(result, write{http.MethodPost, path, jsonType, text},
				write{http.MethodPost, path + "?" + dryRunQuery, jsonType, text})
		}
		if subresource == "" && one.serves("patch") {
			result = append(result, write{http.MethodPatch, one.path(namespace, matrixNew) + "?fieldManager=attack",
				applyYAMLType, string(mustEncode(one.manifest(matrixNew)))})
		}
	}
	if one.serves("update") || one.serves("patch") {
		current, err := send(ctx, cluster.Admin, http.MethodGet, object, jsonType, nil)
		Expect(err).NotTo(HaveOccurred(), "%s of %s", one.Name, resource)
		if one.serves("update") {
			text := string(mustEncode(current))
			result = append(result, write{http.MethodPut, object, jsonType, text},
				write{http.MethodPut, object + "?" + dryRunQuery, jsonType, text})
		}
		if one.serves("patch") {
			result = append(result, patches(one, object, current)...)
		}
	}
	if one.serves("delete") {
		result = append(result, deletions(object)...)
	}
	if one.serves("deletecollection") {
		result = append(result, deletions(one.path(namespace, ""))...)
	}
	return result
}

// deletions returns requests with options in the query and in the body, which takes precedence.
func deletions(path string) []write {
	result := []write{
		{http.MethodDelete, path, jsonType, ""}, {http.MethodDelete, path + "?" + dryRunQuery, jsonType, ""},
	}
	for _, options := range []string{
		`{}`, dryRunBody, `{"propagationPolicy":"Orphan"}`, `{"propagationPolicy":"Foreground"}`,
		`{"gracePeriodSeconds":0}`,
	} {
		result = append(result, write{http.MethodDelete, path, jsonType, options})
	}
	return result
}

// connections returns requests with all methods to a subresource that is a connection.
func connections(one resource, path string) []write {
	query := "?command=true&container=c&ports=80&stdout=true"
	methods := []string{http.MethodGet, http.MethodPost}
	if strings.HasSuffix(one.Name, "/proxy") {
		query, methods = "", append(methods, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead)
	}
	var result []write
	for _, method := range methods {
		result = append(result, write{method, path + query, jsonType, ""})
		if strings.HasSuffix(one.Name, "/proxy") {
			result = append(result, write{method, path + "/any/path", jsonType, ""})
		}
	}
	return result
}

// The matrix covers what the API server serves, so that a new resource, subresource or version cannot be
// forgotten. It takes more than 5 s because of the number of requests.
var _ = Describe("All namespaced resources that the API server serves", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	// versions returns the resource versions of all objects of a resource by name.
	versions := func(ctx context.Context, one resource) map[string]string {
		GinkgoHelper()
		list, err := send(ctx, cluster.Admin, http.MethodGet, one.path(namespace.Name, ""), jsonType, nil)
		Expect(err).NotTo(HaveOccurred())
		found := map[string]string{}
		for _, item := range list["items"].([]any) {
			metadata := item.(map[string]any)["metadata"].(map[string]any)
			found[metadata["name"].(string)] = metadata["resourceVersion"].(string)
		}
		return found
	}

	do := func(ctx context.Context, user *framework.User, request write) error {
		GinkgoHelper()
		_, err := send(ctx, user, request.method, request.path, request.contentType, []byte(fill(request.body, namespace)))
		return err
	}

	BeforeAll(func(ctx context.Context) {
		installCRD(ctx, matrixGroup, "widgets", "widget", "Widget", "wdg", "Namespaced")
		namespace = cluster.CreateInitializing(ctx, "matrix")
		Eventually(func() error {
			return cluster.Initializer.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "first"))
		}).WithContext(ctx).Should(Succeed())
		created := map[string]bool{}
		for _, one := range listServed() {
			resource, subresource := one.parts()
			if subresource != "" || created[resource] || !one.serves("create") || !one.serves("get") {
				continue
			}
			created[resource] = true
			// Two groups serve the same Events.
			Expect(do(ctx, cluster.Initializer, write{http.MethodPost, one.path(namespace.Name, ""), jsonType,
				string(mustEncode(one.manifest(matrixExisting)))})).To(Or(Succeed(), HaveCode(http.StatusConflict)), resource)
		}
	}, NodeTimeout(specTimeout))

	It("reject each write of an ordinary user to an initializing namespace", func(ctx context.Context) {
		requests, resources, accepted := map[string]int{}, 0, []string{}
		for _, one := range listServed() {
			resource, subresource := one.parts()
			isStored := subresource == "" && one.serves("list")
			var before map[string]string
			if isStored {
				before = versions(ctx, one)
				Expect(before).To(HaveKey(matrixExisting), resource)
			}
			for _, request := range attempts(ctx, one, namespace.Name) {
				err := do(ctx, cluster.Ordinary, request)
				rejected := BeForbiddenBy("gate")
				if request.method == http.MethodHead {
					rejected = HaveCode(http.StatusForbidden) // The response has no body.
				}
				if isRejected, _ := rejected.Match(err); !isRejected {
					accepted = append(accepted, fmt.Sprintf("%s %s %s: %v", request.method, request.path, request.body, err))
				}
				requests[request.method]++
			}
			if isStored {
				Expect(versions(ctx, one)).To(Equal(before), resource)
			}
			resources++
		}
		Expect(strings.Join(accepted, "\n")).To(BeEmpty())
		expectUnchanged(ctx, namespace)
		AddReportEntry("resources and subresources", resources)
		AddReportEntry("rejected requests by method", requests)
		Expect(resources).To(BeNumerically(">", 60), "the discovery document is not complete")
	}, SpecTimeout(specTimeout))

	It("accept the same dry runs and connections of an initializer", func(ctx context.Context) {
		rejected := []string{}
		for _, one := range listServed() {
			_, subresource := one.parts()
			for _, request := range attempts(ctx, one, namespace.Name) {
				isConnection := subresource != "" && request.body == ""
				if !strings.Contains(request.path, dryRunQuery) && request.body != dryRunBody && !isConnection {
					continue
				}
				err := do(ctx, cluster.Initializer, request)
				if subresource != "" && err != nil && !strings.Contains(err.Error(), "nslifecycle-") {
					continue // It requires a kubelet, for example.
				}
				if err != nil {
					rejected = append(rejected, fmt.Sprintf("%s %s %s: %v", request.method, request.path, request.body, err))
				}
			}
		}
		Expect(strings.Join(rejected, "\n")).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("include those that are exempt, and only for the documented reasons", func(ctx context.Context) {
		exempt := map[string]string{
			"/apis/authorization.k8s.io/v1/namespaces/" + namespace.Name + "/localsubjectaccessreviews": string(mustEncode(
				map[string]any{
					"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
					"metadata": map[string]any{"namespace": namespace.Name},
					"spec": map[string]any{"user": framework.OrdinaryUser, "resourceAttributes": map[string]any{
						"namespace": namespace.Name, "verb": "get", "resource": "pods",
					}},
				})),
		}
		Expect(exempt).To(HaveLen(len(matrixExceptions)))
		for path, body := range exempt {
			_, err := send(ctx, cluster.Ordinary, http.MethodPost, path, jsonType, []byte(body))
			Expect(err).NotTo(HaveOccurred(), path)
		}
	}, SpecTimeout(specTimeout))
})
