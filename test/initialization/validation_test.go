// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// tryCreate sends an object as a dry run. The source is YAML in flow style, without braces.
func tryCreate(ctx context.Context, apiVersion, kind, name, source string) (*unstructured.Unstructured, error) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte("{"+source+"}"), &object.Object)).To(Succeed(), source)
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName(name)
	err := cluster.Admin.Create(ctx, object, client.DryRunAll)
	return object, err
}

func tryConfiguration(ctx context.Context, source string) error {
	GinkgoHelper()
	_, err := tryCreate(ctx, v1alpha1.GroupVersion.String(), "NamespaceInitializerConfiguration", framework.Unique("try"), source)
	return err
}

// trySettings validates the settings of an initializer.
func trySettings(ctx context.Context, source string) error {
	GinkgoHelper()
	return tryConfiguration(ctx, "initializers: [{name: a.test.example.com, "+source+"}]")
}

// trySpec validates the spec of a template.
func trySpec(ctx context.Context, source string) error {
	GinkgoHelper()
	_, err := tryCreate(ctx, v1alpha1.GroupVersion.String(), "NamespaceTemplate", "try", "spec: {serviceAccountName: a, "+source+"}")
	return err
}

const validObjects = "objects: [{name: a, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}], "

// tryTemplate validates the fields of a template that has objects.
func tryTemplate(ctx context.Context, source string) error {
	GinkgoHelper()
	return trySpec(ctx, validObjects+source)
}

func trySet(ctx context.Context, source string) error {
	GinkgoHelper()
	_, err := tryCreate(ctx, internalv1alpha1.GroupVersion.String(), "NamespaceInitializerSet", internalv1alpha1.EffectiveSetName, source)
	return err
}

// causesOf returns the errors about the fields of an object. The API server adds one without a field if it has not
// evaluated all rules because of the others.
func causesOf(err error) []metav1.StatusCause {
	GinkgoHelper()
	Expect(err).To(Satisfy(apierrors.IsInvalid))
	var status apierrors.APIStatus
	Expect(errors.As(err, &status)).To(BeTrue())
	var causes []metav1.StatusCause
	for _, cause := range status.Status().Details.Causes {
		if !strings.Contains(cause.Message, "some validation rules were not checked") {
			causes = append(causes, cause)
		}
	}
	return causes
}

type try func(ctx context.Context, source string) error

