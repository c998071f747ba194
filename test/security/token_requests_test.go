// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// change is a change of an object that the attacker tries. The part names what it changes.
type change struct {
	part  string
	apply func(object map[string]any)
}

// object and values are values of fields.
type (
	object = map[string]any
	values = []any
)

// set returns a change that sets a field.
func set(part string, value any, fields ...string) change {
	return change{part, func(current map[string]any) {
		Expect(unstructured.SetNestedField(current, runtime.DeepCopyJSONValue(value), fields...)).To(Succeed())
	}}
}

// annotate returns a change that sets an annotation of the operator.
func annotate(key, value string) change {
	return set("annotation "+code(key), value, "metadata", "annotations", key)
}

// metadataChanges are tried on all objects.
var metadataChanges = []change{
	set("labels", "x", "metadata", "labels", group),
	set("annotations", "x", "metadata", "annotations", group),
	set("finalizers", values{group + "/a"}, "metadata", "finalizers"),
	set("owner references", values{object{"apiVersion": "v1", "kind": "Node", "name": fixture, "uid": "a"}},
		"metadata", "ownerReferences"),
}

var (
	// otherRule makes a policy or webhook select requests that no client sends, so that other attempts are not affected.
	otherRule = object{"apiGroups": values{"other." + group}, "apiVersions": values{"*"}, "operations": values{"CREATE"},
		"resources": values{"*"}, "scope": "*"}
	condition = object{"type": group + "/A", "status": "True", "reason": "A", "message": "m",
		"lastTransitionTime": "2026-01-01T00:00:00Z"}
	aboutNamespace     = object{"apiVersion": "v1", "kind": "Namespace", "name": fixture}
	aboutTemplate      = object{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate", "name": fixture}
	aboutConfiguration = object{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceInitializerConfiguration", "name": fixture,
	}
	noPatch       = `[JSONPatch{op: "test", path: "/kind", value: "Namespace"}]`
	policyChanges = []change{
		set("selected requests", values{otherRule}, "spec", "matchConstraints", "resourceRules"),
		set("match conditions", values{object{"name": "never", "expression": "false"}}, "spec", "matchConditions"),
		{"failurePolicy", func(current map[string]any) { toggle(current, "failurePolicy", "spec") }},
	}
	bindingChanges = []change{set("selected requests", values{otherRule}, "spec", "matchResources", "resourceRules")}
	webhookChanges = []change{
		inWebhooks("selected requests", "rules", values{otherRule}),
		inWebhooks("client", "clientConfig", object{"url": "https://localhost:1/"}),
		inWebhooks("match conditions", "matchConditions", values{object{"name": "never", "expression": "false"}}),
		{"failurePolicy", func(current map[string]any) {
			for _, webhook := range current["webhooks"].([]any) {
				toggle(webhook.(map[string]any), "failurePolicy")
			}
		}},
	}
	conditions = []change{set("conditions", values{condition}, "status", "conditions")}
)

// planted is the name of another field manager, and plantManager a change after which its next server-side apply would
// remove a label.
const planted = "gitops"

var plantManager = change{"managedFields of other clients", func(current map[string]any) {
	entries, _, _ := unstructured.NestedSlice(current, "metadata", "managedFields")
	Expect(unstructured.SetNestedSlice(current, append(entries, object{
		"manager": planted, "operation": "Apply", "apiVersion": current["apiVersion"], "fieldsType": "FieldsV1",
		"time": "2026-01-01T00:00:00Z", "fieldsV1": object{"f:metadata": object{"f:labels": object{"f:kept": object{}}}},
	}), "metadata", "managedFields")).To(Succeed())
}}

// hasPlanted reports whether an object has the entry of the other field manager.
func hasPlanted(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == planted })
}

// namespaceChanges are tried on Namespaces and on their subresources.
var namespaceChanges = []change{
	plantManager,
	set("label `pod-security.kubernetes.io/enforce`", "privileged", "metadata", "labels",
		"pod-security.kubernetes.io/enforce"),
	set("label "+code(v1alpha1.LabelInitializing), "true", "metadata", "labels", v1alpha1.LabelInitializing),
	annotate(v1alpha1.AnnotationPendingInitializers, ""),
	annotate(v1alpha1.AnnotationInitializationResult, failure),
	annotate(v1alpha1.AnnotationInitializers, "x"),
	annotate(v1alpha1.AnnotationRequestedBy, "x"),
	annotate(v1alpha1.AnnotationAppliedTemplates, "{}"),
	annotate(v1alpha1.AnnotationTurnStartedAt, fixture+" 2020-01-01T00:00:00Z"),
	set("finalizers of the operator", values{v1alpha1.FinalizerTemplateObjects}, "metadata", "finalizers"),
}

