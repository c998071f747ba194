// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// edit is a change to the labels and annotations of a namespace. A nil value removes a key.
type edit struct {
	labels, annotations map[string]*string
}

func set(value string) *string { return &value }

// rejected maps names to changes that ordinary users must not make to a namespace with the pending
// list "a.test.example.com,b.test.example.com".
var rejected = map[string]edit{
	"changing the label":                  {labels: map[string]*string{v1alpha1.LabelInitializing: set("false")}},
	"emptying the list":                   {annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: set("")}},
	"removing an entry":                   pendingEdit("b.test.example.com"),
	"adding to the list":                  pendingEdit("a.test.example.com,b.test.example.com,c.test.example.com"),
	"reordering the list":                 pendingEdit("b.test.example.com,a.test.example.com"),
	"duplicating an entry":                pendingEdit("a.test.example.com,a.test.example.com"),
	"replacing an entry":                  pendingEdit("a.test.example.com,x.test.example.com"),
	"adding a space to the list":          pendingEdit("a.test.example.com, b.test.example.com"),
	"changing requested-by":               {annotations: map[string]*string{v1alpha1.AnnotationRequestedBy: set("mallory")}},
	"changing the initializers":           {annotations: map[string]*string{v1alpha1.AnnotationInitializers: set("a.test.example.com")}},
	"adding a selected template":          {annotations: map[string]*string{v1alpha1.AnnotationSelectedTemplates: set("team")}},
	"setting a failure result":            {annotations: map[string]*string{v1alpha1.AnnotationInitializationResult: set(`{"status":"Failure"}`)}},
	"removing the label but not the list": {labels: map[string]*string{v1alpha1.LabelInitializing: nil}, annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: set("b.test.example.com")}},
}

// omitted maps names to changes that omit keys of the namespace. The API server keeps these keys.
var omitted = map[string]edit{
	"the label":        {labels: map[string]*string{v1alpha1.LabelInitializing: nil}},
	"the list":         {annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: nil}},
	"both":             {labels: map[string]*string{v1alpha1.LabelInitializing: nil}, annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: nil}},
	"requested-by":     {annotations: map[string]*string{v1alpha1.AnnotationRequestedBy: nil}},
	"the initializers": {annotations: map[string]*string{v1alpha1.AnnotationInitializers: nil}},
}

// rejectedForAll maps the changes that no user can make, not even with the initialize verb, to the
// expected error messages.
var rejectedForAll = map[string]string{
	"changing the label":         "must be \"true\"",
	"adding to the list":         "can only be removed",
	"reordering the list":        "can only be removed",
	"duplicating an entry":       "can only be removed",
	"replacing an entry":         "can only be removed",
	"adding a space to the list": "can only be removed",
	"changing requested-by":      "are immutable",
	"changing the initializers":  "are immutable",
	"adding a selected template": "are immutable",
}

func pendingEdit(list string) edit {
	return edit{annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: set(list)}}
}

// way sends an edit.
type way func(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, change edit) error

// ways maps names to the request types that can send an edit, on the object and its subresources.
var ways = map[string]way{
	"PUT":                      put(""),
	"PUT on /status":           put("status"),
	"PUT on /finalize":         put("finalize"),
	"merge patch":              patchWith(types.MergePatchType, ""),
	"merge patch on /status":   patchWith(types.MergePatchType, "status"),
	"strategic merge patch":    patchWith(types.StrategicMergePatchType, ""),
	"JSON patch":               jsonPatch(""),
	"JSON patch on /status":    jsonPatch("status"),
	"server-side apply":        apply(""),
	"server-side apply status": apply("status"),
}

func put(subresource string) way {
	return func(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, change edit) error {
		changed := namespace.DeepCopy()
		changed.ResourceVersion = "" // The operator updates the conditions concurrently.
		change.applyTo(changed)
		return framework.NewUser(config).Clientset().CoreV1().RESTClient().Put().Resource("namespaces").Name(changed.Name).
			SubResource(strings.Fields(subresource)...).Body(changed).Do(ctx).Error()
	}
}

func (e edit) applyTo(namespace *corev1.Namespace) {
	for key, value := range e.labels {
		delete(namespace.Labels, key)
		if value != nil {
			namespace.Labels[key] = *value
		}
	}
	for key, value := range e.annotations {
		delete(namespace.Annotations, key)
		if value != nil {
			namespace.Annotations[key] = *value
		}
	}
}

