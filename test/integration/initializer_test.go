// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	pkginitializer "github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// initializerRules are the permissions that pkg/initializer requires.
var initializerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "patch", "initialize"}},
}

// Optional permissions.
var (
	statusRule   = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"}}
	finalizeRule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"}, Verbs: []string{"update"}}
)

// startManager runs a manager with an empty scheme until the spec ends.
func startManager(config *rest.Config, add func(mgr ctrl.Manager) error) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(add(mgr)).To(Succeed())
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	DeferCleanup(func(ctx context.Context) {
		stop()
		Eventually(done).WithContext(ctx).Should(Receive(Succeed()))
	})
}

func ownCondition(name string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
}

var _ = Describe("An initializer that uses pkg/initializer", func() {
	It("removes its name from the pending list after the function succeeds, with only the documented permissions", func(ctx context.Context) {
		first, second := framework.Unique("first")+".corp.example.com", framework.Unique("second")+".corp.example.com"
		config := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), initializerRules...).Config
		var calls atomic.Int32
		startManager(config, func(mgr ctrl.Manager) error {
			return errors.Join(
				pkginitializer.Add(mgr, second, func(_ context.Context, namespace *corev1.Namespace) (pkginitializer.Result, error) {
					calls.Add(1)
					if pending := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]; pending != second {
						return pkginitializer.Result{}, pkginitializer.Failed("TooEarly", "the pending initializers are %s", pending)
					}
					return pkginitializer.Result{Message: "nothing is left to do"}, nil
				}),
				pkginitializer.Add(mgr, first, func(context.Context, *corev1.Namespace) (pkginitializer.Result, error) {
					return pkginitializer.Result{}, nil
				}),
			)
		})
		cluster.Register(ctx, framework.Unique("package"), first, second)

		name := framework.Unique("shop")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, name)).To(matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
		}).WithContext(ctx).Should(Succeed())
		Expect(calls.Load()).To(BeEquivalentTo(1))
	}, SpecTimeout(5*time.Minute))

	It("publishes the result of the function in a condition, which remains after the initialization", func(ctx context.Context) {
		name := framework.Unique("published") + ".corp.example.com"
		config := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), append(initializerRules, statusRule)...).Config
		startManager(config, func(mgr ctrl.Manager) error {
			return pkginitializer.Add(mgr, name, func(_ context.Context, namespace *corev1.Namespace) (pkginitializer.Result, error) {
				switch namespace.Labels["go"] {
				case "panic":
					panic("index out of range")
				case "":
					return pkginitializer.Result{}, pkginitializer.NotYet(time.Hour, "NoLabel", "set the label go")
				}
				return pkginitializer.Result{Reason: "Labelled", Message: "the namespace has the label go"}, nil
			})
		})
		cluster.Register(ctx, framework.Unique("package"), name)

		bad := framework.Unique("panics")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(bad).Label("go", "panic").Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, bad)).To(matchers.HaveCondition(ownCondition(name), corev1.ConditionFalse, "Panicked", "index out of range"))
		}).WithContext(ctx).Should(Succeed())

		waits := framework.Unique("waits")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(waits).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, waits)).To(matchers.HaveCondition(ownCondition(name), corev1.ConditionFalse, "NoLabel", "set the label go"))
		}).WithContext(ctx).Should(Succeed())

		// The function is called again when the namespace changes, not after an hour.
		for _, namespace := range []string{waits, bad} {
			Expect(cluster.Ordinary.Patch(ctx, wrappers.MakeNamespace(namespace).Obj(),
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"go":"on"}}}`)))).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, namespace)).To(And(
					matchers.HaveCondition(ownCondition(name), corev1.ConditionTrue, "Labelled", "the namespace has the label go"),
					matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted)))
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(5*time.Minute))

	It("sets a result after a permanent failure, and the operator deletes the namespace", func(ctx context.Context) {
		name := framework.Unique("fails") + ".corp.example.com"
		config := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), initializerRules...).Config
		startManager(config, func(mgr ctrl.Manager) error {
			return pkginitializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (pkginitializer.Result, error) {
				return pkginitializer.Result{}, pkginitializer.Failed("NoQuota", "no quota is left for %q", "shop")
			})
		})
		cluster.Register(ctx, framework.Unique("package"), name)

		namespace := wrappers.MakeNamespace(framework.Unique("fails")).Obj()
		namespace.Finalizers = []string{"test.example.com/look"}
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(now.DeletionTimestamp).NotTo(BeNil())
			g.Expect(now).To(matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed,
				`NoQuota: no quota is left for "shop"`))
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Admin.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("adds a finalizer before the first call, and preserves other fields", func(ctx context.Context) {
		const finalizer = corev1.FinalizerName("search.example.com/index")
		name := framework.Unique("finalizer") + ".corp.example.com"
		config := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), append(initializerRules, finalizeRule)...).Config
		finalizers := make(chan []corev1.FinalizerName, 10)
		startManager(config, func(mgr ctrl.Manager) error {
			return pkginitializer.Add(mgr, name, func(ctx context.Context, namespace *corev1.Namespace) (pkginitializer.Result, error) {
				finalizers <- cluster.GetNamespace(Default, ctx, namespace.Name).Spec.Finalizers
				return pkginitializer.Result{}, nil
			}, pkginitializer.WithFinalizer(finalizer))
		})
		cluster.Register(ctx, framework.Unique("package"), name)

		namespace := wrappers.MakeNamespace(framework.Unique("finalizer")).Label("team", "shop").Obj()
		Expect(cluster.Ordinary.Create(ctx, namespace, client.FieldOwner("the-creator"))).To(Succeed())
		Eventually(finalizers).WithContext(ctx).Should(Receive(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes, finalizer})))
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			g.Expect(now.Labels).To(HaveKeyWithValue("team", "shop"))
			// The cached Namespace has no managed fields, but the update must not remove them.
			g.Expect(now.ManagedFields).To(ContainElement(HaveField("Manager", "the-creator")))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("reports missing permissions and the commands that grant them, and continues after they are granted", func(ctx context.Context) {
		name, user := framework.Unique("permissions")+".corp.example.com", framework.Unique("package-initializer")
		config := cluster.AddUserWithRules(ctx, user, statusRule, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "patch"},
		}).Config
		cluster.Register(ctx, framework.Unique("package"), name)
		var missing *pkginitializer.MissingPermissionsError
		Eventually(func(g Gomega) { // The API server might not have observed the new role yet.
			err := pkginitializer.Check(ctx, config, name)
			g.Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
			g.Expect(missing.Missing).To(Equal([]string{"initialize namespaces"}))
		}).WithContext(ctx).Should(Succeed())
		Expect(missing.Message).To(HavePrefix("user %q is not allowed to initialize namespaces; as an administrator run: kubectl create clusterrole", user))

		var calls atomic.Int32
		startManager(config, func(mgr ctrl.Manager) error {
			return pkginitializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (pkginitializer.Result, error) {
				calls.Add(1)
				return pkginitializer.Result{}, nil
			}, pkginitializer.WithBackoff(50*time.Millisecond, 50*time.Millisecond))
		})
		namespace := framework.Unique("permissions")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(namespace).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace)).To(matchers.HaveCondition(ownCondition(name), corev1.ConditionFalse, "Retrying",
				"kubectl create clusterrole initializer:"+name+" --verb=get,list,watch,patch,initialize --resource=namespaces"))
		}).WithContext(ctx).Should(Succeed())

		_, commands, _ := strings.Cut(missing.Message, "run: ")
		for command := range strings.SplitSeq(commands, "; ") {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, strings.Fields(strings.ReplaceAll(command, `"`, ""))[1:]...)
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(func(ctx context.Context) {
			for _, kind := range []string{"clusterrole", "clusterrolebinding"} {
				_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", kind, "initializer:"+name)
				Expect(err).NotTo(HaveOccurred())
			}
		})
		Eventually(func(g Gomega) {
			g.Expect(pkginitializer.Check(ctx, config, name)).To(Succeed())
			g.Expect(cluster.GetNamespace(g, ctx, namespace).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		Expect(calls.Load()).To(BeEquivalentTo(1))
	}, SpecTimeout(5*time.Minute))

	It("reports that its name is not registered if it can read the NamespaceInitializerSet", func(ctx context.Context) {
		name := framework.Unique("unregistered") + ".corp.example.com"
		permitted := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), append(initializerRules, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespaceinitializersets"}, Verbs: []string{"get"},
		})...).Config
		unpermitted := cluster.AddUserWithRules(ctx, framework.Unique("package-initializer"), initializerRules...).Config
		Eventually(func(g Gomega) { // The API server might not have observed the new roles yet.
			var unregistered *pkginitializer.NotRegisteredError
			err := pkginitializer.Check(ctx, permitted, name)
			g.Expect(errors.As(err, &unregistered)).To(BeTrue(), "%v", err)
			g.Expect(unregistered.Name).To(Equal(name))
		}).WithContext(ctx).Should(Succeed())
		Eventually(pkginitializer.Check).WithContext(ctx).WithArguments(unpermitted, name).Should(Succeed())
		cluster.Register(ctx, framework.Unique("package"), name)
		Expect(pkginitializer.Check(ctx, permitted, name)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	DescribeTable("accepts the same names as the API server", func(ctx context.Context, name string) {
		configuration := wrappers.MakeConfiguration(framework.Unique("names")).Initializers(name).Obj()
		Expect(cluster.Admin.Create(ctx, configuration, client.DryRunAll) == nil).
			To(Equal(v1alpha1.ValidateInitializerName(name) == nil))
	},
		Entry("a valid name", "a.b.c", SpecTimeout(5*time.Minute)),
		Entry("a name with digits only", "0.1.2", SpecTimeout(5*time.Minute)),
		Entry("a name of the maximum length", strings.Repeat("a.", 126)+"a", SpecTimeout(5*time.Minute)),
		Entry("a name that is too long", strings.Repeat("a.", 126)+"ab", SpecTimeout(5*time.Minute)),
		Entry("a part of the maximum length", strings.Repeat("a", 63)+".b.c", SpecTimeout(5*time.Minute)),
		Entry("a part that is too long", strings.Repeat("a", 64)+".b.c", SpecTimeout(5*time.Minute)),
		Entry("an empty name", "", SpecTimeout(5*time.Minute)),
		Entry("two parts", "a.b", SpecTimeout(5*time.Minute)),
		Entry("a comma", "a.b.c,d.e.f", SpecTimeout(5*time.Minute)),
		Entry("an empty part", "a..b", SpecTimeout(5*time.Minute)),
		Entry("a leading dot", ".a.b.c", SpecTimeout(5*time.Minute)),
		Entry("a trailing dot", "a.b.c.", SpecTimeout(5*time.Minute)),
		Entry("an uppercase letter", "A.b.c", SpecTimeout(5*time.Minute)),
		Entry("a part with a trailing dash", "a-.b.c", SpecTimeout(5*time.Minute)),
		Entry("a line break", "a.b.c\n", SpecTimeout(5*time.Minute)),
		Entry("a slash", "a.b.c/d", SpecTimeout(5*time.Minute)),
		Entry("a non-ASCII letter", "é.b.c", SpecTimeout(5*time.Minute)),
	)
})
