// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	known "github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
)

// decoys are objects that have words in common with controllers of the corpus, or rights to change
// every object, but belong to none of the controllers.
const decoys = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: platform}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: platform, name: admin}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: platform-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: platform, name: admin}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: shop, name: team.argocd.crossplane.example.net}
spec: {holderIdentity: longhorn-dashboard, leaseDurationSeconds: 3600, renewTime: "$now"}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: platform, name: velero.cattle.rabbitmq.example.net}
spec: {holderIdentity: kafka-topics-ui, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z"}
`

// decoyWorkloads are Deployments and their images. None of them is a controller of the corpus.
var decoyWorkloads = []struct{ namespace, name, image, serviceAccount string }{
	{"shop", "longhorn-dashboard", "registry.example.com/cert-manager/kustomize-viewer", "default"},
	{"shop", "kafka-topics-ui", "registry.example.com/strimzi/topic-ui", "default"},
	{"shop", "bucket-exporter", "registry.example.com/services.k8s.aws/metrics", "default"},
	{"shop", "cluster-deprovision-report", "registry.example.com/hive/openshift-report", "default"},
	{"platform", "operator", "registry.example.com/platform/finalizers", "admin"},
}

// forEach calls a function for all items in parallel, within the limits of a small machine.
func forEach[T any](items []T, call func(T)) {
	GinkgoHelper()
	const workers = 3
	queue := make(chan T, len(items))
	for _, item := range items {
		queue <- item
	}
	close(queue)
	var group sync.WaitGroup
	var succeeded atomic.Int32
	for range workers {
		group.Go(func() {
			defer GinkgoRecover()
			for item := range queue {
				call(item)
				succeeded.Add(1)
			}
		})
	}
	group.Wait()
	if int(succeeded.Load()) < len(items) {
		Fail("failed for at least one item") // A failure in another goroutine does not end the spec.
	}
}

// isBuiltIn reports whether the API server itself serves a type.
func isBuiltIn(resource known.Resource) bool {
	_, group, _ := strings.Cut(resource.Name, ".")
	return group == "" || slices.Contains([]string{"networking.k8s.io", "storage.k8s.io"}, group)
}

// install installs the CustomResourceDefinitions, workloads and permissions of all controllers, and
// the decoys.
func (c *corpus) install(ctx context.Context) {
	GinkgoHelper()
	// The time of a diagnosis depends on the number of types, so that other types are omitted.
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for i := range c.controllers {
		if _, resource, ok := exampleOf(&c.controllers[i]); ok && !isBuiltIn(resource) {
			crds[resource.Name] = makeCRD(resource, c.controllers[i].CRDLabels)
		}
	}
	forEach(slices.Collect(maps.Values(crds)), func(crd *apiextensionsv1.CustomResourceDefinition) { c.create(ctx, crd) })
	for i := range c.controllers {
		c.installController(ctx, &c.controllers[i])
	}
	f := &fixture{}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	for _, object := range f.objects(strings.ReplaceAll(decoys, "$now", now)) {
		c.create(ctx, object)
	}
	for _, decoy := range decoyWorkloads {
		c.createServiceAccount(ctx, decoy.namespace, decoy.serviceAccount)
		c.createWorkload(ctx, decoy.namespace, decoy.image, known.Workload{
			Kind: "Deployment", Name: decoy.name, Labels: map[string]string{"app": decoy.name},
			ServiceAccount: decoy.serviceAccount,
		})
	}
	// No case starts before the API server serves all types.
	forEach(slices.Collect(maps.Values(crds)), func(crd *apiextensionsv1.CustomResourceDefinition) {
		Eventually(func(g Gomega) {
			g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
			g.Expect(crd.Status.Conditions).To(ContainElement(And(
				HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
		}).WithContext(ctx).Should(Succeed(), crd.Name)
		list := &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": crd.Spec.Group + "/v1", "kind": crd.Spec.Names.Kind + "List",
		}}
		Eventually(func() error { return c.client.List(ctx, list) }).WithContext(ctx).Should(Succeed(), crd.Name)
	})
}

func (c *corpus) create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	err := c.client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred(), "%T %s", object, object.GetName())
	}
}

func makeCRD(resource known.Resource, labels map[string]string) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(resource.Name, ".")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name, crd.Labels = resource.Name, labels
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved"}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	if resource.ClusterScoped {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: resource.Kind}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: ptr.To(true),
		}},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}}
	return crd
}

// workloadsOf returns the workloads of a controller with their namespaces. If the names are not fixed,
// they begin with the name of an example.
func workloadsOf(controller *known.Controller) (namespace string, workloads []known.Workload) {
	namespace = "of-" + slug(controller)
	if len(controller.Namespaces) > 0 {
		namespace = controller.Namespaces[0]
	}
	// A cluster contains one of the alternatives.
	for _, workload := range controller.Workloads[:min(len(controller.Workloads), 1)] {
		workload.Name = cmp.Or(workload.Name, "orders-"+cmp.Or(workload.Image, "controller"))
		workload.ServiceAccount = cmp.Or(workload.ServiceAccount, workload.Name)
		workloads = append(workloads, workload)
	}
	return namespace, workloads
}

func (c *corpus) installController(ctx context.Context, controller *known.Controller) {
	GinkgoHelper()
	namespace, workloads := workloadsOf(controller)
	if len(workloads) == 0 {
		return
	}
	object := &corev1.Namespace{}
	object.Name = namespace
	c.create(ctx, object)
	for _, workload := range workloads {
		c.createServiceAccount(ctx, namespace, workload.ServiceAccount)
		c.grant(ctx, controller, namespace, workload)
		image := "registry.example.com/" + strings.ToLower(strings.Split(controller.Project, "/")[0]) + "/" +
			cmp.Or(workload.Image, workload.Name)
		c.createWorkload(ctx, namespace, image, workload)
		for _, name := range []string{workload.Name, workload.ServiceAccount, workload.Name + podSuffix} {
			name = namespace + "/" + name
			if !slices.Contains(c.owners[name], controller.Name) {
				c.owners[name] = append(c.owners[name], controller.Name)
			}
		}
	}
}

// grant grants the permissions of a controller to its ServiceAccount.
func (c *corpus) grant(ctx context.Context, controller *known.Controller, namespace string, workload known.Workload) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	role.Name = namespace + "-" + workload.Name
	rule := rbacv1.PolicyRule{
		APIGroups: controller.Permissions.Groups, Resources: controller.Permissions.Resources,
		Verbs: []string{"get", "list", "watch", "update", "patch"},
	}
	if controller.Permissions.Wildcard {
		rule = rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	}
	role.Rules = []rbacv1.PolicyRule{rule}
	c.create(ctx, role)
	binding := &rbacv1.ClusterRoleBinding{}
	binding.Name = role.Name
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	binding.Subjects = []rbacv1.Subject{{
		Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: workload.ServiceAccount,
	}}
	c.create(ctx, binding)
}

func (c *corpus) createServiceAccount(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, name
	c.create(ctx, account)
	if _, ok := c.owners[namespace+"/"+name]; !ok && name != "default" {
		c.owners[namespace+"/"+name] = nil
	}
}

// podSuffix is the end of the names of pods.
const podSuffix = "-7d9f6c5b4-x2x8z"

// createWorkload creates a workload with one ready pod.
func (c *corpus) createWorkload(ctx context.Context, namespace, image string, workload known.Workload) {
	GinkgoHelper()
	template := corev1.PodTemplateSpec{}
	template.Labels = workload.Labels
	template.Spec = corev1.PodSpec{
		ServiceAccountName: workload.ServiceAccount,
		Containers:         []corev1.Container{{Name: "manager", Image: image + ":v1"}},
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: workload.Name, Labels: workload.Labels}
	selector := &metav1.LabelSelector{MatchLabels: workload.Labels}
	owner := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: workload.Kind, Name: workload.Name, Controller: ptr.To(true),
	}
	switch workload.Kind {
	case "Deployment":
		object := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
		c.create(ctx, object)
		object.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		owner.Kind, owner.Name = "ReplicaSet", strings.TrimSuffix(workload.Name+podSuffix, "-x2x8z")
		owner.UID = types.UID(owner.Name)
	case "StatefulSet":
		object := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}
		c.create(ctx, object)
		object.Status = appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		owner.UID = object.UID
	case "DaemonSet":
		object := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
		c.create(ctx, object)
		object.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1}
		Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		owner.UID = object.UID
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
	pod.Name, pod.ResourceVersion = workload.Name+podSuffix, ""
	if owner.UID != "" {
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
	c.create(ctx, pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	Expect(c.client.Status().Update(ctx, pod)).To(Succeed())
	for _, name := range []string{meta.Name, pod.Name} {
		if _, ok := c.owners[namespace+"/"+name]; !ok {
			c.owners[namespace+"/"+name] = nil
		}
	}
}

// stop scales the workloads of all controllers to zero.
func (c *corpus) stop(ctx context.Context) {
	GinkgoHelper()
	c.forEachWorkload(func(namespace string, workload known.Workload) {
		key := client.ObjectKey{Namespace: namespace, Name: workload.Name}
		switch workload.Kind {
		case "Deployment":
			object := &appsv1.Deployment{}
			Expect(c.client.Get(ctx, key, object)).To(Succeed())
			object.Spec.Replicas = ptr.To[int32](0)
			Expect(c.client.Update(ctx, object)).To(Succeed())
			object.Status = appsv1.DeploymentStatus{ObservedGeneration: object.Generation}
			Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		case "StatefulSet":
			object := &appsv1.StatefulSet{}
			Expect(c.client.Get(ctx, key, object)).To(Succeed())
			object.Spec.Replicas = ptr.To[int32](0)
			Expect(c.client.Update(ctx, object)).To(Succeed())
			object.Status = appsv1.StatefulSetStatus{ObservedGeneration: object.Generation}
			Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		case "DaemonSet":
			object := &appsv1.DaemonSet{}
			Expect(c.client.Get(ctx, key, object)).To(Succeed())
			object.Status = appsv1.DaemonSetStatus{ObservedGeneration: object.Generation}
			Expect(c.client.Status().Update(ctx, object)).To(Succeed())
		}
		c.remove(ctx, &corev1.Pod{}, namespace, workload.Name+podSuffix)
	})
}

// uninstall deletes the workloads, ServiceAccounts and permissions of all controllers.
func (c *corpus) uninstall(ctx context.Context) {
	GinkgoHelper()
	c.forEachWorkload(func(namespace string, workload known.Workload) {
		c.remove(ctx, &appsv1.Deployment{}, namespace, workload.Name)
		c.remove(ctx, &appsv1.StatefulSet{}, namespace, workload.Name)
		c.remove(ctx, &appsv1.DaemonSet{}, namespace, workload.Name)
		c.remove(ctx, &corev1.ServiceAccount{}, namespace, workload.ServiceAccount)
		c.remove(ctx, &rbacv1.ClusterRoleBinding{}, "", namespace+"-"+workload.Name)
		c.remove(ctx, &rbacv1.ClusterRole{}, "", namespace+"-"+workload.Name)
	})
}

func (c *corpus) forEachWorkload(call func(namespace string, workload known.Workload)) {
	GinkgoHelper()
	forEach(c.controllers, func(controller known.Controller) {
		namespace, workloads := workloadsOf(&controller)
		for _, workload := range workloads {
			call(namespace, workload)
		}
	})
}

func (c *corpus) remove(ctx context.Context, object client.Object, namespace, name string) {
	GinkgoHelper()
	object.SetNamespace(namespace)
	object.SetName(name)
	err := c.client.Delete(ctx, object, client.GracePeriodSeconds(0))
	Expect(client.IgnoreNotFound(err)).To(Succeed(), "%T %s", object, name)
}

// createObject creates the object of a case in its namespace. The controller adds its finalizer, and
// publishes its failure.
func (c *corpus) createObject(ctx context.Context, one corpusCase) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	namespace.Name = one.namespace
	c.create(ctx, namespace)
	object := makeObject(one)
	Expect(c.client.Create(ctx, object, client.FieldOwner("kubectl-create"))).To(Succeed(), one.namespace)
	manager := client.FieldOwner("manager")
	if len(one.controller.FieldManagers) > 0 {
		manager = client.FieldOwner(one.controller.FieldManagers[0])
	}
	patch := client.MergeFrom(object.DeepCopy())
	object.SetFinalizers(append(object.GetFinalizers(), one.finalizer))
	Expect(c.client.Patch(ctx, object, patch, manager)).To(Succeed(), one.namespace)
	if one.failure != nil {
		c.publish(ctx, one, object, manager)
	}
}

func makeObject(one corpusCase) *unstructured.Unstructured {
	_, group, _ := strings.Cut(one.resource.Name, ".")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": strings.TrimPrefix(group+"/v1", "/")}}
	object.SetKind(one.resource.Kind)
	object.SetNamespace(one.namespace)
	object.SetName("orders")
	switch one.resource.Kind {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": int64(80)}}}
	case "Ingress":
		object.Object["spec"] = map[string]any{"defaultBackend": map[string]any{
			"service": map[string]any{"name": "orders", "port": map[string]any{"number": int64(80)}},
		}}
	case "PersistentVolumeClaim":
		object.Object["spec"] = map[string]any{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}
	}
	return object
}

// messageOf returns the message that a controller publishes on the object of a case.
func messageOf(one *corpusCase) string {
	return strings.NewReplacer("$namespace", one.namespace, "$name", "orders").Replace(one.failure.Message)
}

// publish publishes the failure of a case.
func (c *corpus) publish(
	ctx context.Context, one corpusCase, object *unstructured.Unstructured, manager client.FieldOwner,
) {
	GinkgoHelper()
	now := metav1.Now()
	if one.failure.IsEvent {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: "orders.1"},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: one.namespace, Name: object.GetName(),
				UID: object.GetUID(),
			},
			Type: corev1.EventTypeWarning, Reason: one.failure.Reason, Message: messageOf(&one),
			FirstTimestamp: now, LastTimestamp: now, Count: 3, Source: corev1.EventSource{Component: string(manager)},
		}
		c.create(ctx, event)
		return
	}
	patch := client.MergeFrom(object.DeepCopy())
	if one.failure.Field != "" {
		path := strings.Split(one.failure.Field, ".")
		Expect(unstructured.SetNestedField(object.Object, messageOf(&one), path...)).To(Succeed())
	} else {
		condition := map[string]any{
			"type": one.failure.Condition, "message": messageOf(&one), "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
		if one.failure.Status != "" {
			condition["status"] = one.failure.Status
		}
		if one.failure.Reason != "" {
			condition["reason"] = one.failure.Reason
		}
		Expect(unstructured.SetNestedSlice(object.Object, []any{condition}, "status", "conditions")).To(Succeed())
	}
	Expect(c.client.Status().Patch(ctx, object, patch, manager)).To(Succeed(), one.namespace)
}