func patchWith(patchType types.PatchType, subresource string) way {
	return func(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, change edit) error {
		metadata := map[string]any{}
		if change.labels != nil { // null would remove all labels.
			metadata["labels"] = change.labels
		}
		if change.annotations != nil {
			metadata["annotations"] = change.annotations
		}
		return sendPatch(ctx, config, namespace.Name, patchType, map[string]any{"metadata": metadata}, subresource)
	}
}

func jsonPatch(subresource string) way {
	return func(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, change edit) error {
		var body []map[string]any
		add := func(field string, values map[string]*string) {
			for key, value := range values {
				operation := map[string]any{"op": "remove", "path": "/metadata/" + field + "/" + strings.ReplaceAll(key, "/", "~1")}
				if value != nil {
					operation["op"], operation["value"] = "add", *value
				}
				body = append(body, operation)
			}
		}
		add("labels", change.labels)
		add("annotations", change.annotations)
		return sendPatch(ctx, config, namespace.Name, types.JSONPatchType, body, subresource)
	}
}

// apply sends an edit with server-side apply, which cannot remove fields that another field manager
// owns. To remove a key, it therefore sends an empty value.
func apply(subresource string) way {
	return func(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, change edit) error {
		values := func(from map[string]*string) map[string]string {
			to := map[string]string{}
			for key, value := range from {
				to[key] = ""
				if value != nil {
					to[key] = *value
				}
			}
			return to
		}
		body := map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{
				"name": namespace.Name, "labels": values(change.labels), "annotations": values(change.annotations),
			},
		}
		return sendPatch(ctx, config, namespace.Name, types.ApplyPatchType, body, subresource)
	}
}

func sendPatch(
	ctx context.Context, config *rest.Config, name string, patchType types.PatchType, body any, subresource string,
) error {
	encoded, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	options := metav1.PatchOptions{}
	if patchType == types.ApplyPatchType {
		options.FieldManager, options.Force = "test", new(true)
	}
	_, err = framework.NewUser(config).Clientset().CoreV1().Namespaces().Patch(ctx, name, patchType, encoded, options,
		strings.Fields(subresource)...)
	return err
}