var _ = DescribeTable("The API server names the field of each invalid object",
	func(ctx context.Context, send try, source, field, text string) {
		err := send(ctx, source)
		Expect(causesOf(err)).To(And(HaveEach(HaveField("Field", field)),
			ContainElement(HaveField("Message", ContainSubstring(text)))))
	},
	// Names of initializers.
	entryOf(tryConfiguration, "initializers: [{name: corp.com}]", "initializers[0].name",
		`initializer name "corp.com" is not fully qualified: use at least three dot-separated parts`),
	entryOf(tryConfiguration, "initializers: [{name: corp}]", "initializers[0].name", "is not fully qualified"),
	entryOf(tryConfiguration, "initializers: [{name: Quota.corp.com}]", "initializers[0].name",
		`initializer name "Quota.corp.com" is not a DNS name`),
	entryOf(tryConfiguration, `initializers: [{name: "a.corp.com,b.corp.com"}]`, "initializers[0].name",
		`initializer name "a.corp.com,b.corp.com" contains a comma`),
	entryOf(tryConfiguration, "initializers: [{name: a..corp.com}]", "initializers[0].name", "is not a DNS name"),
	entryOf(tryConfiguration, "initializers: [{name: a.corp.com.}]", "initializers[0].name", "is not a DNS name"),
	entryOf(tryConfiguration, "initializers: [{name: "+strings.Repeat("x", 64)+".corp.com}]", "initializers[0].name",
		"is not a DNS name"),
	entryOf(tryConfiguration, "initializers: [{name: a b.corp.com}]", "initializers[0].name", "is not a DNS name"),
	entryOf(tryConfiguration, `initializers: [{name: "a.corp.com\n"}]`, "initializers[0].name", "must be a DNS name"),
	entryOf(tryConfiguration, "initializers: [{name: "+strings.Repeat("abcdefghi.", 29)+"corp.com.xx}]", "initializers[0].name",
		"may not be more than 253"),
	entryOf(tryConfiguration, `initializers: [{name: ""}]`, "initializers[0].name", "at least 1 chars long"),
	entryOf(tryConfiguration, "initializers: [{name: a.corp.com}, {name: b.corp.com}, {name: a.corp.com}]", "initializers[2]",
		"Duplicate value"),

	// Settings of initializers.
	entryOf(trySettings, "failurePolicy: Ignore", "initializers[0].timeoutSeconds", "also set timeoutSeconds"),
	entryOf(trySettings, "confinement: InitializingNamespaces", "initializers[0].subjects", "also set subjects"),
	entryOf(trySettings, "confinement: InitializingNamespaces, subjects: [{kind: Group, name: system:authenticated}]",
		"initializers[0].subjects", "requires subjects of kind ServiceAccount"),
	entryOf(trySettings, "confinement: InitializingNamespaces, subjects: [{kind: ServiceAccount, namespace: kube-system, name: a}]",
		"initializers[0].subjects", "components of Kubernetes"),
	entryOf(trySettings, "namespaceFinalizer: kubernetes", "initializers[0].namespaceFinalizer",
		`finalizer "kubernetes" belongs to the namespace controller`),
	entryOf(trySettings, "namespaceFinalizer: index", "initializers[0].namespaceFinalizer",
		`finalizer "index" is not valid in spec.finalizers`),
	entryOf(trySettings, "namespaceFinalizer: Search.example.com/index", "initializers[0].namespaceFinalizer", "is not valid"),
	entryOf(trySettings, "namespaceFinalizer: "+strings.Repeat("a", 254)+"/index", "initializers[0].namespaceFinalizer",
		"is not valid"),
	entryOf(trySettings, "namespaceFinalizer: example.com/"+strings.Repeat("a", 64), "initializers[0].namespaceFinalizer",
		"is not valid"),
	entryOf(trySettings, `namespaceFinalizer: ""`, "initializers[0].namespaceFinalizer", "at least 1 chars long"),

	// Selectors.
	entryOf(trySettings, "namespaceSelector: {matchLabels: {a b: c}}", "initializers[0].namespaceSelector.matchLabels",
		"a key in matchLabels is not a valid label key"),
	entryOf(trySettings, `namespaceSelector: {matchLabels: {nslifecycle.dev/initializing: "true"}}`,
		"initializers[0].namespaceSelector.matchLabels", "a selector cannot contain labels with the prefix nslifecycle.dev/"),
	entryOf(trySettings, "namespaceSelector: {matchLabels: {a: b c}}", "initializers[0].namespaceSelector.matchLabels.a",
		"should match"),
	entryOf(trySettings, "namespaceSelector: {matchExpressions: [{key: nslifecycle.dev/initializers, operator: Exists}]}",
		"initializers[0].namespaceSelector.matchExpressions[0].key",
		"a selector cannot contain labels with the prefix nslifecycle.dev/"),
	entryOf(trySettings, "namespaceSelector: {matchExpressions: [{key: /a, operator: Exists}]}",
		"initializers[0].namespaceSelector.matchExpressions[0].key", "should match"),
	entryOf(trySettings, `namespaceSelector: {matchExpressions: [{key: a, operator: In, values: ["-"]}]}`,
		"initializers[0].namespaceSelector.matchExpressions[0].values[0]", "should match"),
	entryOf(trySettings, "namespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
		"initializers[0].namespaceSelector.matchExpressions[0].values", "require values"),
	entryOf(trySettings, "namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
		"initializers[0].namespaceSelector.matchExpressions[0].values", "have no values"),
	entryOf(trySettings, `namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}`,
		"initializers[0].namespaceSelector.matchExpressions[0].operator", `"In", "NotIn", "Exists", "DoesNotExist"`),

	// Subjects.
	entryOf(trySettings, "subjects: [{kind: Robot, name: a}]", "initializers[0].subjects[0].kind", "Unsupported value"),
	entryOf(trySettings, "subjects: [{kind: ServiceAccount, name: a}]", "initializers[0].subjects[0].namespace",
		"set the namespace of the ServiceAccount"),
	entryOf(trySettings, "subjects: [{kind: Group, name: a, namespace: b}]", "initializers[0].subjects[0].namespace",
		"a User or a Group has no namespace"),
	entryOf(trySettings, "subjects: [{kind: ServiceAccount, namespace: a.b, name: c}]", "initializers[0].subjects[0].namespace",
		"should match"),
	entryOf(trySettings, "subjects: [{kind: User, name: "+strings.Repeat("a", 1025)+"}]", "initializers[0].subjects[0].name",
		"may not be more than 1024"),
	entryOf(trySettings, "subjects: [{kind: ServiceAccount, namespace: a, name: system:serviceaccount:a:b}]",
		"initializers[0].subjects[0].name", "set its namespace in the field namespace"),
	entryOf(trySettings, "subjects: [{kind: ServiceAccount, namespace: a, name: "+strings.Repeat("a", 254)+"}]",
		"initializers[0].subjects[0].name", "at most 253 characters"),
	entryOf(trySettings, "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: ServiceAccount, namespace: a, name: b}]",
		"initializers[0].subjects[0].apiGroup", `the API group of a ServiceAccount is ""`),
	entryOf(trySettings, "subjects: [{apiGroup: v1, kind: User, name: a}]", "initializers[0].subjects[0].apiGroup",
		`the API group of a User is "rbac.authorization.k8s.io"`),
	entryOf(tryConfiguration, "waitingSubjects: [{kind: User, name: a}, {apiGroup: apps, kind: Group, name: a}]",
		"waitingSubjects[1].apiGroup", `the API group of a Group is "rbac.authorization.k8s.io"`),
	entryOf(tryConfiguration, "waitingSubjects: [{kind: Group, name: system:masters}]", "waitingSubjects",
		"these groups contain initializers, administrators"),

	// Templates.
	Entry(nil, try(func(ctx context.Context, name string) error {
		_, err := tryCreate(ctx, v1alpha1.GroupVersion.String(), "NamespaceTemplate", name,
			"spec: {serviceAccountName: a, "+validObjects+"}")
		return err
	}), "a.b", "metadata", "must be a DNS label"),
	entryOf(trySpec, "", "spec.objects", "set objects, metadata, or both"),
	entryOf(tryTemplate, "serviceAccountName: "+strings.Repeat("a", 254), "spec.serviceAccountName", "may not be more than 253"),
	entryOf(tryTemplate, "rollout: {canarySelector: {matchLabels: {"+v1alpha1.LabelTemplate+": a}}}",
		"spec.rollout.canarySelector.matchLabels", "a selector cannot contain labels with the prefix nslifecycle.dev/"),
	entryOf(tryTemplate, "metadata: {}", "spec.metadata.labels", "set labels, annotations, or both"),
	entryOf(tryTemplate, "metadata: {labels: {-: b}}", "spec.metadata.labels", "must be a qualified name"),
	entryOf(tryTemplate, "metadata: {labels: {kubernetes.io/metadata.name: b}}", "spec.metadata.labels", "cannot set keys"),
	entryOf(tryTemplate, "metadata: {labels: {a: '${ns.name}'}}", "spec.metadata.labels", "the value of a label"),
	entryOf(tryTemplate, "metadata: {annotations: {-: b}}", "spec.metadata.annotations", "must be a qualified name"),
	entryOf(tryTemplate, "metadata: {annotations: {nslifecycle.dev/a: b}}", "spec.metadata.annotations", "cannot set keys"),
	entryOf(tryTemplate, "metadata: {annotations: {a: '${ns.name}'}}", "spec.metadata.annotations", "only the expressions"),
	entryOf(tryTemplate, "objectMetadata: {}", "spec.objectMetadata.labels", "set labels, annotations, or both"),
	entryOf(tryTemplate, "variables: [{name: in, expression: a}]", "spec.variables[0].name", "a keyword of CEL"),
	entryOf(tryTemplate, "sync: {mode: Once, conflictPolicy: Force}", "spec.sync.conflictPolicy",
		"remove conflictPolicy Force, or set mode to Always"),

	// Objects of templates.
	entryOf(trySpec, "objects: [{name: a}]", "spec.objects[0].template", "set either template or sourceRef"),
	entryOf(trySpec, "objects: [{name: a, template: {}, "+sourceRef+"}]", "spec.objects[0].sourceRef",
		"set either template or sourceRef"),
	entryOf(trySpec, "objects: [{name: a, forEach: a, "+sourceRef+"}]", "spec.objects[0].forEach", "a copy cannot have forEach"),
	entryOf(trySpec, "objects: ["+repeat(17, "{name: a%d, "+sourceRef+"}")+"]", "spec.objects", "at most 16 copies"),

	// Parameters of templates.
	entryOf(tryTemplate, "parameters: [{name: 'true'}]", "spec.parameters[0].name", "a keyword of CEL"),
	entryOf(tryTemplate, "parameters: [{name: a, labelKey: "+v1alpha1.LabelTemplate+"}]", "spec.parameters[0].labelKey",
		"a parameter cannot use a label with the prefix nslifecycle.dev/"),
	entryOf(tryTemplate, "parameters: [{name: a, pattern: '('}]", "spec.parameters[0].pattern", "not a valid regular expression"),
	entryOf(tryTemplate, "parameters: [{name: a, enum: [b], default: c}]", "spec.parameters[0].default", "values in enum"),
	entryOf(tryTemplate, "parameters: [{name: b}, {name: a, pattern: '^[a-z]$', default: '1'}]", "spec.parameters[1].default",
		"must match the pattern"),
	entryOf(tryTemplate, "parameters: [{name: a, default: b, required: true}]", "spec.parameters[0].required",
		"with a default cannot be required"),
	entryOf(tryTemplate, "parameters: [{name: a, labelKey: b, default: c}]", "spec.parameters[0].default", "cannot have a default"),
	entryOf(tryTemplate, "parameters: [{name: a, labelKey: b, type: List}]", "spec.parameters[0].type", "cannot be a list"),
	entryOf(tryTemplate, "parameters: [{name: a, maxItems: 2}]", "spec.parameters[0].maxItems", "also set type to List"),
	entryOf(tryTemplate, "parameters: [{name: a, type: String, maxItems: 2}]", "spec.parameters[0].maxItems", "only to lists"),
	entryOf(tryTemplate, "parameters: [{name: a, type: List, maxItems: 33}]", "spec.parameters[0].maxItems",
		"less than or equal to 32"),
	entryOf(tryTemplate, "parameters: [{name: a, type: Integer}]", "spec.parameters[0].type", `"String", "List"`),
	entryOf(tryTemplate, "parameters: ["+repeat(9, "{name: a%d, type: List}")+"]", "spec.parameters",
		"at most 8 parameters can be lists"),

	// Initialization with templates.
	entryOf(tryTemplate, "initialization: {effectiveTimeoutSeconds: 1, waitPolicy: Applied}",
		"spec.initialization.effectiveTimeoutSeconds", "remove effectiveTimeoutSeconds, or set waitPolicy to Effective"),
	entryOf(tryTemplate, "initialization: {effectiveTimeoutPolicy: Ignore}", "spec.initialization.effectiveTimeoutSeconds",
		"also set effectiveTimeoutSeconds"),
	entryOf(tryTemplate, "initialization: {effectiveTimeoutPolicy: Ignore, waitPolicy: Applied}",
		"spec.initialization.effectiveTimeoutPolicy", "remove effectiveTimeoutPolicy"),
	entryOf(tryTemplate, "initialization: {effectiveTimeoutSeconds: 2592001}", "spec.initialization.effectiveTimeoutSeconds",
		"less than or equal to 2592000"),
	entryOf(tryTemplate, "initialization: {failureTimeoutPolicy: Ignore}", "spec.initialization.failureTimeoutPolicy",
		`"Fail", "Retry"`),

	// Rollouts.
	entryOf(tryTemplate, "rollout: {minReadySeconds: 1}", "spec.rollout.canarySelector",
		"set canarySelector, or remove minReadySeconds"),
	entryOf(tryTemplate, "rollout: {canarySelector: {}, minReadySeconds: 2592001}", "spec.rollout.minReadySeconds",
		"less than or equal to 2592000"),

	// The NamespaceInitializerSet.
	Entry(nil, try(func(ctx context.Context, name string) error {
		_, err := tryCreate(ctx, internalv1alpha1.GroupVersion.String(), "NamespaceInitializerSet", name, "")
		return err
	}), "mine", "metadata", "create a NamespaceInitializerConfiguration"),
	entryOf(trySet, "templates: [{name: a, annotations: [{key: "+v1alpha1.LabelDeletionProtection+"}]}]",
		"templates[0].annotations[0].key", "cannot set keys"),
	entryOf(trySet, "templates: [{name: a, labels: [{key: a, parts: [{annotation: b}]}]}]",
		"templates[0].labels[0].parts[0].annotation", "only annotations with the prefix parameter.nslifecycle.dev/"),
)

