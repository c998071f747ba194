// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var widgets = schema.GroupVersionResource{Group: "test.example.com", Version: "v1", Resource: "widgets"}

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.example.com}
spec:
  group: test.example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
`

// attempt sends a write request to a namespace in which fill has created objects.
type attempt func(ctx context.Context, config *rest.Config, namespace string) error

func core(do func(context.Context, kubernetes.Interface, string) error) attempt {
	return func(ctx context.Context, config *rest.Config, namespace string) error {
		return do(ctx, framework.NewUser(config).Clientset(), namespace)
	}
}

func widget(do func(context.Context, dynamic.ResourceInterface) error) attempt {
	return func(ctx context.Context, config *rest.Config, namespace string) error {
		dynamicClient, err := dynamic.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		return do(ctx, dynamicClient.Resource(widgets).Namespace(namespace))
	}
}

// connect sends a request to a streaming subresource, as kubectl exec does.
func connect(subresource string) attempt {
	return core(func(ctx context.Context, c kubernetes.Interface, namespace string) error {
		return c.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("existing").
			SubResource(subresource).Param("command", "true").Param("container", "c").Do(ctx).Error()
	})
}

func makeWidget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name},
		"status":   map[string]any{"phase": "New"},
	}}
}

// attempts maps names to write requests that the gate must reject.
var attempts = map[string]attempt{
	"create a ConfigMap": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "new"},
		}, metav1.CreateOptions{})
		return err
	}),
	"create a Secret with generateName": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"},
		}, metav1.CreateOptions{})
		return err
	}),
	"create a Role": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "new"},
		}, metav1.CreateOptions{})
		return err
	}),
	"create an Event": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().Events(ns).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "new"},
			InvolvedObject: corev1.ObjectReference{Namespace: ns, Kind: "Pod", Name: "existing"},
		}, metav1.CreateOptions{})
		return err
	}),
	"update a ConfigMap": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().ConfigMaps(ns).Update(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "existing"}, Data: map[string]string{"a": "b"},
		}, metav1.UpdateOptions{})
		return err
	}),
	"patch a ConfigMap": patchConfigMap(types.MergePatchType, `{"data":{"a":"c"}}`),
	"patch a ConfigMap with a JSON patch": patchConfigMap(types.JSONPatchType,
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`),
	"patch a ConfigMap with a strategic merge patch": patchConfigMap(types.StrategicMergePatchType, `{"data":{"a":"d"}}`),
	"apply a ConfigMap": patchConfigMap(types.ApplyPatchType,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"existing"},"data":{"b":"c"}}`),
	"delete a ConfigMap": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		return c.CoreV1().ConfigMaps(ns).Delete(ctx, "deletable", metav1.DeleteOptions{})
	}),
	"delete a collection of ConfigMaps": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		return c.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "metadata.name=collectable"})
	}),
	"create a custom resource": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Create(ctx, makeWidget("new"), metav1.CreateOptions{})
		return err
	}),
	"apply a custom resource": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Apply(ctx, "existing", makeWidget("existing"), metav1.ApplyOptions{FieldManager: "t", Force: true})
		return err
	}),
	"patch a custom resource": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Patch(ctx, "existing", types.MergePatchType, []byte(`{"spec":{"a":1}}`), metav1.PatchOptions{})
		return err
	}),
	"patch the status of a custom resource": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Patch(ctx, "existing", types.MergePatchType, []byte(`{"status":{"phase":"Old"}}`),
			metav1.PatchOptions{}, "status")
		return err
	}),
	"delete a custom resource": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		return c.Delete(ctx, "deletable", metav1.DeleteOptions{})
	}),
	"delete a collection of custom resources": widget(func(ctx context.Context, c dynamic.ResourceInterface) error {
		return c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=collectable"})
	}),
	"exec into a Pod":         connect("exec"),
	"attach to a Pod":         connect("attach"),
	"forward a port of a Pod": connect("portforward"),
	"proxy to a Pod":          connect("proxy"),
	"evict a Pod": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		return c.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "evictable", Namespace: ns},
		})
	}),
	"bind a Pod to a node": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		return c.CoreV1().Pods(ns).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "existing", Namespace: ns},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node"},
		}, metav1.CreateOptions{})
	}),
	"patch the status of a Pod": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().Pods(ns).Patch(ctx, "existing", types.MergePatchType,
			[]byte(`{"status":{"reason":"x"}}`), metav1.PatchOptions{}, "status")
		return err
	}),
	"add an ephemeral container": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().Pods(ns).Patch(ctx, "existing", types.StrategicMergePatchType,
			[]byte(`{"spec":{"ephemeralContainers":[{"name":"d","image":"example.com/debug"}]}}`),
			metav1.PatchOptions{}, "ephemeralcontainers")
		return err
	}),
	"get a token for a ServiceAccount": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "existing",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		return err
	}),
	"scale a Deployment": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.AppsV1().Deployments(ns).UpdateScale(ctx, "existing", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "existing", Namespace: ns},
			Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
		}, metav1.UpdateOptions{})
		return err
	}),
	"patch the status of a Deployment": core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		_, err := c.AppsV1().Deployments(ns).Patch(ctx, "existing", types.MergePatchType,
			[]byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
		return err
	}),
}

func patchConfigMap(patchType types.PatchType, patch string) attempt {
	return core(func(ctx context.Context, c kubernetes.Interface, ns string) error {
		options := metav1.PatchOptions{}
		if patchType == types.ApplyPatchType {
			options.FieldManager = "test"
		}
		_, err := c.CoreV1().ConfigMaps(ns).Patch(ctx, "existing", patchType, []byte(patch), options)
		return err
	})
}

// fill creates the objects that the attempts require, as the initializer user.
func fill(ctx context.Context, namespace string) {
	GinkgoHelper()
	c := cluster.Initializer
	labels := map[string]string{"app": "existing"}
	podTemplate := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: wrappers.MakePod("", "").Spec}
	for _, object := range []client.Object{
		wrappers.MakeConfigMap(namespace, "existing"), wrappers.MakeConfigMap(namespace, "deletable"),
		wrappers.MakeConfigMap(namespace, "collectable"), makeWidget("collectable"),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "existing"}},
		wrappers.MakePod("", "existing"), wrappers.MakePod("", "evictable"),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "existing"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate,
			},
		},
		makeWidget("existing"), makeWidget("deletable"),
	} {
		object.SetNamespace(namespace)
		Eventually(c.Create).WithContext(ctx).WithArguments(object).Should(Succeed())
	}
}

var _ = Describe("The gate", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, widgetCRD, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "wait", "--for=condition=Established", "crd/widgets.test.example.com")
		Expect(err).NotTo(HaveOccurred())
		namespace = cluster.CreateInitializing(ctx, "gate")
		fill(ctx, namespace.Name)
	}, NodeTimeout(5*time.Minute))

	for name, do := range attempts {
		It("rejects an ordinary user who tries to "+name, func(ctx context.Context) {
			Expect(do(ctx, cluster.Ordinary.Config, namespace.Name)).To(BeForbiddenBy("gate",
				`namespace "`+namespace.Name+`" is being initialized`,
				"pending: absent.test.example.com",
				"kubectl wait --for=condition=Initializing=False namespace/"+namespace.Name))
		}, SpecTimeout(5*time.Minute))
	}

	for name, do := range attempts {
		It("allows an initializer to "+name, func(ctx context.Context) {
			Expect(do(ctx, cluster.Initializer.Config, namespace.Name)).To(NotBeDenied())
		}, SpecTimeout(5*time.Minute))
	}

	It("allows writes by control plane components", func(ctx context.Context) {
		for user, groups := range map[string][]string{
			"system:kube-controller-manager": {"system:authenticated"},
			"system:kube-scheduler":          {"system:authenticated"},
			"system:node:worker":             {"system:nodes", "system:authenticated"},
			"system:serviceaccount:kube-system:root-ca-cert-publisher": {
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated",
			},
			"system:serviceaccount:kube-system:generic-garbage-collector": {
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated",
			},
		} {
			By(user)
			bindUser(ctx, user)
			writer := cluster.Impersonate(user, groups...)
			Eventually(writer.Create).WithArguments(wrappers.MakeConfigMap(namespace.Name, framework.Unique("system"))).
				WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(5*time.Minute))

	It("rejects a user who has the initialize verb only through a Role in the namespace", func(ctx context.Context) {
		const user = "insider@corp.example.com"
		rules := []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: append([]string{"initialize"}, framework.VerbsButInitialize...)},
		}
		meta := metav1.ObjectMeta{Namespace: namespace.Name, Name: "insider"}
		Expect(cluster.Initializer.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})).To(Succeed())
		Expect(cluster.Initializer.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "insider"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
		insider := cluster.Impersonate(user, "system:authenticated")
		Eventually(func() error {
			return insider.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "insider"))
		}).WithContext(ctx).Should(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("allows a user with the initialize verb on one namespace to write to this namespace only", func(ctx context.Context) {
		other := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("gate"))
		const user = "one-namespace@corp.example.com"
		cluster.Bind(ctx, framework.Unique("one-namespace"), []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace.Name}, Verbs: []string{"initialize"}},
		}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		writer := cluster.Impersonate(user, "system:authenticated")
		Eventually(writer.Create).WithArguments(wrappers.MakeConfigMap(namespace.Name, framework.Unique("named"))).
			WithContext(ctx).Should(Succeed())
		Expect(writer.Create(ctx, wrappers.MakeConfigMap(other.Name, "named"))).To(BeForbiddenBy("gate", other.Name))
	}, SpecTimeout(5*time.Minute))

	It("rejects an impersonated user without the initialize verb", func(ctx context.Context) {
		Expect(cluster.Impersonate(framework.OrdinaryUser).Create(ctx, wrappers.MakeConfigMap(namespace.Name, "imp"))).
			To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("rejects a server-side dry run", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "dry"), client.DryRunAll)).
			To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("does not affect reads", func(ctx context.Context) {
		Expect(cluster.Ordinary.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace.Name))).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("is not evaluated for a namespace that is not initializing", func(ctx context.Context) {
		other := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("gate"))
		cluster.Finish(ctx, other.Name)
		// If the API server evaluates the policy for this user, the policy rejects the request. A
		// request that succeeds therefore shows that the policy was not evaluated. The API server
		// matches the binding against its watch cache, which can be stale for a few milliseconds.
		Eventually(cluster.Ordinary.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(other.Name, "first")).
			Should(Succeed())
		for range 20 {
			Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(other.Name, framework.Unique("free")))).To(Succeed())
		}
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "rejected"))).To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))
})

// bindUser grants a user all verbs on all resources except "initialize".
func bindUser(ctx context.Context, user string) {
	GinkgoHelper()
	cluster.Bind(ctx, framework.Unique("user"), []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: framework.VerbsButInitialize},
	}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
}