// contentChanges are the changes of the content of a type or of a subresource.
var contentChanges = map[string][]change{
	"namespaces": namespaceChanges,
	"namespaces/status": append([]change{
		{"conditions of other controllers", func(current map[string]any) { addCondition(current, group+"/A") }},
		{"conditions", func(current map[string]any) { addCondition(current, v1alpha1.ConditionInitializing) }},
		{"condition " + code(v1alpha1.ConditionInitializationBlocked), func(current map[string]any) {
			addCondition(current, v1alpha1.ConditionInitializationBlocked)
		}},
		set("phase", "Terminating", "status", "phase"),
	}, namespaceChanges...),
	"namespaces/finalize": append([]change{
		set("removal of namespace finalizers", values{}, "spec", "finalizers"),
		set("namespace finalizers", values{"kubernetes", group + "/a"}, "spec", "finalizers"),
	}, namespaceChanges...),
	"clusterroles.rbac.authorization.k8s.io": {
		plantManager,
		addRule("all permissions", values{"*"}, "*", "*"),
		addRule("reading all content", values{"get"}, "", "secrets"),
		addRule("writing content", values{"list", "watch", "delete", "patch"}, "", "configmaps"),
		addRule("deletion of cluster-scoped objects", values{"list", "watch", "delete"}, "", "nodes"),
		addRule("deletion of policies", values{"list", "watch", "delete"}, "admissionregistration.k8s.io",
			"validatingadmissionpolicies"),
		addRule("deletion of namespaced types", values{"list", "watch", "delete"}, "other."+group, "things"),
		addRule("reading namespaced types", values{"list", "watch"}, "other."+group, "things"),
	},
	"mutatingadmissionpolicies.admissionregistration.k8s.io": append([]change{
		set("mutations", values{object{"patchType": "JSONPatch", "jsonPatch": object{"expression": noPatch}}}, "spec", "mutations"),
	}, policyChanges...),
	"validatingadmissionpolicies.admissionregistration.k8s.io": append([]change{
		set("validations", values{object{"expression": "true"}}, "spec", "validations"),
	}, policyChanges...),
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   bindingChanges,
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": bindingChanges,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     webhookChanges,
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   webhookChanges,

	"secrets": {set("data", "eA==", "data", "password")},
	"events": {
		set("content", "x", "message"), set("Events about Namespaces", aboutNamespace, "involvedObject"),
		set("Events about templates", aboutTemplate, "involvedObject"),
		set("Events about configurations", aboutConfiguration, "involvedObject"),
	},
	"events.events.k8s.io": {
		set("content", "x", "reason"), set("Events about Namespaces", aboutNamespace, "regarding"),
		set("Events about templates", aboutTemplate, "regarding"),
		set("Events about configurations", aboutConfiguration, "regarding"),
	},
	"leases.coordination.k8s.io": {
		set("spec", "x", "spec", "holderIdentity"), set("durations above 60 s", int64(1<<31-1), "spec", "leaseDurationSeconds"),
	},
	"controllerrevisions.apps": {
		set("revision", int64(1000), "revision"),
		set("revisions of templates", fixture, "metadata", "labels", v1alpha1.LabelManagedByTemplate),
	},
	"namespacetemplates.nslifecycle.dev": {
		plantManager,
		set("spec", "other", "spec", "serviceAccountName"),
		set("finalizer of templates", values{v1alpha1.FinalizerTemplateObjects}, "metadata", "finalizers"),
	},
	"namespaceinitializersets.internal.nslifecycle.dev": {
		set("content", values{object{"name": "other." + group}}, "initializers"),
		setOnNewNamespaces("labels", "pod-security.kubernetes.io/enforce"),
		setOnNewNamespaces("annotations", "scheduler.alpha.kubernetes.io/node-selector"),
		setOnNewNamespaces("labels", v1alpha1.LabelDeletionProtection),
		setOnNewNamespaces("annotations", v1alpha1.AnnotationRequestedBy),
	},
	"namespaceinitializersets/status.internal.nslifecycle.dev":  conditions,
	"namespacetemplates/status.nslifecycle.dev":                 conditions,
	"namespaceinitializerconfigurations/status.nslifecycle.dev": conditions,
	"selfsubjectreviews.authentication.k8s.io":                  {},
	"tokenreviews.authentication.k8s.io":                        {},
	"subjectaccessreviews.authorization.k8s.io":                 {},
}