var _ = Describe("The guard", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		cluster.Register(ctx, "guard", "a.test.example.com", "b.test.example.com")
		namespace = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
	}, NodeTimeout(5*time.Minute))

	for wayName, send := range ways {
		if strings.HasPrefix(wayName, "server-side apply") {
			continue // Server-side apply removes only the fields that its field manager owns; test/security tests this.
		}
		It("keeps state that a request omits: "+wayName, func(ctx context.Context) {
			// Wait until the operator has updated the conditions, so that a PUT request contains
			// the current status.
			Eventually(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(BeInitializing("True", v1alpha1.ReasonPending))
			}).WithContext(ctx).Should(Succeed())
			for name, change := range omitted {
				for _, config := range []*rest.Config{cluster.Ordinary.Config, cluster.Initializer.Config} {
					By(name)
					Expect(send(ctx, config, cluster.GetNamespace(Default, ctx, namespace.Name), change)).To(Succeed())
					expectUntouched(ctx, namespace)
				}
			}
		}, SpecTimeout(5*time.Minute))
	}

	for wayName, send := range ways {
		It("rejects changes by an ordinary user: "+wayName, func(ctx context.Context) {
			for name, change := range rejected {
				By(name)
				err := send(ctx, cluster.Ordinary.Config, namespace, change)
				Expect(err).To(BeDeniedBy("guard"))
				if change.annotations[v1alpha1.AnnotationRequestedBy] == nil &&
					change.annotations[v1alpha1.AnnotationInitializers] == nil &&
					change.annotations[v1alpha1.AnnotationSelectedTemplates] == nil {
					Expect(err).To(BeForbiddenBy("guard", `user "`+framework.OrdinaryUser+`"`, `initialization of namespace "`+namespace.Name+`"`))
				}
			}
			expectUntouched(ctx, namespace)
		}, SpecTimeout(5*time.Minute))

		It("rejects changes that no user can make, even by an initializer: "+wayName, func(ctx context.Context) {
			for name, message := range rejectedForAll {
				By(name)
				Expect(send(ctx, cluster.Initializer.Config, namespace, rejected[name])).To(BeDeniedBy("guard", message))
			}
			expectUntouched(ctx, namespace)
		}, SpecTimeout(5*time.Minute))

		It("allows an initializer to remove entries from the list and complete the initialization: "+wayName, func(ctx context.Context) {
			mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
			Expect(send(ctx, cluster.Initializer.Config, mine, pendingEdit("b.test.example.com"))).To(Succeed())
			now := cluster.GetNamespace(Default, ctx, mine.Name)
			Expect(framework.PendingOf(now)).To(Equal("b.test.example.com"))
			Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))

			By("rejecting the restoration of an entry")
			Expect(send(ctx, cluster.Initializer.Config, now, pendingEdit("a.test.example.com,b.test.example.com"))).To(BeDeniedBy("guard"))

			By("emptying the list")
			Expect(send(ctx, cluster.Initializer.Config, now, pendingEdit(""))).To(Succeed())
			now = cluster.GetNamespace(Default, ctx, mine.Name)
			Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
			Expect(now.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))

			By("rejecting attempts by any user to restore the state")
			for _, config := range []*rest.Config{cluster.Ordinary.Config, cluster.Initializer.Config, cluster.Admin.Config} {
				for _, change := range []edit{
					pendingEdit("a.test.example.com"),
					{labels: map[string]*string{v1alpha1.LabelInitializing: set("true")}},
					{
						labels:      map[string]*string{v1alpha1.LabelInitializing: set("true")},
						annotations: map[string]*string{v1alpha1.AnnotationPendingInitializers: set("a.test.example.com")},
					},
					{annotations: map[string]*string{v1alpha1.AnnotationInitializationResult: set(`{"status":"Failure"}`)}},
					{annotations: map[string]*string{v1alpha1.AnnotationRequestedBy: set("mallory")}},
				} {
					Expect(send(ctx, config, now, change)).To(BeDeniedBy("guard"))
				}
			}
		}, SpecTimeout(5*time.Minute))
	}

	It("rejects the label without a list, even from an administrator", func(ctx context.Context) {
		mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
		cluster.Finish(ctx, mine.Name)
		cluster.Finish(ctx, mine.Name)
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "label", "namespace", mine.Name, "nslifecycle.dev/initializing=true")
		Expect(err).To(BeDeniedBy("guard", "both must be absent otherwise"))
	}, SpecTimeout(5*time.Minute))

	It("allows other changes by ordinary users", func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "label", "namespace", namespace.Name, "team=a")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "namespace", namespace.Name, "example.com/note=x")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))

	It("rejects the completion of a failed initialization", func(ctx context.Context) {
		// One request makes both changes, because the operator deletes a failed namespace.
		mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
		change := rejected["emptying the list"]
		change.annotations = map[string]*string{
			v1alpha1.AnnotationPendingInitializers:  set(""),
			v1alpha1.AnnotationInitializationResult: set(`{"kind":"Status","status": "Failure"}`),
		}
		Expect(ways["merge patch"](ctx, cluster.Initializer.Config, mine, change)).To(BeDeniedBy("guard", "its initialization cannot complete"))
	}, SpecTimeout(5*time.Minute))

	It("rejects changes by an impersonated user without the initialize verb", func(ctx context.Context) {
		Expect(ways["merge patch"](ctx, cluster.Impersonate(framework.OrdinaryUser).Config, namespace, rejected["emptying the list"])).
			To(BeForbiddenBy("guard"))
	}, SpecTimeout(5*time.Minute))

	It("rejects an update with an old resource version", func(ctx context.Context) {
		stale := cluster.GetNamespace(Default, ctx, namespace.Name)
		stale.ResourceVersion = "1"
		stale.Annotations[v1alpha1.AnnotationPendingInitializers] = "b.test.example.com"
		Expect(cluster.Initializer.Update(ctx, stale)).To(Satisfy(apierrors.IsConflict))
	}, SpecTimeout(5*time.Minute))
})

// expectUntouched checks that the namespace has the state that the inject policy added.
func expectUntouched(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	now := cluster.GetNamespace(Default, ctx, namespace.Name)
	Expect(framework.PendingOf(now)).To(Equal("a.test.example.com,b.test.example.com"))
	Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	Expect(now.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializationResult))
}
