// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const roleBinding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"team"},` +
	`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"KIND","name":"NAME"},` +
	`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"team"}]}`

func bindingTo(kind, name string) string {
	return strings.NewReplacer("KIND", kind, "NAME", name).Replace(roleBinding)
}

const readerRole = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"reader"},` +
	`"rules":[{"apiGroups":[""],"resources":["pods","pods/log"],"verbs":["get","watch"]},` +
	`{"apiGroups":[""],"resources":["secrets"],"resourceNames":["token"],"verbs":["*"]}]}`

// unauthorized returns a template with a ServiceAccount that does not exist, and the source of its copies.
func unauthorized(ctx context.Context, spec *v1alpha1.NamespaceTemplateSpec) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	name := framework.Unique("authorized")
	found := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec.DeepCopy()}
	found.Spec.ServiceAccountName, found.Spec.Access, found.Spec.MaxNamespacesPerUser = name, v1alpha1.AccessOpen, nil
	found.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{"kind": v1alpha1.LabelValue(name)},
	}
	for _, object := range found.Spec.Objects {
		if object.SourceRef == nil {
			continue
		}
		var source client.Object = &corev1.Secret{}
		if object.SourceRef.Kind == "ConfigMap" {
			source = &corev1.ConfigMap{}
		}
		source.SetNamespace(controlplane.SourceNamespace)
		source.SetName(object.SourceRef.Name)
		Expect(client.IgnoreAlreadyExists(cluster.Admin.Create(ctx, source))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, source))).To(Succeed())
		})
	}
	return found
}

// grantPrinted applies the objects in the message of ConditionAuthorized, exactly as printed.
func grantPrinted(ctx context.Context, name string) {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		current := getTemplate(g, ctx, name)
		condition := meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionAuthorized)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.ObservedGeneration).To(Equal(current.Generation))
		g.Expect(condition.Status).NotTo(Equal(metav1.ConditionTrue))
		message = condition.Message
	}).WithContext(ctx).Should(Succeed())
	summary, manifests, isPrinted := strings.Cut(message, "\n")
	Expect(isPrinted).To(BeTrue(), message)
	Expect(len(summary)).To(BeNumerically("<", 1000))
	GinkgoWriter.Println(message)
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifests, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifests, "delete", "--ignore-not-found", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	})
}

// expectNotForbidden expects that no problem of a namespace was, or is, a lack of permissions.
func expectNotForbidden(ctx context.Context, name string) {
	GinkgoHelper()
	current := getTemplate(Default, ctx, name)
	Expect(current.Status.Failures).NotTo(ContainElement(HaveField("Reason", v1alpha1.ReasonForbidden)))
	var events eventsv1.EventList
	Expect(cluster.Admin.List(ctx, &events)).To(Succeed())
	for _, event := range events.Items {
		Expect(event.Reason == v1alpha1.ReasonForbidden && strings.Contains(event.Note, `"`+name+`"`)).To(BeFalse(), event.Note)
	}
	Expect(meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionAuthorized)).To(BeTrue())
}

// sizedBy returns a namespace with the labels that the samples and pages use as parameters.
func sizedBy(name string) *corev1.Namespace {
	return wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", name).
		Label("capsule.clastix.io/tenant", "solar").Label("size", "small").Obj()
}

// newAuthorizer returns an Authorizer with the permissions of the operator.
func newAuthorizer(ctx context.Context) *authorization.Authorizer {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	server, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(server))
	return &authorization.Authorizer{
		Client: framework.NewUser(config), ServiceAccounts: cluster.Admin.Client,
		DryRunner: &execute.Writer{
			Config: config, Kinds: &observe.Kinds{Mapper: mapper, Discovery: server, Clock: clock.RealClock{}},
			DryRuns: dryrun.New(contentrole.IsAggregated(cluster.Admin)), SystemNamespace: controlplane.SystemNamespace,
		},
		SystemNamespace: controlplane.SystemNamespace, Operator: operator, IsOperator: true, Clock: clock.RealClock{},
	}
}

// expectEachRequired removes each permission in a role, one at a time, and expects that the condition is not True then.
func expectEachRequired(
	ctx context.Context, authorizer *authorization.Authorizer, current *v1alpha1.NamespaceTemplate, role client.Object,
) {
	GinkgoHelper()
	rules := rulesOf(role)
	cluster.Admin.Reads(ctx, role)
	complete := *rules
	var single []rbacv1.PolicyRule
	for _, rule := range complete {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				single = append(single, rbacv1.PolicyRule{
					APIGroups: rule.APIGroups, Resources: []string{resource}, ResourceNames: rule.ResourceNames, Verbs: []string{verb},
				})
			}
		}
	}
	for i, removed := range single {
		*rules = slices.Delete(slices.Clone(single), i, i+1)
		cluster.Admin.Updates(ctx, role)
		Eventually(func() metav1.ConditionStatus {
			result := authorizer.Check(ctx, current, true)
			return result.Status()
		}).WithContext(ctx).ShouldNot(Equal(metav1.ConditionTrue), "%s %v", role.GetName(), removed)
	}
	*rules = complete
	cluster.Admin.Updates(ctx, role)
	Eventually(func() string {
		result := authorizer.Check(ctx, current, true)
		return string(result.Status()) + result.Message(current.Name)
	}).WithContext(ctx).Should(HavePrefix("True"))
}

// expectPrintedSufficient creates a template whose ServiceAccount has no permissions, grants those that the
// condition prints, and expects that they are sufficient, and that each is necessary.
func expectPrintedSufficient(ctx context.Context, spec *v1alpha1.NamespaceTemplateSpec) {
	GinkgoHelper()
	current := unauthorized(ctx, spec)
	create(ctx, current)
	expectCondition(ctx, current.Name, v1alpha1.ConditionValid, metav1.ConditionTrue)
	expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse)
	grantPrinted(ctx, current.Name)
	expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
	namespace := sizedBy(current.Name)
	createInitialized(ctx, namespace)
	expectNotForbidden(ctx, current.Name)

	authorizer := newAuthorizer(ctx)
	name := "nslifecycle:template:" + current.Name
	expectEachRequired(ctx, authorizer, current, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
	expectEachRequired(ctx, authorizer, current, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name + ":operator"},
	})
}

func objects(objects ...v1alpha1.TemplateObject) *v1alpha1.NamespaceTemplateSpec {
	return &v1alpha1.NamespaceTemplateSpec{Objects: objects}
}

func with(spec *v1alpha1.NamespaceTemplateSpec, change func(*v1alpha1.NamespaceTemplateSpec)) *v1alpha1.NamespaceTemplateSpec {
	change(spec)
	return spec
}

func copyFrom(kind, name string) v1alpha1.TemplateObject {
	return v1alpha1.TemplateObject{Name: strings.ToLower(kind), SourceRef: &v1alpha1.TemplateSourceReference{Kind: kind, Name: name}}
}

var _ = Describe("The permissions that the condition Authorized prints", func() {
	DescribeTable("are sufficient, and each is necessary, for",
		func(ctx context.Context, spec *v1alpha1.NamespaceTemplateSpec) { expectPrintedSufficient(ctx, spec) },
		func(*v1alpha1.NamespaceTemplateSpec) string { return "" },
		Entry("a RoleBinding to a Role of the template", objects(
			objectNamed("role", readerRole), objectNamed("team", bindingTo("Role", "reader")))),
		Entry("a RoleBinding to a computed ClusterRole", objects(
			objectNamed("team", bindingTo("ClusterRole", "${'edit-' + 'configmaps'}")))),
		Entry("a Role with computed rules", objects(objectNamed("role",
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"reader"},`+
				`"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["${'g' + 'et'}"]}]}`))),
		Entry("copies", objects(copyFrom("Secret", "token"), copyFrom("ConfigMap", "settings"))),
		Entry("locked objects that are applied once and kept", with(objects(
			objectNamed("config", configMap("config", "a")), objectNamed("limits", `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits"}}`),
		), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Sync.Mode, spec.ObjectRetentionPolicy.WhenRemoved = v1alpha1.SyncOnce, v1alpha1.RetentionRetain
			spec.Objects[0].Lock, spec.Objects[1].NamespaceState = v1alpha1.LockAll, v1alpha1.NamespaceStateInitialized
		})),
	)

	It("are sufficient, and each is necessary, for custom kinds", func(ctx context.Context) {
		admin := framework.NewUser(cluster.Admin.Config, apiextensionsv1.AddToScheme)
		admin.Creates(ctx, definition("Gadget", apiextensionsv1.NamespaceScoped))
		DeferCleanup(func(ctx context.Context) {
			admin.Deletes(ctx, definition("Gadget", ""))
		})
		expectPrintedSufficient(ctx, objects(objectNamed("gadget",
			`{"apiVersion":"test.example.com/v1","kind":"Gadget","metadata":{"name":"gadget"}}`)))
	})

	// This takes a minute, so it starts first.
	It("are sufficient, and each is necessary, for all samples", SpecPriority(10), func(ctx context.Context) {
		samples := filepath.Join(controlplane.Root(), "config", "samples")
		files := []string{filepath.Join(samples, "self-service", "templates.yaml")}
		for _, directory := range []string{"templates", "migration"} {
			found, err := filepath.Glob(filepath.Join(samples, directory, "*.yaml"))
			Expect(err).NotTo(HaveOccurred())
			Expect(found).NotTo(BeEmpty())
			files = append(files, found...)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for document := range strings.SplitSeq(string(content), "\n---\n") {
				sample := &v1alpha1.NamespaceTemplate{}
				if strings.Contains(document, "kind: NamespaceTemplate\n") {
					Expect(yaml.Unmarshal([]byte(document), sample)).To(Succeed())
					By(sample.Name)
					expectPrintedSufficient(ctx, &sample.Spec)
				}
			}
		}
	})

	It("include the objects of the previous revision until it is replaced", func(ctx context.Context) {
		current := unauthorized(ctx, objects(objectNamed("limits", `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits"}}`)))
		create(ctx, current)
		grantPrinted(ctx, current.Name)
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		namespace := createInitialized(ctx, selectedBy(current.Name))
		change(ctx, current.Name, only("config", configMap("config", "a")))
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, "configmaps", "limitranges")
		grantPrinted(ctx, current.Name)
		Eventually(func(g Gomega) {
			var limits corev1.LimitRangeList
			g.Expect(cluster.Admin.List(ctx, &limits, client.InNamespace(namespace.Name))).To(Succeed())
			g.Expect(limits.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
	})
})