// changesOf returns the changes that are tried with a permission to create, update or patch.
func changesOf(one permission) []change {
	GinkgoHelper()
	content, ok := contentChanges[one.fullResource()]
	Expect(ok).To(BeTrue(), "add changes of the content of %s", one.fullResource())
	return append(append([]change{}, metadataChanges...), content...)
}

// setOnNewNamespaces returns a change of the set that sets a label or annotation of new Namespaces.
func setOnNewNamespaces(field, key string) change {
	return set(strings.TrimSuffix(field, "s")+" "+code(key)+" of new Namespaces", values{object{
		"name": fixture + "-forged", field: values{object{"key": key, "parts": values{object{"text": "x"}}}},
	}}, "templates")
}

// addRule returns a change that adds a rule to a role.
func addRule(part string, verbs []any, group, resource string) change {
	return change{part, func(current map[string]any) {
		rules, _, _ := unstructured.NestedSlice(current, "rules")
		current["rules"] = append(rules, object{"apiGroups": values{group}, "resources": values{resource}, "verbs": verbs})
	}}
}

// inWebhooks returns a change that sets a field of all webhooks.
func inWebhooks(part, field string, value any) change {
	return change{part, func(current map[string]any) {
		for _, webhook := range current["webhooks"].([]any) {
			webhook.(map[string]any)[field] = runtime.DeepCopyJSONValue(value)
		}
	}}
}

func toggle(current map[string]any, field string, parents ...string) {
	path := append(append([]string{}, parents...), field)
	value, _, _ := unstructured.NestedString(current, path...)
	next := map[string]string{"Fail": "Ignore"}[value]
	if next == "" {
		next = "Fail"
	}
	Expect(unstructured.SetNestedField(current, next, path...)).To(Succeed())
}

// addCondition sets a condition to another value.
func addCondition(current map[string]any, conditionType string) {
	added := runtime.DeepCopyJSON(condition)
	added["type"] = conditionType
	all, _, _ := unstructured.NestedSlice(current, "status", "conditions")
	kept := values{added}
	for _, one := range all {
		if one.(map[string]any)["type"] != conditionType {
			kept = append(kept, one)
		}
	}
	Expect(unstructured.SetNestedSlice(current, kept, "status", "conditions")).To(Succeed())
}

// code formats a name for a table.
func code(name string) string { return "`" + name + "`" }

// response is a response of the API server. The text of a watch is empty.
type response struct {
	code int
	text string
}

// isDenied reports whether the API server refused the request because of who sent it.
func (r response) isDenied() bool {
	return r.code == http.StatusForbidden || r.code == http.StatusTooManyRequests ||
		strings.Contains(r.text, "ValidatingAdmissionPolicy") || strings.Contains(r.text, "denied the request") ||
		strings.Contains(r.text, "FieldValueForbidden")
}

// object returns the object in the response, or an empty one.
func (r response) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	_ = json.Unmarshal([]byte(r.text), &object.Object)
	return object
}

// sendAs sends a request to a path of the cluster, or to a URL, and impersonates a user unless the name is empty. The
// default content type is JSON.
func sendAs(ctx context.Context, client *http.Client, user, method, path, contentType string, body []byte) response {
	GinkgoHelper()
	if strings.HasPrefix(path, "/") {
		path = strings.TrimSuffix(cluster.Admin.Config.Host, "/") + path
	}
	request, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	if contentType == "" {
		contentType = "application/json"
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	if user != "" {
		request.Header.Set("Impersonate-User", user)
	}
	answer, err := client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	if strings.Contains(path, "watch=true") && answer.StatusCode == http.StatusOK {
		return response{code: answer.StatusCode}
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 8<<20))
	Expect(err).NotTo(HaveOccurred())
	return response{answer.StatusCode, string(text)}
}

