// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	confinedAccount = "confined-initializer"
	confinedPolicy  = internalv1alpha1.PolicyConfinedInitializers
	// confinedName and secondName are the initializers of the ServiceAccount. Only the first has a confinement.
	confinedName = "confined.test.example.com"
	secondName   = "second.test.example.com"
	// foreignName is an initializer of another subject, for namespaces with the label foreign.
	foreignName  = "foreign.test.example.com"
	foreignLabel = "test.example.com/foreign"
)

// addConfined registers the initializers, and returns the ServiceAccount of two of them. Its ClusterRole contains
// every verb on every resource, except admission policies: users who may delete the policy are not confined.
func addConfined(ctx context.Context) *framework.User {
	GinkgoHelper()
	for _, object := range []client.Object{
		wrappers.MakeNamespace(confinedAccount).Obj(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: confinedAccount, Namespace: confinedAccount}},
	} {
		Expect(client.IgnoreAlreadyExists(cluster.Admin.Create(ctx, object))).To(Succeed())
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{
		"", "apiextensions.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "events.k8s.io",
		"policy", rbacv1.GroupName, v1alpha1.GroupVersion.Group, internalv1alpha1.GroupVersion.Group, serviceBusGroup,
	}, Resources: []string{"*"}, Verbs: []string{"*"}}
	subject := v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: confinedAccount, Name: confinedAccount}
	cluster.Bind(ctx, confinedAccount, []rbacv1.PolicyRule{rule},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: confinedAccount, Name: confinedAccount})
	config, err := cluster.ServiceAccountConfig(ctx, confinedAccount, confinedAccount)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, config, rule)
	isNotForeign := &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
		{Key: foreignLabel, Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
	cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("confined").
		Initializer(confinedName, v1alpha1.InitializerSettings{
			Confinement: v1alpha1.ConfinementInitializingNamespaces, NamespaceSelector: isNotForeign,
			Subjects: []v1alpha1.Subject{{
				Kind: v1alpha1.SubjectServiceAccount, Namespace: confinedAccount, Name: `"'\` + "\u00e9\U0001f600\n",
			}, subject},
		}).
		Initializer(secondName, v1alpha1.InitializerSettings{
			Subjects: []v1alpha1.Subject{subject}, NamespaceSelector: isNotForeign,
		}).
		Initializers(foreignName))
	return framework.NewUser(config)
}

// confinedRequest is a request by a confined subject. The Namespace waits for its initializers.
type confinedRequest func(ctx context.Context, user *framework.User, namespace string) error

func patchNamespace(body string, subresources ...string) confinedRequest {
	return func(ctx context.Context, user *framework.User, namespace string) error {
		_, err := user.Clientset().CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(body),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
}

func patchConditions(conditions string) confinedRequest {
	return func(ctx context.Context, user *framework.User, namespace string) error {
		_, err := user.Clientset().CoreV1().Namespaces().Patch(ctx, namespace, types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[`+conditions+`]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
}

func changeNamespace(put func(*framework.User, context.Context, *corev1.Namespace) error, change func(*corev1.Namespace)) confinedRequest {
	return func(ctx context.Context, user *framework.User, namespace string) error {
		now := &corev1.Namespace{}
		if err := user.Get(ctx, client.ObjectKey{Name: namespace}, now); err != nil {
			return err
		}
		change(now)
		return put(user, ctx, now)
	}
}

// gitopsFields returns the entry of a GitOps controller in managedFields.
func gitopsFields(fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: "gitops", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func plantFields(fields string) confinedRequest {
	return changeNamespace(putNamespace, func(n *corev1.Namespace) { n.ManagedFields = append(n.ManagedFields, gitopsFields(fields)) })
}

func applyLabel(subresources ...string) confinedRequest {
	return func(ctx context.Context, user *framework.User, namespace string) error {
		_, err := user.Clientset().CoreV1().Namespaces().Patch(ctx, namespace, types.ApplyPatchType,
			[]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`","labels":{"kept":"yes"}}}`),
			metav1.PatchOptions{FieldManager: "gitops", DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
}

func putNamespace(user *framework.User, ctx context.Context, namespace *corev1.Namespace) error {
	return user.Update(ctx, namespace, client.DryRunAll)
}

func finalizeNamespace(user *framework.User, ctx context.Context, namespace *corev1.Namespace) error {
	_, err := user.Clientset().CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func createIn(namespace string, object client.Object) confinedRequest {
	return func(ctx context.Context, user *framework.User, initializing string) error {
		created := object.DeepCopyObject().(client.Object)
		created.SetNamespace(namespace)
		if namespace == "" && !isClusterScoped(created) {
			created.SetNamespace(initializing)
		}
		if created.GetName() == "" {
			created.SetName(framework.Unique("attack"))
		}
		return user.Create(ctx, created, client.DryRunAll)
	}
}

func isClusterScoped(object client.Object) bool {
	isNamespaced, err := cluster.Admin.IsObjectNamespaced(object)
	Expect(err).NotTo(HaveOccurred())
	return !isNamespaced
}

func patchObject(object client.Object, body string) confinedRequest {
	return func(ctx context.Context, user *framework.User, _ string) error {
		return user.Patch(ctx, object.DeepCopyObject().(client.Object), framework.MergePatch(body), client.DryRunAll)
	}
}

func bindAdmin() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: confinedAccount, Name: confinedAccount}},
	}
}

func named[T client.Object](object T, name string) T {
	object.SetName(name)
	return object
}

func coreEvent(kind string) *corev1.Event {
	return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: "any"}}
}