// rulesOf returns a pointer to the rules of a role.
func rulesOf(role client.Object) *[]rbacv1.PolicyRule {
	if namespaced, ok := role.(*rbacv1.Role); ok {
		return &namespaced.Rules
	}
	return &role.(*rbacv1.ClusterRole).Rules
}

var _ = Describe("The condition Authorized", func() {
	writeBindings := ruleFor(rbacv1.GroupName, "rolebindings", "create", "patch", "delete")

	DescribeTable("with a RoleBinding", func(
		ctx context.Context, kind, name string, rules []rbacv1.PolicyRule, status metav1.ConditionStatus, message ...string,
	) {
		account := createLimitedAccount(ctx, append(rules, writeBindings)...)
		cluster.AllowImpersonation(ctx, account)
		current := createTemplate(ctx, "binding", only("team", bindingTo(kind, name)),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = account })
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, status, message...)
		if rules == nil {
			return
		}
		createInitialized(ctx, selectedBy(current.Name))
		if status == metav1.ConditionTrue {
			expectNotForbidden(ctx, current.Name)
		}
	},
		Entry("is False before any namespace exists if the ServiceAccount may not bind the role", "ClusterRole", "edit-configmaps",
			nil, metav1.ConditionFalse, `bind clusterroles.rbac.authorization.k8s.io "edit-configmaps"`),
		Entry("is True without bind if the ServiceAccount holds the permissions of the role", "ClusterRole", "edit-configmaps",
			[]rbacv1.PolicyRule{ruleFor("", "configmaps", "create", "get", "update", "delete")}, metav1.ConditionTrue),
		Entry("is Unknown if the ServiceAccount may not bind a Role that the template does not contain", "Role", "reader",
			nil, metav1.ConditionUnknown, "may hold its permissions", "- bind"),
		Entry("is False if the ClusterRole does not exist and the ServiceAccount may not bind it", "ClusterRole", "missing",
			nil, metav1.ConditionFalse, "bind"),
		Entry("is Unknown if an expression computes a name and not every name is permitted", "ClusterRole", "${'edit-' + 'configmaps'}",
			[]rbacv1.PolicyRule{{
				APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"edit-configmaps"},
				Verbs: []string{"bind"},
			}}, metav1.ConditionUnknown, "an expression computes", "- bind"),
	)

	It("is True without escalate if the ServiceAccount holds the many permissions of a Role", func(ctx context.Context) {
		groups := strings.Repeat(`"example.com",`, 20) + `""`
		many := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"reader"},"rules":[` +
			`{"apiGroups":[GROUPS],"resources":[GROUPS],"verbs":["get"]}]}`
		account := createLimitedAccount(ctx, ruleFor(rbacv1.GroupName, "roles", "create", "patch", "delete"))
		cluster.AllowImpersonation(ctx, account)
		current := createTemplate(ctx, "many", only("role", strings.ReplaceAll(many, "GROUPS", groups)),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = account })
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, "escalate")
		cluster.Bind(ctx, framework.Unique("held"), []rbacv1.PolicyRule{ruleFor("*", "*", "get")},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: account})
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		createInitialized(ctx, selectedBy(current.Name))
		expectNotForbidden(ctx, current.Name)
	})

	// This takes 30 s, because permissions are not reviewed more often.
	It("recognizes that permissions were revoked when an object is forbidden", func(ctx context.Context) {
		account := createLimitedAccount(ctx)
		rule := ruleFor("", "configmaps", "create", "patch", "delete")
		name := framework.Unique("revocable")
		cluster.Bind(ctx, name, []rbacv1.PolicyRule{rule}, rbacv1.Subject{
			Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: account,
		})
		cluster.AllowImpersonation(ctx, account)
		current := createTemplate(ctx, "revoked", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = account })
		createInitialized(ctx, selectedBy(current.Name))
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		cluster.Admin.Deletes(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
		authorizer := newAuthorizer(ctx)
		Eventually(func() metav1.ConditionStatus {
			result := authorizer.Check(ctx, current, true)
			return result.Status()
		}).WithContext(ctx).Should(Equal(metav1.ConditionFalse))
		namespace := framework.CreateAs(ctx, creator, selectedBy(current.Name))
		expectWaiting(ctx, namespace, "Forbidden")
		expectCondition(ctx, current.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, "create configmaps")
	})

	It("requires a bounded number of requests", func(ctx context.Context) {
		spec := objects()
		for i := range 128 {
			spec.Objects = append(spec.Objects, objectNamed(framework.Unique("config"), configMap(framework.Unique("config"), string(rune('a'+i%26)))))
		}
		current := unauthorized(ctx, spec)
		authorizer := newAuthorizer(ctx)
		start := time.Now()
		result := authorizer.Check(ctx, current, true)
		AddReportEntry("denied", time.Since(start).String())
		Expect(result.Status()).To(Equal(metav1.ConditionFalse))
		Expect(len(result.Message(current.Name))).To(BeNumerically("<", 32768))
		_, manifests, _ := strings.Cut(result.Message(current.Name), "\n")
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifests, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() metav1.ConditionStatus {
			start = time.Now()
			result = authorizer.Check(ctx, current, true)
			return result.Status()
		}).WithContext(ctx).Should(Equal(metav1.ConditionTrue))
		AddReportEntry("allowed", time.Since(start).String())
		start = time.Now()
		_ = authorizer.Check(ctx, current, false)
		AddReportEntry("cached", time.Since(start).String())
	})
})
