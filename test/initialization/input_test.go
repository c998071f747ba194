// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("The API validation", func() {
	// The specs use kubectl, so that they check the message that users see.
	applyConfiguration := func(ctx context.Context, name string, initializerNames ...string) error {
		object := wrappers.MakeConfiguration(name).Initializers(initializerNames...).Obj()
		object.APIVersion, object.Kind = v1alpha1.GroupVersion.String(), "NamespaceInitializerConfiguration"
		encoded, err := json.Marshal(object)
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.KubectlWithInput(ctx, cluster.Admin.Config, string(encoded), "create", "-f", "-")
		return err
	}

	DescribeTable("rejects an invalid initializer name with a helpful message",
		func(ctx context.Context, message string, names ...string) {
			Expect(applyConfiguration(ctx, framework.Unique("bad"), names...)).To(MatchError(ContainSubstring(message)))
		},
		Entry("two segments", `initializer name "corp.com" is not fully qualified: use at least three dot-separated parts`,
			"corp.com"),
		Entry("one segment", `is not fully qualified`, "corp"),
		Entry("an uppercase letter", `initializer name "Quota.corp.com" is not a DNS name`, "Quota.corp.com"),
		Entry("a comma", `initializer name "a.corp.com,b.corp.com" contains a comma`, "a.corp.com,b.corp.com"),
		Entry("an empty part", "is not a DNS name", "a..corp.com"),
		Entry("a trailing dot", "is not a DNS name", "a.corp.com."),
		Entry("a part of 64 characters", "is not a DNS name", strings.Repeat("x", 64)+".corp.com"),
		Entry("a space", "is not a DNS name", "a b.corp.com"),
		Entry("a line break", "must be a DNS name", "a.corp.com\n"),
		Entry("300 characters", "Too long: may not be more than 253 bytes",
			strings.Repeat("abcdefghi.", 29)+"corp.com.xx"),
		Entry("an empty name", "at least 1 chars long", ""),
		Entry("a duplicate", `Duplicate value`, "a.corp.com", "b.corp.com", "a.corp.com"),
	)

	DescribeTable("accepts valid settings and rejects invalid ones with a helpful message",
		func(ctx context.Context, settings, message string) {
			manifest := `{"apiVersion":"nslifecycle.dev/v1alpha1","kind":"NamespaceInitializerConfiguration",` +
				`"metadata":{"name":"` + framework.Unique("bad") + `"},"initializers":[{"name":"a.test.example.com",` + settings + `}]}`
			_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "create", "--dry-run=server", "-f", "-")
			if message == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(message)))
			}
		},
		Entry("valid settings", `"namespaceFinalizer":"search.example.com/index","timeoutSeconds":60,"namespaceSelector":{"matchLabels":`+
			`{"team":"","corp.example.com/tier":"gold"},"matchExpressions":[{"key":"team","operator":"NotIn","values":["a","b"]},`+
			`{"key":"nslifecycle.dev/deletion-protection","operator":"Exists"}]}`, ""),
		Entry("the finalizer of the namespace controller", `"namespaceFinalizer":"kubernetes"`,
			`finalizer "kubernetes" belongs to the namespace controller`),
		Entry("a finalizer without a domain", `"namespaceFinalizer":"index"`,
			`finalizer "index" is not valid in spec.finalizers`),
		Entry("an invalid domain", `"namespaceFinalizer":"Search.example.com/index"`, `is not valid in spec.finalizers`),
		Entry("a domain that is too long", `"namespaceFinalizer":"`+strings.Repeat("a", 254)+`/index"`,
			`is not valid in spec.finalizers`),
		Entry("a name that is too long", `"namespaceFinalizer":"example.com/`+strings.Repeat("a", 64)+`"`,
			`is not valid in spec.finalizers`),
		Entry("an empty finalizer", `"namespaceFinalizer":""`, "at least 1 chars long"),
		Entry("an invalid key", `"namespaceSelector":{"matchLabels":{"a b":"c"}}`,
			"a key in matchLabels is not a valid label key"),
		Entry("a key with the prefix of the project", `"namespaceSelector":{"matchLabels":{"nslifecycle.dev/initializing":"true"}}`,
			"a selector cannot contain labels with the prefix nslifecycle.dev/"),
		Entry("an invalid value", `"namespaceSelector":{"matchLabels":{"a":"b c"}}`,
			"namespaceSelector.matchLabels.a in body should match"),
		Entry("a key with the prefix of the project in an expression",
			`"namespaceSelector":{"matchExpressions":[{"key":"nslifecycle.dev/initializers","operator":"Exists"}]}`,
			"a selector cannot contain labels with the prefix nslifecycle.dev/"),
		Entry("an invalid key in an expression", `"namespaceSelector":{"matchExpressions":[{"key":"/a","operator":"Exists"}]}`,
			"matchExpressions[0].key in body should match"),
		Entry("an invalid value in an expression",
			`"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["-"]}]}`,
			"matchExpressions[0].values[0] in body should match"),
		Entry("In without values", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}`,
			"operators In and NotIn require values"),
		Entry("Exists with values", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}`,
			"operators In and NotIn require values"),
		Entry("an unknown operator", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`,
			`supported values: "In", "NotIn", "Exists", "DoesNotExist"`),
		Entry("a failure policy without a timeout", `"failurePolicy":"Ignore"`, "also set timeoutSeconds"),
		Entry("the default failure policy without a timeout", `"failurePolicy":"Fail"`, ""),
		Entry("subjects with the longest names", `"subjects":[{"kind":"User","name":"`+strings.Repeat("Ü", 1024)+`"},`+
			`{"kind":"ServiceAccount","namespace":"`+strings.Repeat("a", 63)+`","name":"`+strings.Repeat("a", 253)+`"}]`,
			""),
		Entry("a user name that is too long", `"subjects":[{"kind":"User","name":"`+strings.Repeat("a", 1025)+`"}]`,
			"may not be more than 1024"),
		Entry("a ServiceAccount with its user name",
			`"subjects":[{"kind":"ServiceAccount","namespace":"a","name":"system:serviceaccount:a:b"}]`,
			"set its namespace in the field namespace"),
		Entry("a ServiceAccount with a name that is too long",
			`"subjects":[{"kind":"ServiceAccount","namespace":"a","name":"`+strings.Repeat("a", 254)+`"}]`,
			"at most 253 characters"),
		Entry("an invalid namespace of a ServiceAccount",
			`"subjects":[{"kind":"ServiceAccount","namespace":"a.b","name":"c"}]`,
			"subjects[0].namespace in body should match"),
	)

	const object = `{"name":"a","template":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}}`
	// createTemplate validates a template and returns its settings for initialization with their defaults.
	createTemplate := func(ctx context.Context, spec string) (string, error) {
		if !strings.Contains(spec, `"serviceAccountName":`) {
			spec += `,"serviceAccountName":"a"`
		}
		manifest := `{"apiVersion":"` + v1alpha1.GroupVersion.String() + `","kind":"NamespaceTemplate",` +
			`"metadata":{"name":"invalid"},"spec":{` + spec + `}}`
		return cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "create", "--dry-run=server", "-f", "-",
			"--output=jsonpath={.spec.initialization}")
	}

	DescribeTable("validates the deadline of a template",
		func(ctx context.Context, deadline, message string) {
			out, err := createTemplate(ctx, `"initialization":{`+deadline+`},"objects":[`+object+`]`)
			if message != "" {
				Expect(err).To(MatchError(ContainSubstring(message)))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(ContainSubstring(`"waitPolicy":`))
		},
		Entry("none", ``, ""),
		Entry("a timeout", `"timeoutSeconds":2592000`, ""),
		Entry("a timeout with Ignore", `"timeoutSeconds":1,"failurePolicy":"Ignore"`, ""),
		Entry("a timeout with Effective", `"timeoutSeconds":1,"waitPolicy":"Effective"`, ""),
		Entry("Applied without a timeout", `"waitPolicy":"Applied"`, ""),
		Entry("Fail without a timeout", `"failurePolicy":"Fail"`, ""),
		Entry("Ignore without a timeout", `"failurePolicy":"Ignore"`, "also set timeoutSeconds"),
		Entry("Applied with a timeout", `"timeoutSeconds":1,"waitPolicy":"Applied"`,
			"remove timeoutSeconds, or set waitPolicy to Effective"),
		Entry("Applied with a timeout and Ignore", `"timeoutSeconds":1,"failurePolicy":"Ignore","waitPolicy":"Applied"`,
			"remove timeoutSeconds, or set waitPolicy to Effective"),
		Entry("a timeout that is too long", `"timeoutSeconds":2592001`, "less than or equal to 2592000"),
	)

	DescribeTable("accepts valid parameters, selectors, sources and accounts of a template and rejects invalid ones",
		func(ctx context.Context, spec, message string) {
			if !strings.Contains(spec, `"objects":`) {
				spec += `,"objects":[` + object + `]`
			}
			_, err := createTemplate(ctx, spec)
			if message == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(message)))
			}
		},
		Entry("a default that matches the pattern", `"parameters":[{"name":"a","pattern":"^[a-z]$","default":"a"}]`, ""),
		Entry("a default that does not match the pattern", `"parameters":[{"name":"a","pattern":"^[a-z]$","default":"1"}]`,
			"the default of a parameter must match its pattern"),
		Entry("a label", `"parameters":[{"name":"a","labelKey":"example.com/a"}]`, ""),
		Entry("a label of the project", `"parameters":[{"name":"a","labelKey":"`+v1alpha1.LabelTemplate+`"}]`,
			"a parameter cannot use a label with the prefix nslifecycle.dev/"),
		Entry("a label of the project in the selector of a rollout",
			`"rollout":{"canarySelector":{"matchLabels":{"`+v1alpha1.LabelTemplate+`":"a"}}}`,
			"a selector cannot contain labels with the prefix nslifecycle.dev/"),
		Entry("a source", `"objects":[{"name":"a","sourceRef":{"kind":"ConfigMap","name":"a.b-c"}}]`, ""),
		Entry("a source in another namespace",
			`"objects":[{"name":"a","sourceRef":{"kind":"ConfigMap","namespace":"a","name":"a"}}]`,
			`unknown field "spec.objects[0].sourceRef.namespace"`),
		Entry("an invalid name of a source",
			`"objects":[{"name":"a","sourceRef":{"kind":"ConfigMap","name":"a/b"}}]`,
			"sourceRef.name in body should match"),
		Entry("a ServiceAccount with a name of the maximum length", `"serviceAccountName":"`+strings.Repeat("a", 253)+`"`, ""),
		Entry("a ServiceAccount with a name that is too long", `"serviceAccountName":"`+strings.Repeat("a", 254)+`"`,
			"may not be more than 253"),
	)

	It("accepts the sample with all settings", func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "create", "--dry-run=server", "-f", filepath.Join(controlplane.Root(),
			"config/samples/v1alpha1_namespaceinitializerconfiguration_settings.yaml"))
		Expect(err).NotTo(HaveOccurred())
	})

	It("rejects an invalid initializer name in an update", func(ctx context.Context) {
		cluster.Register(ctx, "update", "a.test.example.com")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "patch", "nsinit", "update", "--type=merge",
			"-p", `{"initializers":[{"name":"nope"}]}`)
		Expect(err).To(MatchError(ContainSubstring("is not fully qualified")))
	})

	It("accepts an empty list of initializers", func(ctx context.Context) {
		Expect(applyConfiguration(ctx, "empty")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.Delete(ctx, wrappers.MakeConfiguration("empty").Obj())).To(Succeed())
		})
		cluster.ExpectActive(ctx, "empty")
		var empty v1alpha1.NamespaceInitializerConfiguration
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "empty"}, &empty)).To(Succeed())
		Expect(meta.FindStatusCondition(empty.Status.Conditions, v1alpha1.ConditionActive).Reason).To(Equal(v1alpha1.ReasonEmpty))
		Expect(framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("empty")).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	})

	It("accepts an initializer name of the maximum length", func(ctx context.Context) {
		part := strings.Repeat("x", 63)
		longest := strings.Join([]string{part, part, part, strings.Repeat("y", 61)}, ".")
		Expect(longest).To(HaveLen(253))
		cluster.Register(ctx, "longest", longest)
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("longest"))
		Expect(framework.PendingOf(namespace)).To(Equal(longest))
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing("False", v1alpha1.ReasonInitialized))
	})

	// API servers encode the set to JSON for each evaluation of a policy.
	It("writes the NamespaceInitializerSet and its status without managedFields", func(ctx context.Context) {
		before := cluster.EffectiveSet(Default, ctx).Generation
		cluster.Register(ctx, "small", "small.example.com")
		set := cluster.EffectiveSet(Default, ctx)
		Expect(set.Generation).To(BeNumerically(">", before))
		Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
		Expect(set.ManagedFields).To(BeEmpty())
	})

	It("rejects a NamespaceInitializerSet with another name and suggests a NamespaceInitializerConfiguration", func(ctx context.Context) {
		set := &internalv1alpha1.NamespaceInitializerSet{}
		set.Name = "mine"
		Expect(cluster.Admin.Create(ctx, set)).To(MatchError(ContainSubstring("create a NamespaceInitializerConfiguration")))
	})

})