func newEvent(kind string) *eventsv1.Event {
	event := &eventsv1.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: "any"}, EventTime: metav1.NowMicro(),
		ReportingController: "test.example.com/confined", ReportingInstance: "one", Action: "Initialize", Reason: "Test", Type: "Normal",
	}
	return event
}

// serviceBusGroup has a namespaced resource with the plural "namespaces".
const serviceBusGroup = "servicebus.test.example.com"

func makeServiceBus(namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: object{"apiVersion": serviceBusGroup + "/v1", "kind": "Namespace"}}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// confinedAttacks are dry runs that RBAC allows.
var confinedAttacks = map[string]confinedRequest{
	// The attacks in SECURITY.md.
	"relabel an initialized namespace": func(ctx context.Context, user *framework.User, _ string) error {
		return patchNamespace(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)(ctx, user, "default")
	},
	"bind admin in kube-system": createIn(metav1.NamespaceSystem, bindAdmin()),
	"remove the name of another initializer": patchNamespace(
		`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":"` + confinedName + `,` + secondName + `"}}}`),
	"complete the initialization": patchNamespace(`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":""}}}`),
	// The Namespace.
	"relabel an initializing namespace":                  patchNamespace(`{"metadata":{"labels":{"a":"b"}}}`),
	"remove a label of an initializing namespace":        patchNamespace(`{"metadata":{"labels":{"kept":null}}}`),
	"relabel an initializing namespace through /status":  patchNamespace(`{"metadata":{"labels":{"a":"b"}}}`, "status"),
	"annotate an initializing namespace":                 patchNamespace(`{"metadata":{"annotations":{"a":"b"}}}`),
	"annotate an initializing namespace through /status": patchNamespace(`{"metadata":{"annotations":{"a":"b"}}}`, "status"),
	"remove an annotation of an initializing namespace":  patchNamespace(`{"metadata":{"annotations":{"kept":null}}}`),
	"annotate an initialized namespace":                  onDefault(patchNamespace(`{"metadata":{"annotations":{"a":"b"}}}`)),
	"add a finalizer":                                    changeNamespace(putNamespace, func(n *corev1.Namespace) { n.Finalizers = []string{"test.example.com/a"} }),
	"add a finalizer to an initialized namespace":        onDefault(changeNamespace(putNamespace, func(n *corev1.Namespace) { n.Finalizers = []string{"test.example.com/a"} })),
	"add an owner": changeNamespace(putNamespace, addOwner),
	"annotate an initializing namespace through /finalize":  changeNamespace(finalizeNamespace, func(n *corev1.Namespace) { n.Annotations["a"] = "b" }),
	"add a namespace finalizer":                             changeNamespace(finalizeNamespace, func(n *corev1.Namespace) { n.Spec.Finalizers = append(n.Spec.Finalizers, "test.example.com/a") }),
	"remove the namespace finalizer":                        changeNamespace(finalizeNamespace, func(n *corev1.Namespace) { n.Spec.Finalizers = nil }),
	"remove the namespace finalizer of an initialized one":  onDefault(changeNamespace(finalizeNamespace, func(n *corev1.Namespace) { n.Spec.Finalizers = nil })),
	"add managedFields of another client":                   plantFields(`{"f:metadata":{"f:labels":{"f:kept":{}}}}`),
	"add managedFields of another client for an annotation": plantFields(`{"f:metadata":{"f:annotations":{"f:nslifecycle.dev/pending-initializers":{},"f:kept":{}}}}`),
	"add managedFields of another client for a finalizer":   plantFields(`{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`),
	"add managedFields of another client for conditions":    plantFields(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}`),
	"add managedFields of another client for all labels":    plantFields(`{"f:metadata":{"f:labels":{}}}`),
	"add managedFields of another client for all metadata":  plantFields(`{"f:metadata":{}}`),
	"add managedFields of another client for the status":    plantFields(`{"f:status":{}}`),
	"remove managedFields":                                  patchNamespace(`{"metadata":{"managedFields":[{}]}}`),
	"remove the managedFields of the creator": changeNamespace(putNamespace, func(n *corev1.Namespace) {
		n.ManagedFields = append(n.ManagedFields[:0:0], gitopsFields(`{"f:metadata":{"f:annotations":{"f:nslifecycle.dev/pending-initializers":{}}}}`))
	}),
	"apply a label as another client":                        applyLabel(),
	"apply a label as another client, by /status":            applyLabel("status"),
	"write another condition":                                patchConditions(`{"type":"test.example.com/Other","status":"True"}`),
	"write the condition of another initializer":             patchConditions(`{"type":"` + foreignName + `/Initialized","status":"True"}`),
	"write another condition with its own":                   patchConditions(`{"type":"` + confinedName + `/Initialized","status":"False"},{"type":"A","status":"True"}`),
	"write its condition to a namespace without initializer": onDefault(patchConditions(`{"type":"` + confinedName + `/Initialized","status":"False"}`)),
	"create a namespace":                                     createIn("", &corev1.Namespace{}),
	"delete an initializing namespace": func(ctx context.Context, user *framework.User, namespace string) error {
		return user.Delete(ctx, wrappers.MakeNamespace(namespace).Obj(), client.DryRunAll)
	},
	"delete its own namespace": func(ctx context.Context, user *framework.User, _ string) error {
		return user.Delete(ctx, wrappers.MakeNamespace(confinedAccount).Obj(), client.DryRunAll)
	},
	"relabel its own namespace": func(ctx context.Context, user *framework.User, _ string) error {
		return patchNamespace(`{"metadata":{"labels":{"a":"b"}}}`)(ctx, user, confinedAccount)
	},
	// Objects in other namespaces.
	"create a ConfigMap in default":                        createIn(metav1.NamespaceDefault, &corev1.ConfigMap{}),
	"create a ServiceAccount in kube-system":               createIn(metav1.NamespaceSystem, &corev1.ServiceAccount{}),
	"create a custom resource named namespaces":            createIn(metav1.NamespaceDefault, makeServiceBus("", "")),
	"update a custom resource named namespaces":            patchObject(makeServiceBus(metav1.NamespaceDefault, "victim"), `{"spec":{"a":"b"}}`),
	"update the status of a custom resource":               patchStatus(makeServiceBus(metav1.NamespaceDefault, "victim"), `{"status":{"a":"b"}}`),
	"delete a custom resource named namespaces":            deleteObject(makeServiceBus(metav1.NamespaceDefault, "victim")),
	"update a ConfigMap":                                   patchObject(wrappers.MakeConfigMap(metav1.NamespaceDefault, "victim"), `{"data":{"a":"b"}}`),
	"delete a ConfigMap":                                   deleteObject(wrappers.MakeConfigMap(metav1.NamespaceDefault, "victim")),
	"create an Event about a Pod":                          createIn(metav1.NamespaceDefault, coreEvent("Pod")),
	"create an Event about a Pod in events.k8s.io":         createIn(metav1.NamespaceDefault, newEvent("Pod")),
	"create an Event about a Namespace in kube-system":     createIn(metav1.NamespaceSystem, newEvent("Namespace")),
	"make an Event about a ConfigMap one about Namespaces": patchObject(named(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, "victim"), `{"involvedObject":{"kind":"Namespace"}}`),
	"delete all ConfigMaps in default": func(ctx context.Context, user *framework.User, _ string) error {
		return user.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(metav1.NamespaceDefault), client.DryRunAll)
	},
	"issue a token in kube-system": func(ctx context.Context, user *framework.User, _ string) error {
		return user.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "victim",
		}}, &authenticationv1.TokenRequest{})
	},
	"evict a Pod": func(ctx context.Context, user *framework.User, _ string) error {
		return user.SubResource("eviction").Create(ctx, wrappers.MakePod(metav1.NamespaceDefault, "victim"), &policyv1.Eviction{})
	},
	"run a command in a Pod": func(ctx context.Context, user *framework.User, _ string) error {
		return user.Clientset().CoreV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("pods").Name("victim").
			SubResource("exec").Param("command", "id").Do(ctx).Error()
	},
	// Cluster-scoped objects.
	"create a ClusterRole": createIn("", &rbacv1.ClusterRole{}),
	"bind cluster-admin": createIn("", &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{
		APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin",
	}}),
	"delete a ClusterRole": deleteObject(named(&rbacv1.ClusterRole{}, "view")),
	"delete a CustomResourceDefinition's objects": func(ctx context.Context, user *framework.User, _ string) error {
		return user.DeleteAllOf(ctx, &v1alpha1.NamespaceInitializerConfiguration{}, client.DryRunAll)
	},
	"remove its confinement": patchObject(named(&v1alpha1.NamespaceInitializerConfiguration{}, "confined"), `{"initializers":[]}`),
	"write the set":          patchObject(named(&internalv1alpha1.NamespaceInitializerSet{}, internalv1alpha1.EffectiveSetName), `{"initializers":[]}`),
	"create a node":          createIn("", &corev1.Node{}),
	"connect to a node": func(ctx context.Context, user *framework.User, _ string) error {
		return user.Clientset().CoreV1().RESTClient().Post().Resource("nodes").Name("victim").SubResource("proxy").Do(ctx).Error()
	},
}

// confinedWrites are the dry runs that an initializer needs.
var confinedWrites = map[string]confinedRequest{
	"bind admin":                            createIn("", bindAdmin()),
	"create a ConfigMap":                    createIn("", &corev1.ConfigMap{}),
	"create a custom resource":              createIn("", makeServiceBus("", "")),
	"remove its name":                       patchNamespace(`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":"` + secondName + `,` + foreignName + `"}}}`),
	"set a failure":                         patchNamespace(`{"metadata":{"annotations":{"nslifecycle.dev/initialization-result":"{\"status\":\"Failure\"}"}}}`),
	"write its condition":                   patchConditions(`{"type":"` + confinedName + `/Initialized","status":"False","reason":"Creating","message":"a"}`),
	"write the condition of its second one": patchConditions(`{"type":"` + secondName + `/Initialized","status":"False","reason":"Creating","message":"a"}`),
	"create its Lease":                      createIn(confinedAccount, &coordinationv1.Lease{}),
	"create an Event":                       createIn(metav1.NamespaceDefault, coreEvent("Namespace")),
	"create an Event in events.k8s.io":      createIn(metav1.NamespaceDefault, newEvent("Namespace")),
	"review its permissions":                review(&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get"}}}),
	"review a token":                        review(&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "a"}}),
	"review its name":                       review(&authenticationv1.SelfSubjectReview{}),
	"delete all ConfigMaps in the namespace": func(ctx context.Context, user *framework.User, namespace string) error {
		return user.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace), client.DryRunAll)
	},
	"write the Namespace without a change":     changeNamespace(putNamespace, func(*corev1.Namespace) {}),
	"finalize the Namespace without a change":  changeNamespace(finalizeNamespace, func(*corev1.Namespace) {}),
	"apply the pending list with a new client": applyPending,
}

