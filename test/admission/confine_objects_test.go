// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// empty is the data of a ControllerRevision.
var empty = runtime.RawExtension{Raw: []byte("{}")}

func confinedObjects() {
	It("is deleted only in terminating namespaces, by all accounts", func(ctx context.Context) {
		live, terminating := makeNamespace(ctx), makeTerminating(ctx)
		admin.Creates(ctx, wrappers.MakeConfigMap(live.Name, "content"))
		for _, name := range accounts {
			user := operators[name]
			Expect(user.Delete(ctx, wrappers.MakeConfigMap(live.Name, "content"))).To(BeConfined("terminating"))
			Expect(user.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(live.Name))).To(BeConfined("terminating"))
			// The cache of the API server can be behind.
			Eventually(func() error {
				return user.Delete(ctx, wrappers.MakeConfigMap(terminating.Name, "content"), client.DryRunAll)
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(operator.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(terminating.Name))).To(Succeed())
		By("deleting in all namespaces")
		Expect(api.CoreV1().RESTClient().Delete().Resource("configmaps").Do(ctx).Error()).To(HaveOccurred())
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: live.Name, Name: "content"}, &corev1.ConfigMap{})).To(Succeed())

		By("with the same name in another namespace")
		other := addAccount(ctx, makeNamespace(ctx).Name, "another")
		other.Deletes(ctx, wrappers.MakeConfigMap(live.Name, "content"))
	})

	It("of the cluster, or of a workload, is not written", func(ctx context.Context) {
		live := makeNamespace(ctx)
		name := live.Name
		pod := wrappers.MakePod(name, "pod")
		admin.Creates(ctx, pod)
		config := wrappers.MakeConfigMap(name, "config")
		admin.Creates(ctx, config)
		role := &rbacv1.ClusterRole{ObjectMeta: metaOf("", framework.Unique("role"))}
		admin.Creates(ctx, role)
		node := &corev1.Node{ObjectMeta: metaOf("", framework.Unique("node"))}
		admin.Creates(ctx, node)
		create := func(object client.Object) request {
			return func(ctx context.Context) error { return operator.Create(ctx, object.DeepCopyObject().(client.Object)) }
		}
		remove := func(object client.Object) request {
			return func(ctx context.Context) error { return operator.Delete(ctx, object.DeepCopyObject().(client.Object)) }
		}
		lease := &coordinationv1.Lease{ObjectMeta: metaOf(name, "lease")}
		forEach(ctx, map[string]request{
			"creating a Pod":       create(wrappers.MakePod(name, "new")),
			"creating a ConfigMap": create(wrappers.MakeConfigMap(system, "new")),
			"creating a Secret":    create(&corev1.Secret{ObjectMeta: metaOf(system, "new")}),
			"creating a token Secret": create(&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Namespace: system, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "nslifecycle-controller-manager"},
			}}),
			"creating a Lease elsewhere":    create(lease),
			"creating a Lease with PUT":     func(ctx context.Context) error { return operator.Update(ctx, lease.DeepCopy()) },
			"creating a revision":           create(&appsv1.ControllerRevision{ObjectMeta: metaOf(system, "revision"), Data: empty}),
			"creating a revision elsewhere": create(&appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "revision", Labels: map[string]string{v1alpha1.LabelManagedByTemplate: "a"}}, Data: empty}),
			"creating a ClusterRole":        create(&rbacv1.ClusterRole{ObjectMeta: metaOf("", "new")}),
			"applying a ClusterRole": func(ctx context.Context) error {
				_, err := api.RbacV1().ClusterRoles().Patch(ctx, "applied", types.ApplyPatchType,
					[]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"applied"}}`),
					metav1.PatchOptions{FieldManager: "x"})
				return err
			},
			"creating a binding": create(&rbacv1.ClusterRoleBinding{ObjectMeta: metaOf("", "new"),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}),
			"creating a RoleBinding": create(&rbacv1.RoleBinding{ObjectMeta: metaOf(name, "new"),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}),
			"deleting a Pod":          remove(pod),
			"deleting a ClusterRole":  remove(role),
			"deleting a Node":         remove(node),
			"deleting a CRD":          func(ctx context.Context) error { return deleteCRD(ctx, "namespacetemplates.nslifecycle.dev") },
			"deleting system Secret":  remove(&corev1.Secret{ObjectMeta: metaOf(system, "nslifecycle-webhook-certificate")}),
			"deleting ServiceAccount": remove(&corev1.ServiceAccount{ObjectMeta: metaOf(system, "nslifecycle-controller-manager")}),
			"updating a ConfigMap":    func(ctx context.Context) error { return operator.Update(ctx, wrappers.MakeConfigMap(name, "config")) },
			"updating a ClusterRole":  func(ctx context.Context) error { return operator.Update(ctx, role.DeepCopy()) },
			"the owner of an object": func(ctx context.Context) error {
				return operator.Patch(ctx, config.DeepCopy(), framework.MergePatch(
					`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"none","uid":"none"}]}}`))
			},
			"evicting a Pod": func(ctx context.Context) error {
				return api.PolicyV1().Evictions(name).Evict(ctx, &policyv1.Eviction{ObjectMeta: metaOf(name, "pod")})
			},
			"binding a Pod": func(ctx context.Context) error {
				return api.CoreV1().Pods(name).Bind(ctx, &corev1.Binding{ObjectMeta: metaOf(name, "pod"), Target: corev1.ObjectReference{Kind: "Node", Name: "x"}}, metav1.CreateOptions{})
			},
			"exec": func(ctx context.Context) error {
				return api.CoreV1().RESTClient().Post().Resource("pods").Namespace(name).Name("pod").SubResource("exec").
					Param("command", "sh").Do(ctx).Error()
			},
			"proxy to a Pod": func(ctx context.Context) error {
				return api.CoreV1().RESTClient().Delete().Resource("pods").Namespace(name).Name("pod").SubResource("proxy").Do(ctx).Error()
			},
			"a token": func(ctx context.Context) error {
				_, err := api.CoreV1().ServiceAccounts(system).CreateToken(ctx, "nslifecycle-controller-manager",
					&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				return err
			},
			"an Event in another namespace":  event(name, corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: name, Name: "pod"}),
			"an Event about another object":  event("default", corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: "pod"}),
			"an Event about a custom object": event("default", corev1.ObjectReference{Kind: "Namespace", APIVersion: "example.com/v1", Name: "x"}),
			"an Event about a custom object that is named like one of the operator": event("default",
				corev1.ObjectReference{Kind: "NamespaceTemplate", APIVersion: "example.nslifecycle.dev/v1alpha1", Name: "x"}),
			"an Event about another object of the operator": event("default",
				corev1.ObjectReference{Kind: "NamespaceInitializerSet", APIVersion: v1alpha1.GroupVersion.String(), Name: "x"}),
		}, BeConfined())
	})

	It("that the operator needs is written", func(ctx context.Context) {
		set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metaOf("", internalv1alpha1.EffectiveSetName), SystemNamespace: system, Operators: []string{"x"}}
		publishLater()
		admin.Deletes(ctx, set.DeepCopy())
		operator.Creates(ctx, set)
		operator.Updates(ctx, set)
		Expect(operator.Delete(ctx, set.DeepCopy())).To(BeConfined())
		template := &v1alpha1.NamespaceTemplate{
			ObjectMeta: metaOf("", framework.Unique("template")), Spec: v1alpha1.NamespaceTemplateSpec{
				ServiceAccountName: "x", Objects: []v1alpha1.TemplateObject{{Name: "config", Template: &runtime.RawExtension{
					Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"}}`),
				}}},
			},
		}
		// The policy template-authors denies it until the API server has read the set.
		Eventually(func() error { return admin.Create(ctx, template) }).WithContext(ctx).Should(Succeed())
		lease := &coordinationv1.Lease{ObjectMeta: metaOf(system, framework.Unique("lease"))}
		operator.Creates(ctx, lease)
		operator.Updates(ctx, lease)
		Expect(operator.Delete(ctx, lease)).To(MatchError(ContainSubstring("deletes only objects in terminating namespaces")))
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Namespace: system, Name: framework.Unique("revision"), Labels: map[string]string{v1alpha1.LabelManagedByTemplate: template.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(template, v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))},
		}, Revision: 1}
		revision.Data = empty
		operator.Creates(ctx, revision)
		operator.Patches(ctx, revision, `{"revision":2,"metadata":{"annotations":{"nslifecycle.dev/current-revision":"2"}}}`)
		operator.Deletes(ctx, revision)
		foreign := &appsv1.ControllerRevision{ObjectMeta: metaOf(system, framework.Unique("foreign")), Revision: 1}
		foreign.Data = empty
		admin.Creates(ctx, foreign)
		Expect(operator.Delete(ctx, foreign)).To(BeConfined())
		Expect(event("default", corev1.ObjectReference{Kind: "Namespace", APIVersion: "v1", Name: "x"})(ctx)).To(Succeed())
		for _, kind := range []string{"NamespaceTemplate", "NamespaceInitializerConfiguration"} {
			Expect(event("default", corev1.ObjectReference{
				Kind: kind, APIVersion: v1alpha1.GroupVersion.String(), Name: "x",
			})(ctx)).To(Succeed())
		}
		Expect(event(system, corev1.ObjectReference{Kind: "Lease", APIVersion: "coordination.k8s.io/v1", Namespace: system, Name: "x"})(ctx)).To(Succeed())
		By("reviews")
		operator.Creates(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get"},
		}})
		operator.Creates(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}})

		By("the finalizer and the status of a template")
		mergeTemplate := func(body string) error {
			return operator.Patch(ctx, template.DeepCopy(), framework.MergePatch(body))
		}
		Expect(mergeTemplate(`{"metadata":{"finalizers":["nslifecycle.dev/template-objects"]}}`)).To(Succeed())
		Expect(mergeTemplate(`{"metadata":{"finalizers":null}}`)).To(Succeed())
		for _, body := range []string{
			`{"metadata":{"finalizers":["example.com/x"]}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"serviceAccountName":"y"}}`,
		} {
			Expect(mergeTemplate(body)).To(BeConfined())
		}
		Expect(operator.Status().Patch(ctx, template.DeepCopy(), framework.MergePatch(
			`{"status":{"currentRevision":"a"}}`))).To(Succeed())

		By("the data of the certificate")
		key := client.ObjectKey{Namespace: system, Name: "nslifecycle-webhook-certificate"}
		secret := &corev1.Secret{}
		Expect(admin.Get(ctx, key, secret)).To(Succeed())
		secret.Data = map[string][]byte{"tls.crt": []byte("x")}
		Expect(operator.Update(ctx, secret, client.DryRunAll)).To(Succeed())
		labelled := secret.DeepCopy()
		labelled.Labels["a"] = "b"
		Expect(operator.Update(ctx, labelled, client.DryRunAll)).To(BeConfined())
		other := &corev1.Secret{ObjectMeta: metaOf(system, framework.Unique("secret"))}
		admin.Creates(ctx, other)
		Expect(operator.Update(ctx, other.DeepCopy())).To(BeConfined())
	})

	It("named namespaces in another API group is not a Namespace", func(ctx context.Context) {
		// The API server does not serve single objects of a cluster-scoped type with this name.
		namespace := installCRD(ctx)
		live, terminating := makeNamespace(ctx), makeTerminating(ctx)
		for _, object := range []client.Object{
			namespace(live.Name, "default"), namespace(live.Name, live.Name), namespace(live.Name, terminating.Name),
		} {
			object.SetLabels(map[string]string{v1alpha1.LabelInitializing: "true"})
			object.SetAnnotations(map[string]string{
				v1alpha1.AnnotationPendingInitializers: "a", v1alpha1.AnnotationInitializationResult: `{"status":"Failure"}`,
			})
			admin.Creates(ctx, object)
			Expect(operator.Delete(ctx, object)).To(BeConfined("terminating"))
			object.SetLabels(nil)
			Expect(operator.Update(ctx, object)).To(BeConfined())
		}
	})
}

