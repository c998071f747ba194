// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
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
			"corp.com", SpecTimeout(5*time.Minute)),
		Entry("one segment", `is not fully qualified`, "corp", SpecTimeout(5*time.Minute)),
		Entry("an uppercase letter", `initializer name "Quota.corp.com" is not a DNS name`,
			"Quota.corp.com", SpecTimeout(5*time.Minute)),
		Entry("a comma", `initializer name "a.corp.com,b.corp.com" contains a comma`,
			"a.corp.com,b.corp.com", SpecTimeout(5*time.Minute)),
		Entry("an empty part", "is not a DNS name", "a..corp.com", SpecTimeout(5*time.Minute)),
		Entry("a trailing dot", "is not a DNS name", "a.corp.com.", SpecTimeout(5*time.Minute)),
		Entry("a part of 64 characters", "is not a DNS name", strings.Repeat("x", 64)+".corp.com", SpecTimeout(5*time.Minute)),
		Entry("a space", "is not a DNS name", "a b.corp.com", SpecTimeout(5*time.Minute)),
		Entry("a line break", "must be a DNS name", "a.corp.com\n", SpecTimeout(5*time.Minute)),
		Entry("300 characters", "Too long: may not be more than 253 bytes",
			strings.Repeat("abcdefghi.", 29)+"corp.com.xx", SpecTimeout(5*time.Minute)),
		Entry("an empty name", "at least 1 chars long", "", SpecTimeout(5*time.Minute)),
		Entry("a duplicate", `Duplicate value`, "a.corp.com", "b.corp.com", "a.corp.com", SpecTimeout(5*time.Minute)),
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
		Entry("valid settings", `"finalizer":"search.example.com/index","timeoutSeconds":60,"namespaceSelector":{"matchLabels":`+
			`{"team":"","corp.example.com/tier":"gold"},"matchExpressions":[{"key":"team","operator":"NotIn","values":["a","b"]},`+
			`{"key":"nslifecycle.dev/deletion-protection","operator":"Exists"}]}`, "", SpecTimeout(5*time.Minute)),
		Entry("the finalizer of the namespace controller", `"finalizer":"kubernetes"`,
			`finalizer "kubernetes" belongs to the namespace controller`,
			SpecTimeout(5*time.Minute)),
		Entry("a finalizer without a domain", `"finalizer":"index"`,
			`finalizer "index" is not valid in spec.finalizers`,
			SpecTimeout(5*time.Minute)),
		Entry("an invalid domain", `"finalizer":"Search.example.com/index"`, `is not valid in spec.finalizers`,
			SpecTimeout(5*time.Minute)),
		Entry("a domain that is too long", `"finalizer":"`+strings.Repeat("a", 254)+`/index"`,
			`is not valid in spec.finalizers`, SpecTimeout(5*time.Minute)),
		Entry("a name that is too long", `"finalizer":"example.com/`+strings.Repeat("a", 64)+`"`,
			`is not valid in spec.finalizers`, SpecTimeout(5*time.Minute)),
		Entry("an empty finalizer", `"finalizer":""`, "at least 1 chars long", SpecTimeout(5*time.Minute)),
		Entry("an invalid key", `"namespaceSelector":{"matchLabels":{"a b":"c"}}`,
			"a key in matchLabels is not a valid label key", SpecTimeout(5*time.Minute)),
		Entry("a key with the prefix of the project", `"namespaceSelector":{"matchLabels":{"nslifecycle.dev/initializing":"true"}}`,
			"namespaceSelector cannot select by labels under nslifecycle.dev/", SpecTimeout(5*time.Minute)),
		Entry("an invalid value", `"namespaceSelector":{"matchLabels":{"a":"b c"}}`,
			"namespaceSelector.matchLabels.a in body should match", SpecTimeout(5*time.Minute)),
		Entry("a key with the prefix of the project in an expression",
			`"namespaceSelector":{"matchExpressions":[{"key":"nslifecycle.dev/initializers","operator":"Exists"}]}`,
			"namespaceSelector cannot select by labels under nslifecycle.dev/", SpecTimeout(5*time.Minute)),
		Entry("an invalid key in an expression", `"namespaceSelector":{"matchExpressions":[{"key":"/a","operator":"Exists"}]}`,
			"matchExpressions[0].key in body should match", SpecTimeout(5*time.Minute)),
		Entry("an invalid value in an expression",
			`"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["-"]}]}`,
			"matchExpressions[0].values[0] in body should match", SpecTimeout(5*time.Minute)),
		Entry("In without values", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}`,
			"operators In and NotIn require values", SpecTimeout(5*time.Minute)),
		Entry("Exists with values", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}`,
			"operators In and NotIn require values", SpecTimeout(5*time.Minute)),
		Entry("an unknown operator", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`,
			`supported values: "In", "NotIn", "Exists", "DoesNotExist"`, SpecTimeout(5*time.Minute)),
		Entry("a failure policy without a timeout", `"failurePolicy":"Ignore"`,
			"also set timeoutSeconds", SpecTimeout(5*time.Minute)),
	)

	It("accepts the sample with all settings", func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "create", "--dry-run=server", "-f", filepath.Join(controlplane.Root(),
			"config/samples/v1alpha1_namespaceinitializerconfiguration_settings.yaml"))
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))

	It("rejects an invalid initializer name in an update", func(ctx context.Context) {
		cluster.Register(ctx, "update", "a.test.example.com")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "patch", "nsinit", "update", "--type=merge",
			"-p", `{"initializers":[{"name":"nope"}]}`)
		Expect(err).To(MatchError(ContainSubstring("is not fully qualified")))
	}, SpecTimeout(5*time.Minute))

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
	}, SpecTimeout(5*time.Minute))

	It("accepts an initializer name of the maximum length", func(ctx context.Context) {
		part := strings.Repeat("x", 63)
		longest := strings.Join([]string{part, part, part, strings.Repeat("y", 61)}, ".")
		Expect(longest).To(HaveLen(253))
		cluster.Register(ctx, "longest", longest)
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("longest"))
		Expect(framework.PendingOf(namespace)).To(Equal(longest))
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing("False", v1alpha1.ReasonCompleted))
	}, SpecTimeout(5*time.Minute))

	It("rejects a NamespaceInitializerSet with another name and suggests a NamespaceInitializerConfiguration", func(ctx context.Context) {
		set := &v1alpha1.NamespaceInitializerSet{}
		set.Name = "mine"
		Expect(cluster.Admin.Create(ctx, set)).To(MatchError(ContainSubstring("create a NamespaceInitializerConfiguration")))
	}, SpecTimeout(5*time.Minute))

	It("supports kubectl get with the short name and the category", func(ctx context.Context) {
		// Namespaces of other specs can wait for initializers with the same name.
		name := framework.Unique("b") + ".test.example.com"
		cluster.Register(ctx, "columns", framework.Unique("a")+".test.example.com", name)
		output, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", "nsinit", "columns")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(MatchRegexp(`NAME\s+ACTIVE\s+REASON\s+HEALTHY\s+AGE\ncolumns\s+True\s+Enforced\s+True`))
		output, err = cluster.Kubectl(ctx, cluster.Admin.Config, "get", "nslifecycle", "-o", "wide")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(And(ContainSubstring(name), ContainSubstring("/effective")))
	}, SpecTimeout(5*time.Minute))
})