func applyPending(ctx context.Context, user *framework.User, namespace string) error {
	_, err := cluster.KubectlWithInput(ctx, user.Config, `{apiVersion: v1, kind: Namespace, metadata: {name: `+namespace+`, annotations:
		{nslifecycle.dev/pending-initializers: "`+secondName+`,`+foreignName+`"}}}`,
		"apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
	return err
}

func review(object client.Object) confinedRequest {
	return func(ctx context.Context, user *framework.User, _ string) error {
		return user.Create(ctx, object.DeepCopyObject().(client.Object))
	}
}

func deleteObject(object client.Object) confinedRequest {
	return func(ctx context.Context, user *framework.User, _ string) error {
		return user.Delete(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func patchStatus(object client.Object, body string) confinedRequest {
	return func(ctx context.Context, user *framework.User, _ string) error {
		return user.Status().Patch(ctx, object.DeepCopyObject().(client.Object), framework.MergePatch(body), client.DryRunAll)
	}
}

func onDefault(request confinedRequest) confinedRequest {
	return func(ctx context.Context, user *framework.User, _ string) error {
		return request(ctx, user, metav1.NamespaceDefault)
	}
}

func addOwner(namespace *corev1.Namespace) {
	namespace.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "b"}}
}

var _ = Describe("A confined initializer", Ordered, ContinueOnFailure, func() {
	var confined *framework.User
	var namespace string

	BeforeAll(func(ctx context.Context) {
		installCRD(ctx, serviceBusGroup, "namespaces", "namespace", "Namespace", "sb", "Namespaced")
		event := coreEvent("ConfigMap")
		event.InvolvedObject.Namespace = metav1.NamespaceDefault
		for _, object := range []client.Object{
			makeServiceBus(metav1.NamespaceDefault, "victim"), wrappers.MakeConfigMap("", "victim"),
			wrappers.MakePod("", "victim"), named(event, "victim"), named(&corev1.ServiceAccount{}, "victim"),
		} {
			object.SetNamespace(metav1.NamespaceDefault)
			if _, ok := object.(*corev1.ServiceAccount); ok {
				object.SetNamespace(metav1.NamespaceSystem)
			}
			Eventually(cluster.Admin.Create).WithContext(ctx).WithArguments(object).Should(Succeed())
			DeferCleanup(func(ctx context.Context) { _ = cluster.Admin.Delete(ctx, object, client.GracePeriodSeconds(0)) })
		}
		confined = addConfined(ctx)
		created := wrappers.MakeNamespace(framework.Unique("confined")).Label("kept", "yes").Annotation("kept", "yes").Obj()
		cluster.Ordinary.Creates(ctx, created)
		Expect(framework.PendingOf(created)).To(Equal(confinedName + "," + secondName + "," + foreignName))
		namespace = created.Name
		Eventually(confinedAttacks["create a ConfigMap in default"]).WithContext(ctx).WithArguments(confined, namespace).
			Should(BeForbiddenBy(confinedPolicy))
		// Conditions of the operator must not change during a PUT.
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace)).To(HaveCondition(
				v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonInitializing))
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(specTimeout))

	for name, attack := range confinedAttacks {
		It("cannot "+name, func(ctx context.Context) {
			err := attack(ctx, confined, namespace)
			switch name {
			case "complete the initialization", "remove the name of another initializer":
				// The name of the first initializer without subjects could be removed otherwise.
				Expect(err).To(BeForbiddenBy(confinedPolicy, "its initializers"))
			case "annotate an initializing namespace through /finalize":
				// Both policies refuse it. The API server reports one of them, in no fixed order.
				Expect(err).To(Or(BeForbiddenBy(confinedPolicy),
					BeDeniedBy(internalv1alpha1.PolicyGuard, "cannot be changed through /finalize")))
			default:
				Expect(err).To(BeForbiddenBy(confinedPolicy))
			}
		}, SpecTimeout(specTimeout))
	}

	for name, write := range confinedWrites {
		It("can "+name, func(ctx context.Context) {
			Expect(write(ctx, confined, namespace)).To(Succeed())
		}, SpecTimeout(specTimeout))
	}

	It("can remove its name although the creator has filled managedFields", func(ctx context.Context) {
		created := wrappers.MakeNamespace(framework.Unique("confined")).Obj()
		created.ManagedFields = []metav1.ManagedFieldsEntry{gitopsFields(`{"f:metadata":{"f:annotations":{` + manyFields() +
			`,"f:nslifecycle.dev/pending-initializers":{}},"f:labels":{` + manyFields() + `}}}`)}
		cluster.Ordinary.Creates(ctx, created)
		Expect(created.ManagedFields).To(ContainElement(HaveField("Manager", "gitops")))
		for _, name := range []string{"remove its name", "set a failure", "write its condition", "apply the pending list with a new client"} {
			Expect(confinedWrites[name](ctx, confined, created.Name)).To(Succeed(), name)
		}
	}, SpecTimeout(specTimeout))

	It("is not confined while it may delete the policy, as cluster administrators", func(ctx context.Context) {
		attack := confinedAttacks["create a ConfigMap in default"]
		Expect(attack(ctx, confined, namespace)).To(BeForbiddenBy(confinedPolicy))
		administrator := cluster.Impersonate("system:serviceaccount:"+confinedAccount+":"+confinedAccount, "system:masters")
		Expect(attack(ctx, administrator, namespace)).To(Succeed())
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("deleter")}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{admissionv1.GroupName}, Resources: []string{"validatingadmissionpolicies"}, Verbs: []string{"delete"},
		}}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: confinedAccount, Name: confinedAccount}},
		}
		for _, object := range []client.Object{role, binding} {
			cluster.Admin.Creates(ctx, object)
			DeferCleanup(func(ctx context.Context) {
				Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
			})
		}
		Eventually(attack).WithContext(ctx).WithArguments(confined, namespace).Should(Succeed())
		cluster.Admin.Deletes(ctx, binding)
		Eventually(attack).WithContext(ctx).WithArguments(confined, namespace).Should(BeForbiddenBy(confinedPolicy))
	}, SpecTimeout(specTimeout))

	It("does not confine other users", func(ctx context.Context) {
		for name, attack := range confinedAttacks {
			err := attack(ctx, cluster.Initializer, namespace)
			Expect(err).To(Or(BeNil(), Not(MatchError(ContainSubstring(confinedPolicy)))), name)
		}
		Expect(confinedAttacks["bind cluster-admin"](ctx, cluster.Admin, namespace)).To(Succeed())
		neighbor := cluster.Impersonate("system:serviceaccount:"+confinedAccount+":neighbor", "system:masters")
		Expect(confinedAttacks["bind cluster-admin"](ctx, neighbor, namespace)).To(Succeed())
	}, SpecTimeout(specTimeout))

	It("cannot write to a namespace that waits for other initializers only", func(ctx context.Context) {
		foreign := wrappers.MakeNamespace(framework.Unique("foreign")).Label(foreignLabel, "").Obj()
		cluster.Ordinary.Creates(ctx, foreign)
		Expect(framework.PendingOf(foreign)).To(Equal(foreignName))
		for _, name := range []string{"create a ConfigMap", "bind admin", "set a failure", "write its condition"} {
			Expect(confinedWrites[name](ctx, confined, foreign.Name)).To(BeForbiddenBy(confinedPolicy), name)
		}
		Expect(confinedAttacks["complete the initialization"](ctx, confined, foreign.Name)).To(BeForbiddenBy(confinedPolicy))
	}, SpecTimeout(specTimeout))

	It("can only write its condition after it has removed its names", func(ctx context.Context) {
		done := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("done"))
		confined.Creates(ctx, wrappers.MakeConfigMap(done.Name, "mine"))
		for _, name := range []string{confinedName, secondName} {
			Expect(initializers.Finish(ctx, confined.Clientset(), cluster.GetNamespace(Default, ctx, done.Name), name)).To(Succeed())
		}
		expectFinished := func() {
			GinkgoHelper()
			Eventually(confinedWrites["create a ConfigMap"]).WithContext(ctx).WithArguments(confined, done.Name).
				Should(BeForbiddenBy(confinedPolicy))
			for _, name := range []string{"bind admin", "create a custom resource"} {
				Expect(confinedWrites[name](ctx, confined, done.Name)).To(BeForbiddenBy(confinedPolicy), name)
			}
			Expect(confinedWrites["set a failure"](ctx, confined, done.Name)).To(Or(BeForbiddenBy(confinedPolicy), BeDeniedBy("guard")))
			Expect(confined.Delete(ctx, wrappers.MakeConfigMap(done.Name, "mine"), client.DryRunAll)).To(BeForbiddenBy(confinedPolicy))
			for _, name := range []string{"relabel an initializing namespace", "annotate an initializing namespace", "add an owner"} {
				// The operator changes the namespace meanwhile.
				Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					return confinedAttacks[name](ctx, confined, done.Name)
				})).To(BeForbiddenBy(confinedPolicy), name)
			}
			Eventually(confinedWrites["write its condition"]).WithContext(ctx).WithArguments(confined, done.Name).Should(Succeed())
		}
		expectFinished()
		By("completing the initialization")
		cluster.Finish(ctx, done.Name)
		expectFinished()

		By("recreating the namespace for other initializers")
		cluster.Admin.Deletes(ctx, done)
		framework.ExpectDeleted(ctx, cluster.Admin, done)
		cluster.Ordinary.Creates(ctx, wrappers.MakeNamespace(done.Name).Label(foreignLabel, "").Obj())
		Eventually(confinedWrites["write its condition"]).WithContext(ctx).WithArguments(confined, done.Name).
			Should(BeForbiddenBy(confinedPolicy))
		// The API server can take the namespace for the terminating one for a moment.
		Eventually(confinedWrites["create a ConfigMap"]).WithContext(ctx).WithArguments(confined, done.Name).
			Should(BeForbiddenBy(confinedPolicy))
	}, SpecTimeout(specTimeout))

	It("stays confined if the policy or its binding is changed or deleted", func(ctx context.Context) {
		for _, object := range []client.Object{
			&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{},
		} {
			object.SetName(policies.ConfinedName)
			cluster.Admin.Reads(ctx, object)
			before := object.GetUID()
			cluster.Admin.Deletes(ctx, object)
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				g.Expect(object.GetUID()).NotTo(Equal(before))
			}).WithContext(ctx).Should(Succeed())
		}
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: policies.ConfinedName}, policy)).To(Succeed())
		Expect(cluster.Admin.Patch(ctx, policy.DeepCopy(), framework.MergePatch(`{"spec":{"failurePolicy":"Ignore",
			"matchConditions":[{"name":"never","expression":"false"}],"variables":null,"validations":[{"expression":"true"}],
			"matchConstraints":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}}}`))).
			To(Succeed())
		Eventually(func(g Gomega) {
			now := &admissionv1.ValidatingAdmissionPolicy{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(policy), now)).To(Succeed())
			g.Expect(now.Spec).To(Equal(policy.Spec))
		}).WithContext(ctx).Should(Succeed())
		Eventually(confinedAttacks["bind cluster-admin"]).WithContext(ctx).WithArguments(confined, namespace).
			Should(BeForbiddenBy(confinedPolicy))
	}, SpecTimeout(specTimeout))

	It("is free again when no configuration confines it", func(ctx context.Context) {
		configuration := &v1alpha1.NamespaceInitializerConfiguration{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "confined"}, configuration)).To(Succeed())
		Expect(configuration.Initializers[1].Confinement).To(BeEmpty(), "it is not confined")
		before := configuration.DeepCopy()
		configuration.Initializers[0].Confinement = v1alpha1.ConfinementNone
		Expect(cluster.Admin.Patch(ctx, configuration, client.MergeFrom(before))).To(Succeed())
		for _, object := range []client.Object{
			&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{},
		} {
			object.SetName(policies.ConfinedName)
			framework.ExpectDeleted(ctx, cluster.Admin, object)
		}
		Eventually(confinedAttacks["bind cluster-admin"]).WithContext(ctx).WithArguments(confined, namespace).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