// event returns a request that creates an Event.
func event(namespace string, about corev1.ObjectReference) request {
	return func(ctx context.Context) error {
		return operator.Create(ctx, &corev1.Event{
			ObjectMeta: metaOf(namespace, framework.Unique("event")), InvolvedObject: about, Reason: "Test", Type: "Normal",
		})
	}
}

func confinedRoles() {
	roles := map[string]*rbacv1.ClusterRole{}

	BeforeAll(func(ctx context.Context) {
		for _, name := range []string{"nslifecycle-content", "nslifecycle-template-objects"} {
			role := &rbacv1.ClusterRole{ObjectMeta: metaOf("", name)}
			role.Labels = map[string]string{"app.kubernetes.io/name": "nslifecycle"}
			if err := admin.Create(ctx, role.DeepCopy()); err != nil {
				admin.Reads(ctx, role)
			}
			roles[name] = role
		}
	})

	update := func(ctx context.Context, name string, change func(*rbacv1.ClusterRole)) error {
		role := roles[name].DeepCopy()
		role.ResourceVersion = ""
		change(role)
		return operator.Update(ctx, role)
	}
	set := func(ctx context.Context, name string, rules ...rbacv1.PolicyRule) error {
		return update(ctx, name, func(role *rbacv1.ClusterRole) { role.Rules = rules })
	}

	It("contains verbs for namespaced types, also for thousands of them", func(ctx context.Context) {
		Expect(set(ctx, "nslifecycle-content",
			rbacv1.PolicyRule{Verbs: []string{"list", "watch", "delete"}, APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"}},
			rbacv1.PolicyRule{Verbs: []string{"deletecollection"}, APIGroups: []string{"example.com"}, Resources: []string{"x"}},
		)).To(Succeed())
		Expect(set(ctx, "nslifecycle-template-objects",
			rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})).To(Succeed())
		var rules []rbacv1.PolicyRule
		for group := range 300 {
			rule := rbacv1.PolicyRule{Verbs: []string{"list", "watch", "delete"}, APIGroups: []string{fmt.Sprintf("group-%d.example.com", group)}}
			for resource := range 10 {
				rule.Resources = append(rule.Resources, fmt.Sprintf("resource-with-a-long-name-%d", resource))
			}
			rules = append(rules, rule)
		}
		Expect(set(ctx, "nslifecycle-content", rules...)).To(Succeed())
		big := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"example.com"}}
		for resource := range 3000 {
			big.Resources = append(big.Resources, fmt.Sprintf("resource-with-a-long-name-%d", resource))
		}
		Expect(set(ctx, "nslifecycle-content", big)).To(Succeed())
		big.Resources = slices.Repeat(big.Resources, 4)
		Expect(set(ctx, "nslifecycle-content", big)).To(BeConfined())
		Expect(set(ctx, "nslifecycle-content", slices.Repeat(rules[:1], 1001)...)).To(BeConfined())
	})

	It("contains nothing else", func(ctx context.Context) {
		rule := func(change func(*rbacv1.PolicyRule)) rbacv1.PolicyRule {
			rule := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
			change(&rule)
			return rule
		}
		for name, bad := range map[string]rbacv1.PolicyRule{
			"get":              rule(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"list", "get"} }),
			"all verbs":        rule(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"*"} }),
			"all groups":       rule(func(r *rbacv1.PolicyRule) { r.APIGroups = []string{"*"} }),
			"all resources":    rule(func(r *rbacv1.PolicyRule) { r.Resources = []string{"*"} }),
			"a subresource":    rule(func(r *rbacv1.PolicyRule) { r.Resources = []string{"pods/log"} }),
			"all subresources": rule(func(r *rbacv1.PolicyRule) { r.Resources = []string{"*/scale"} }),
			"a name":           rule(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"x"} }),
			"a URL":            {Verbs: []string{"list"}, NonResourceURLs: []string{"*"}},
			"nodes":            rule(func(r *rbacv1.PolicyRule) { r.Resources = []string{"nodes"} }),
			"namespaces":       rule(func(r *rbacv1.PolicyRule) { r.Resources = []string{"pods", "namespaces"} }),
			"roles by two groups": rule(func(r *rbacv1.PolicyRule) {
				r.APIGroups, r.Resources = []string{"example.com", rbacv1.GroupName}, []string{"clusterroles"}
			}),
			"admission policies": rule(func(r *rbacv1.PolicyRule) {
				r.APIGroups, r.Resources = []string{"admissionregistration.k8s.io"}, []string{"x"}
			}),
			"built-in collections": rule(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"deletecollection"} }),
		} {
			for role := range roles {
				Expect(set(ctx, role, bad)).To(BeConfined("nslifecycle-"), name)
			}
		}
		Expect(set(ctx, "nslifecycle-template-objects", rule(func(r *rbacv1.PolicyRule) { r.Verbs = []string{"delete"} }))).To(BeConfined())
	})

	It("keeps its metadata", func(ctx context.Context) {
		for name, change := range map[string]func(*rbacv1.ClusterRole){
			"aggregation to admin": func(r *rbacv1.ClusterRole) { r.Labels["rbac.authorization.k8s.io/aggregate-to-view"] = "true" },
			"without labels":       func(r *rbacv1.ClusterRole) { r.Labels = nil },
			"an annotation":        func(r *rbacv1.ClusterRole) { r.Annotations = map[string]string{"a": "b"} },
			"a finalizer":          func(r *rbacv1.ClusterRole) { r.Finalizers = []string{"example.com/x"} },
			"an owner": func(r *rbacv1.ClusterRole) {
				r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "x", UID: "x"}}
			},
			"aggregation rule": func(r *rbacv1.ClusterRole) {
				r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}
			},
		} {
			Expect(update(ctx, "nslifecycle-content", change)).To(BeConfined(), name)
		}
		Expect(operator.Delete(ctx, roles["nslifecycle-content"].DeepCopy())).To(BeConfined())
	})

	It("cannot contain the cluster-scoped resources of this API server", func(ctx context.Context) {
		lists, err := api.Discovery().ServerPreferredResources()
		Expect(err).NotTo(HaveOccurred())
		var checked int
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			Expect(err).NotTo(HaveOccurred())
			if strings.HasSuffix(version.Group, v1alpha1.GroupVersion.Group) || strings.HasSuffix(version.Group, ".example.com") {
				continue
			}
			for _, resource := range list.APIResources {
				rule := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{version.Group}, Resources: []string{resource.Name}}
				matcher := Succeed()
				if !resource.Namespaced || version.Group == "admissionregistration.k8s.io" {
					matcher, checked = BeConfined(), checked+1
				}
				Expect(set(ctx, "nslifecycle-content", rule)).To(matcher, "%s in %q", resource.Name, version.Group)
				rule.Verbs = []string{"deletecollection"}
				Expect(set(ctx, "nslifecycle-content", rule)).To(BeConfined(), "built-in group %q is missing", version.Group)
			}
		}
		Expect(checked).To(BeNumerically(">", 20))
	})
}

var crds = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// installCRD installs a type named "namespaces" and returns a function that makes objects of it.
func installCRD(ctx context.Context) func(namespace, name string) client.Object {
	GinkgoHelper()
	const group = "namespaced.example.com"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "namespaces." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "namespaces", "singular": "namespace", "kind": "Namespace"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	crd.SetGroupVersionKind(crds)
	admin.Creates(ctx, crd)
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, crd)).To(Succeed()) })
	Eventually(func(g Gomega) {
		now := crd.DeepCopy()
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(crd), now)).To(Succeed())
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		g.Expect(conditions).To(ContainElement(And(
			HaveKeyWithValue("type", string(apiextensionsv1.Established)), HaveKeyWithValue("status", "True"))))
	}).WithContext(ctx).Should(Succeed())
	return func(namespace, name string) client.Object {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Namespace"})
		object.SetNamespace(namespace)
		object.SetName(name)
		return object
	}
}

func deleteCRD(ctx context.Context, name string) error {
	crd := &unstructured.Unstructured{Object: map[string]any{}}
	crd.SetGroupVersionKind(crds)
	crd.SetName(name)
	return operator.Delete(ctx, crd)
}
