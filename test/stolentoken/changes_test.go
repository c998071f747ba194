// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package stolentoken

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
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
	aboutNamespace = object{"apiVersion": "v1", "kind": "Namespace", "name": fixture}
	noPatch        = `[JSONPatch{op: "test", path: "/kind", value: "Namespace"}]`
	policyChanges  = []change{
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

// contentChanges are the changes of the content of a type or of a subresource.
var contentChanges = map[string][]change{
	"namespaces": {
		set("label `pod-security.kubernetes.io/enforce`", "privileged", "metadata", "labels",
			"pod-security.kubernetes.io/enforce"),
		set("label "+code(v1alpha1.LabelInitializing), "true", "metadata", "labels", v1alpha1.LabelInitializing),
		annotate(v1alpha1.AnnotationPendingInitializers, ""),
		annotate(v1alpha1.AnnotationInitializationResult, failure),
		annotate(v1alpha1.AnnotationInitializers, "x"),
		annotate(v1alpha1.AnnotationRequestedBy, "x"),
		annotate(v1alpha1.AnnotationTemplates, "{}"),
		annotate(v1alpha1.AnnotationExpiresAt, "2020-01-01T00:00:00Z"),
		set("finalizers of the operator", values{v1alpha1.FinalizerTemplate}, "metadata", "finalizers"),
	},
	"namespaces/status": {
		{"conditions of other controllers", func(current map[string]any) { addCondition(current, group+"/A") }},
		{"conditions", func(current map[string]any) { addCondition(current, v1alpha1.ConditionInitializing) }},
		set("phase", "Terminating", "status", "phase"),
	},
	"namespaces/finalize": {
		set("removal of namespace finalizers", values{}, "spec", "finalizers"),
		set("namespace finalizers", values{"kubernetes", group + "/a"}, "spec", "finalizers"),
	},
	"clusterroles.rbac.authorization.k8s.io": {
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
	"events":  {set("content", "x", "message"), set("Events about Namespaces", aboutNamespace, "involvedObject")},
	"events.events.k8s.io": {
		set("content", "x", "reason"), set("Events about Namespaces", aboutNamespace, "regarding"),
	},
	"leases.coordination.k8s.io": {set("spec", "x", "spec", "holderIdentity")},
	"controllerrevisions.apps": {
		set("revision", int64(1000), "revision"),
		set("revisions of templates", fixture, "metadata", "labels", v1alpha1.LabelTemplate),
	},
	"namespacetemplates.nslifecycle.dev": {
		set("spec", "other", "spec", "serviceAccountName"),
		set("finalizer of templates", values{v1alpha1.FinalizerTemplate}, "metadata", "finalizers"),
	},
	"namespaceinitializersets.nslifecycle.dev": {
		set("content", values{object{"name": "other." + group}}, "initializers"),
	},
	"namespaceinitializersets/status.nslifecycle.dev":           conditions,
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