const sourceRef = "sourceRef: {kind: ConfigMap, name: a}"

func entryOf(send try, source, field, text string) TableEntry {
	description := source
	if len(description) > 100 {
		description = description[:100] + "..."
	}
	return Entry(field+" in "+description, send, source, field, text)
}

// repeat returns numbered elements of a list.
func repeat(count int, format string) string {
	elements := make([]string, 0, count)
	for i := range count {
		elements = append(elements, fmt.Sprintf(format, i))
	}
	return strings.Join(elements, ", ")
}

var _ = DescribeTable("The API server accepts", func(ctx context.Context, send try, source string) {
	Expect(send(ctx, source)).To(Succeed())
},
	Entry("settings", try(trySettings), `namespaceFinalizer: search.example.com/index, timeoutSeconds: 60, failurePolicy: Ignore,
		namespaceSelector: {matchLabels: {team: "", corp.example.com/tier: gold}, matchExpressions: [
			{key: team, operator: NotIn, values: [a, b]}, {key: nslifecycle.dev/deletion-protection, operator: Exists}]}`),
	Entry("the default failure policy without a timeout", try(trySettings), "failurePolicy: Fail"),
	Entry("subjects without effect of a confinement", try(trySettings), "confinement: None, subjects: [{kind: Group, name: a}]"),
	Entry("subjects with the longest names", try(trySettings), "subjects: [{kind: User, name: "+strings.Repeat("Ü", 1024)+
		"}, {kind: ServiceAccount, namespace: "+strings.Repeat("a", 63)+", name: "+strings.Repeat("a", 253)+"}]"),
	Entry("subjects as in RBAC", try(trySettings), `subjects: [{apiGroup: "", kind: ServiceAccount, namespace: a, name: b},
		{apiGroup: rbac.authorization.k8s.io, kind: User, name: a}, {apiGroup: rbac.authorization.k8s.io, kind: Group, name: a}]`),
	Entry("a default that matches the pattern", try(tryTemplate), "parameters: [{name: a, pattern: '^[a-z]$', default: a}]"),
	Entry("a pattern", try(tryTemplate), "parameters: [{name: a, pattern: '(a|b)?'}]"),
	Entry("lists", try(tryTemplate), "parameters: ["+repeat(8, "{name: a%d, type: List}")+
		", {name: b, type: String}, {name: c}, {name: d, labelKey: example.com/a}]"),
	Entry("a limited list with a default", try(tryTemplate),
		"parameters: [{name: a, type: List, maxItems: 2, enum: [a, b], pattern: '^.$', default: 'a,b'}]"),
	Entry("a source", try(trySpec), "objects: [{name: a, sourceRef: {kind: ConfigMap, name: a.b-c}}]"),
	Entry("a ServiceAccount with a long name", try(tryTemplate), "serviceAccountName: "+strings.Repeat("a", 253)),
	Entry("Once", try(tryTemplate), "sync: {mode: Once}"),
	Entry("Force", try(tryTemplate), "sync: {conflictPolicy: Force}"),
	Entry("a timeout", try(tryTemplate), "initialization: {effectiveTimeoutSeconds: 2592000}"),
	Entry("Effective with both policies", try(tryTemplate), `initialization: {waitPolicy: Effective, effectiveTimeoutSeconds: 1,
		effectiveTimeoutPolicy: Ignore, failureTimeoutSeconds: 1, failureTimeoutPolicy: Retry}`),
	Entry("a rollout with canaries", try(tryTemplate), "rollout: {canarySelector: {matchLabels: {a: b}}, minReadySeconds: 2592000}"),
	Entry("Applied without a limit of failures", try(tryTemplate), "initialization: {waitPolicy: Applied, failureTimeoutPolicy: Retry}"),
)