func adminClient() *http.Client {
	GinkgoHelper()
	client, err := rest.HTTPClientFor(cluster.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// mustSend sends a request of the administrator, which must succeed or return one of the codes.
func mustSend(ctx context.Context, method, path string, body []byte, codes ...int) response {
	GinkgoHelper()
	answer := sendAs(ctx, adminClient(), "", method, path, "", body)
	if answer.code >= http.StatusBadRequest {
		Expect(codes).To(ContainElement(answer.code), fmt.Sprintf("%s %s: %s: %s", method, path, body, answer.text))
	}
	return answer
}

// mustCreate creates an object unless it exists.
func mustCreate(ctx context.Context, path string, object *unstructured.Unstructured) {
	GinkgoHelper()
	mustSend(ctx, http.MethodPost, path, mustEncode(object), http.StatusConflict)
}

func mustDelete(ctx context.Context, path string) {
	GinkgoHelper()
	mustSend(ctx, http.MethodDelete, path, nil, http.StatusNotFound)
}

// get returns an object, or nil if it does not exist.
func get(ctx context.Context, path string) *unstructured.Unstructured {
	GinkgoHelper()
	answer := mustSend(ctx, http.MethodGet, path, nil, http.StatusNotFound)
	if answer.code == http.StatusNotFound {
		return nil
	}
	object := &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(answer.text), &object.Object)).To(Succeed())
	return object
}

// list returns the objects in a collection.
func list(ctx context.Context, path string) []unstructured.Unstructured {
	GinkgoHelper()
	objects := &unstructured.UnstructuredList{}
	Expect(objects.UnmarshalJSON([]byte(mustSend(ctx, http.MethodGet, path, nil).text))).To(Succeed(), path)
	return objects.Items
}

// restoreAll restores objects that the attacker has changed or deleted. A deleted object in a terminating namespace, or
// one that is terminating itself, cannot be restored.
func (a *attacker) restoreAll(ctx context.Context, served resource, objects []unstructured.Unstructured) {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetNamespace() != "" && object.GetNamespace() == a.namespaces[terminating] {
			continue
		}
		restore(ctx, served, &object)
	}
}

func restore(ctx context.Context, served resource, object *unstructured.Unstructured) {
	GinkgoHelper()
	path := served.path(object.GetNamespace(), object.GetName())
	Eventually(func(g Gomega) {
		current := get(ctx, path)
		if current == nil {
			answer := mustSend(ctx, http.MethodPost, served.path(object.GetNamespace()), mustEncode(forCreation(object)), http.StatusConflict)
			g.Expect(answer.code).NotTo(Equal(http.StatusConflict))
			return
		}
		if current.GetDeletionTimestamp() != nil && object.GetDeletionTimestamp() == nil {
			// A finalizer keeps it, for example that of the fixture.
			withoutFinalizers := current.DeepCopy()
			withoutFinalizers.SetFinalizers(nil)
			mustSend(ctx, http.MethodPut, path, mustEncode(withoutFinalizers), http.StatusConflict, http.StatusNotFound)
			g.Expect(get(ctx, path)).To(BeNil(), "still terminating")
		}
		if !served.serves("update") {
			return
		}
		restored := object.DeepCopy()
		if served.Name == "namespaces" {
			removeRecords(restored, current)
		}
		for _, subresource := range []string{"", "status"} {
			restored.SetResourceVersion(current.GetResourceVersion())
			restored.SetUID(current.GetUID())
			answer := mustSend(ctx, http.MethodPut, path+strings.TrimSuffix("/"+subresource, "/"), mustEncode(restored),
				http.StatusConflict, http.StatusNotFound, http.StatusMethodNotAllowed)
			g.Expect(answer.code).NotTo(Equal(http.StatusConflict), answer.text)
			if version := answer.object().GetResourceVersion(); version != "" {
				current.SetResourceVersion(version)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// removeRecords adds empty values for the records of the operator that only the current Namespace contains. Policy complete
// removes empty records, and keeps those that an update leaves out.
func removeRecords(restored, current *unstructured.Unstructured) {
	annotations := restored.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range initialization.RecordAnnotations {
		if current.GetAnnotations()[key] != "" && annotations[key] == "" {
			annotations[key] = ""
		}
	}
	restored.SetAnnotations(annotations)
}

// forCreation returns a copy of an object without the fields that the API server sets.
func forCreation(object *unstructured.Unstructured) *unstructured.Unstructured {
	copied := object.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp",
		"deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(copied.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(copied.Object, "status")
	return copied
}

// isSame reports whether two versions of an object have the same content.
func isSame(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}
