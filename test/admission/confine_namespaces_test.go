// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// forEach sends each request, in a fixed order.
func forEach(ctx context.Context, requests map[string]request, matcher OmegaMatcher) {
	GinkgoHelper()
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		By(name)
		Expect(requests[name](ctx)).To(matcher, name)
	}
}

func confinedNamespaces() {
	It("of users cannot be changed", func(ctx context.Context) {
		namespace := makeNamespace(ctx, func(w *wrappers.NamespaceWrapper) {
			w.Label("team", "x").Annotation("team", "x")
		})
		Expect(condition(namespace.Name, "Initializing")(ctx)).To(Succeed())
		name := namespace.Name
		label := func(key string, value any) map[string]any { return inMetadata("labels", map[string]any{key: value}) }
		annotation := func(key string, value any) map[string]any {
			return inMetadata("annotations", map[string]any{key: value})
		}
		owner := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}}
		before := cluster.GetNamespace(Default, ctx, namespace.Name)
		requests := map[string]request{
			"adding a label":               merge(name, label("pod-security.kubernetes.io/enforce", "privileged")),
			"changing a label":             merge(name, label("team", "b")),
			"removing a label":             merge(name, label("team", nil)),
			"a label through /status":      merge(name, label("team", "b"), "status"),
			"a label, JSON patch":          rawPatch(name, types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/team","value":"b"}]`),
			"a label, strategic":           patch(name, types.StrategicMergePatchType, label("team", "b")),
			"a label of this project":      merge(name, label(v1alpha1.LabelDeletionProtection, "x")),
			"an annotation":                merge(name, annotation("team", "b")),
			"removing an annotation":       merge(name, annotation("team", nil)),
			"an annotation by /status":     merge(name, annotation("team", "b"), "status"),
			"a parameter":                  merge(name, annotation(v1alpha1.PrefixParameter+"size", "x")),
			"a finalizer":                  merge(name, inMetadata("finalizers", []any{"example.com/f"})),
			"an owner":                     merge(name, inMetadata("ownerReferences", owner)),
			"an owner through /status":     merge(name, inMetadata("ownerReferences", owner), "status"),
			"a condition of a user":        condition(name, "example.com/Ready"),
			"a deletion condition":         condition(name, string(corev1.NamespaceContentRemaining)),
			"removing all conditions, PUT": put(before, "status", func(n *corev1.Namespace) { n.Labels["team"] = "b" }),
			"namespace finalizers":         put(before, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = nil }),
			"a namespace finalizer":        put(before, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = append(n.Spec.Finalizers, "a/b") }),
			"a record through /finalize":   put(before, "finalize", func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationAppliedTemplates] = "{}" }),
			"no change through /finalize":  put(before, "finalize", func(*corev1.Namespace) {}),
			"a label, dry run": func(ctx context.Context) error {
				return operator.Patch(ctx, before.DeepCopy(), framework.MergePatch(`{"metadata":{"labels":{"a":"b"}}}`),
					client.DryRunAll)
			},
			"a label, server-side apply": patch(name, types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": map[string]any{"team": "b"}},
			}),
			"another namespace, server-side apply": patch("applied", types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "applied"},
			}),
			"another namespace": func(ctx context.Context) error { return operator.Create(ctx, wrappers.MakeNamespace("created").Obj()) },
			"deletion":          func(ctx context.Context) error { return operator.Delete(ctx, before.DeepCopy()) },
		}
		forEach(ctx, requests, BeConfined())
		after := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(after).To(Equal(before))
		Expect(requests["deletion"](ctx)).To(BeConfined("system:serviceaccount:nslifecycle-system:nslifecycle-controller-manager",
			"DELETE", "namespaces", name))

		By("sending what the API server ignores")
		for _, send := range []request{
			merge(name, inMetadata("deletionTimestamp", metav1.Now()), "status"),
			merge(name, inMetadata("deletionTimestamp", metav1.Now())),
			put(before, "finalize", func(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.Now()) }),
		} {
			_ = send(ctx) // Refused by validation, or without effect.
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), after)).To(Succeed())
			Expect(after.DeletionTimestamp).To(BeNil())
		}
	})

	It("gets the state, the conditions and the records of the operator", func(ctx context.Context) {
		namespace := makeNamespace(ctx)
		name := namespace.Name
		forEach(ctx, map[string]request{
			"Initializing":      condition(name, v1alpha1.ConditionInitializing),
			"of an initializer": condition(name, "a.example.com/Initialized"),
			"Ready":             condition(name, "Ready"),
			"blocked":           condition(name, v1alpha1.ConditionDeletionBlocked),
			"templates":         merge(name, inMetadata("annotations", map[string]any{v1alpha1.AnnotationAppliedTemplates: "{}"}), "status"),
			"the start of a turn": merge(name, inMetadata("annotations", map[string]any{
				v1alpha1.AnnotationTurnStartedAt: "a.example.com 2026-03-01T12:00:00Z",
			}), "status"),
			"a dry run": func(ctx context.Context) error {
				return operator.Create(ctx, wrappers.MakeNamespace("created").Obj(), client.DryRunAll)
			},
		}, Succeed())
		By("keeping the conditions of other controllers")
		Expect(admin.Status().Patch(ctx, namespace, client.RawPatch(types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"example.com/Ready","status":"True"}]}}`)))).To(Succeed())
		Expect(condition(name, v1alpha1.ConditionInitializing)(ctx)).To(Succeed())
		Expect(merge(name, map[string]any{"status": map[string]any{"conditions": nil}}, "status")(ctx)).To(BeConfined())
	})

	It("is finalized while it is terminating", func(ctx context.Context) {
		namespace := makeTerminating(ctx, "example.com/other")
		name := namespace.Name
		forEach(ctx, map[string]request{
			"another namespace finalizer": put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"} }),
			"all namespace finalizers":    put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = nil }),
			"one more":                    put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = append(n.Spec.Finalizers, "a/b") }),
			"a label through /finalize":   put(namespace, "finalize", func(n *corev1.Namespace) { n.Labels["a"] = "b" }),
		}, BeConfined())
		forEach(ctx, map[string]request{
			"a deletion condition": condition(name, string(corev1.NamespaceContentRemaining)),
			"the phase":            merge(name, map[string]any{"status": map[string]any{"phase": "Terminating"}}, "status"),
			"another namespace finalizer, dry run": func(ctx context.Context) error {
				dry := namespace.DeepCopy()
				dry.ResourceVersion, dry.Spec.Finalizers = "", nil
				return operator.SubResource("finalize").Update(ctx, dry, client.DryRunAll)
			},
		}, Succeed())
		Expect(put(namespace, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"example.com/other"}
		})(ctx)).To(Succeed())
		By("deleting content without the namespace finalizer")
		Eventually(func() error {
			return operator.Delete(ctx, wrappers.MakeConfigMap(name, "content"), client.DryRunAll)
		}).WithContext(ctx).Should(BeConfined("only objects in terminating namespaces"))
		Expect(put(namespace, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"example.com/other", "kubernetes"}
		})(ctx)).To(BeConfined())
	})

	It("without finalizers gets the namespace finalizer back", func(ctx context.Context) {
		namespace := makeNamespace(ctx)
		admin.Reads(ctx, namespace)
		without := namespace.DeepCopy()
		without.Spec.Finalizers = nil
		Expect(admin.SubResource("finalize").Update(ctx, without)).To(Succeed())
		Expect(put(without, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"}
		})(ctx)).To(BeConfined("terminating"))
	})
}

// applied returns managedFields in which the entry of a GitOps controller contains a field.
func applied(fields string) []any {
	return []any{map[string]any{
		"manager": "gitops", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
		"time": metav1.Now(), "fieldsV1": json.RawMessage(fields),
	}}
}

func confinedManagers() {
	const labels = `{"f:metadata":{"f:labels":{"f:team":{}}}}`

	It("of a Namespace cannot be added, extended or removed", func(ctx context.Context) {
		namespace := makeNamespace(ctx, func(w *wrappers.NamespaceWrapper) { w.Label("team", "x") })
		name, before := namespace.Name, cluster.GetNamespace(Default, ctx, namespace.Name)
		apply := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": name, "labels": map[string]any{"team": "x"},
		}}
		as := func(manager string, kind types.PatchType, change map[string]any, subresources ...string) request {
			return func(ctx context.Context) error {
				options := metav1.PatchOptions{FieldManager: manager}
				_, err := api.CoreV1().Namespaces().Patch(ctx, name, kind, []byte(mustEncode(change)), options, subresources...)
				return err
			}
		}
		forEach(ctx, map[string]request{
			"an entry":                      merge(name, inMetadata("managedFields", applied(labels))),
			"no entry":                      merge(name, inMetadata("managedFields", []any{map[string]any{}})),
			"server-side apply":             as("gitops", types.ApplyPatchType, apply),
			"server-side apply of /status":  as("gitops", types.ApplyPatchType, apply, "status"),
			"a condition of another writer": as("gitops", types.StrategicMergePatchType, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}, "status"),
		}, BeConfined("field manager"))
		By("sending no entries, which the API server ignores")
		Expect(put(before, "status", func(n *corev1.Namespace) { n.ManagedFields = nil })(ctx)).To(Succeed())
		Expect(cluster.GetNamespace(Default, ctx, name).ManagedFields).To(Equal(before.ManagedFields))
	})

	It("of a template cannot be added or extended", func(ctx context.Context) {
		tmpl := &v1alpha1.NamespaceTemplate{}
		Expect(json.Unmarshal([]byte(`{"metadata":{"labels":{"team":"x","tier":"x"}},"spec":{"serviceAccountName":"x","namespaceSelector":{"matchLabels":{"none":"x"}},
			"objects":[{"name":"a","template":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}}]}}`), tmpl)).To(Succeed())
		tmpl.Name = framework.Unique("managers")
		Expect(admin.Create(ctx, tmpl, client.FieldOwner("creator"))).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, tmpl)).To(Succeed()) })
		tier := &metav1.ManagedFieldsEntry{
			Manager: "gitops", Operation: "Apply", APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:tier":{}}}}`),
		}
		tmpl.ManagedFields = append(tmpl.ManagedFields, *tier)
		admin.Updates(ctx, tmpl)
		send := func(change func(*v1alpha1.NamespaceTemplate)) error {
			changed := tmpl.DeepCopy()
			change(changed)
			return operator.Update(ctx, changed, client.DryRunAll)
		}
		gitops := func(n *v1alpha1.NamespaceTemplate) *metav1.ManagedFieldsEntry {
			index := slices.IndexFunc(n.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "gitops" })
			return &n.ManagedFields[index]
		}
		for name, change := range map[string]func(*v1alpha1.NamespaceTemplate){
			"an entry": func(n *v1alpha1.NamespaceTemplate) {
				added := *gitops(n)
				added.Manager = "other"
				n.ManagedFields = append(n.ManagedFields, added)
			},
			"a label in an entry": func(n *v1alpha1.NamespaceTemplate) {
				gitops(n).FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{},"f:tier":{}}}}`)
			},
			"all labels in an entry": func(n *v1alpha1.NamespaceTemplate) {
				gitops(n).FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)
			},
			"the spec in an entry": func(n *v1alpha1.NamespaceTemplate) {
				gitops(n).FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:tier":{}}},"f:spec":{"f:serviceAccountName":{}}}`)
			},
			"an entry before the first apply": func(n *v1alpha1.NamespaceTemplate) {
				added := *gitops(n)
				added.Manager, added.Operation = "before-first-apply", "Update"
				n.ManagedFields = append(n.ManagedFields, added)
			},
			"an entry of ancient changes": func(n *v1alpha1.NamespaceTemplate) {
				added := *gitops(n)
				added.Manager, added.Operation = "ancient-changes", "Update"
				n.ManagedFields = append(n.ManagedFields, added)
			},
		} {
			Expect(send(change)).To(BeConfined("other field managers"), name)
		}
		By("adding the finalizer of the operator")
		Expect(send(func(n *v1alpha1.NamespaceTemplate) {
			n.Finalizers = append(n.Finalizers, v1alpha1.FinalizerTemplateObjects)
		})).To(Succeed())
		Expect(operator.Update(ctx, tmpl, client.DryRunAll, client.FieldOwner("gitops"))).To(BeConfined("field manager"))
	})
}

// finalization reports the diagnosis of an initialization, and writes nothing else of a namespace that is not
// terminating.
func confinedFinalization() {
	var finalization *framework.User
	BeforeAll(func() { finalization = operators["nslifecycle-finalization"] })
	send := func(ctx context.Context, name string, change map[string]any) error {
		_, err := finalization.Clientset().CoreV1().Namespaces().Patch(ctx, name, types.StrategicMergePatchType,
			[]byte(mustEncode(change)), metav1.PatchOptions{FieldManager: nsobject.FieldOwner, DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	conditions := func(conditionType string) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
			"type": conditionType, "status": "True", "reason": "Test", "lastTransitionTime": metav1.Now(), "message": "x",
		}}}}
	}

	It("changes no namespace that is not terminating", func(ctx context.Context) {
		// All accounts of these specs hold each verb, so the policy guard admits the requests.
		live := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initializing"))
		Expect(live.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		terminating := makeTerminating(ctx)
		for _, change := range []map[string]any{
			inMetadata("annotations", map[string]any{v1alpha1.AnnotationInitializationResult: `{"status":"Failure"}`}),
			inMetadata("annotations", map[string]any{v1alpha1.AnnotationAppliedTemplates: "{}"}),
			inMetadata("annotations", map[string]any{v1alpha1.AnnotationPendingInitializers: ""}),
			conditions("Ready"), conditions(v1alpha1.ConditionInitializing), conditions("a.example.com/Initialized"),
			conditions(v1alpha1.ConditionDeletionBlocked),
		} {
			Expect(send(ctx, live.Name, change)).To(BeConfined("not terminating"), "%v", change)
		}
		Expect(send(ctx, live.Name, conditions(v1alpha1.ConditionInitializationBlocked))).To(Succeed())
		changed := cluster.GetNamespace(Default, ctx, live.Name)
		changed.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
		Expect(finalization.SubResource("finalize").Update(ctx, changed, client.DryRunAll)).To(BeConfined("only terminating"))
		Expect(finalization.Delete(ctx, live.DeepCopy(), client.DryRunAll)).To(BeConfined())
		Expect(send(ctx, terminating.Name, conditions(v1alpha1.ConditionDeletionBlocked))).To(Succeed())
	})
}

// put replaces a Namespace, or a subresource of it.
func put(namespace *corev1.Namespace, subresource string, change func(*corev1.Namespace)) request {
	return func(ctx context.Context) error {
		changed := namespace.DeepCopy()
		changed.ResourceVersion = ""
		change(changed)
		return operator.SubResource(subresource).Update(ctx, changed, client.FieldOwner(nsobject.FieldOwner))
	}
}

func rawPatch(name string, kind types.PatchType, body string, subresources ...string) request {
	return func(ctx context.Context) error {
		_, err := api.CoreV1().Namespaces().Patch(ctx, name, kind, []byte(body),
			metav1.PatchOptions{FieldManager: nsobject.FieldOwner}, subresources...)
		return err
	}
}

func confinedDeletions() {
	It("requires that the initialization has failed", func(ctx context.Context) {
		const pending, result = v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult
		live := makeNamespace(ctx)
		By("forging the state on a live namespace")
		for _, annotations := range []map[string]any{
			{result: `{"status":"Failure"}`}, {pending: "a"}, {pending: "a", result: `{"status":"Failure"}`},
		} {
			for _, subresources := range [][]string{nil, {"status"}, {"finalize"}} {
				change := map[string]any{"metadata": map[string]any{
					"labels": map[string]any{v1alpha1.LabelInitializing: "true"}, "annotations": annotations,
				}}
				Expect(merge(live.Name, change, subresources...)(ctx)).NotTo(Succeed())
			}
		}
		Expect(condition(live.Name, v1alpha1.ConditionInitializing)(ctx)).To(Succeed())
		Expect(operator.Delete(ctx, live)).To(BeConfined("failed"))
	})
}

func mustEncode(value any) string {
	body, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func confinedRecreations() {
	recreate := func(ctx context.Context, name string) {
		GinkgoHelper()
		content, namespace := wrappers.MakeConfigMap(name, "content"), &corev1.Namespace{}
		admin.Deletes(ctx, content)
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
		namespace.Spec.Finalizers = nil
		Expect(admin.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
		admin.Creates(ctx, wrappers.MakeNamespace(name).Label(plain, "").Obj())
		// The API server rejects new objects until it has observed the new namespace.
		Eventually(func() error { return admin.Create(ctx, wrappers.MakeConfigMap(name, "content")) }).WithContext(ctx).Should(Succeed())
	}
	// window returns for how long an API server allows the deletion of an object in the new namespace.
	window := func(ctx context.Context, user *framework.User, name string) (allowed int, last time.Duration) {
		GinkgoHelper()
		start := time.Now()
		for ctx.Err() == nil {
			err := user.Delete(ctx, wrappers.MakeConfigMap(name, "content"), client.DryRunAll)
			if err != nil {
				Expect(err).To(BeConfined("terminating"))
				return allowed, last
			}
			allowed, last = allowed+1, time.Since(start)
		}
		return allowed, last
	}

	It("keeps its content", func(ctx context.Context) {
		namespace := makeTerminating(ctx)
		recreate(ctx, namespace.Name)
		allowed, last := window(ctx, operator, namespace.Name)
		AddReportEntry(fmt.Sprintf("the API server allowed %d deletions, the last after %s", allowed, last))
		Expect(operator.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))).To(BeConfined())
	})

	// The API server evaluates the namespace in its cache. The operator itself sends the UID of each object that it
	// has listed while the namespace was terminating.
	It("is not known to an API server whose watch is behind", func(ctx context.Context) {
		second := cluster.StartSecondAPIServer(ctx)
		through := second.As(operator)
		namespace := makeTerminating(ctx)
		Eventually(func() error {
			return through.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "content"), client.DryRunAll)
		}).WithContext(ctx).Should(Succeed())
		Expect(second.Pause()).To(Succeed())
		recreate(ctx, namespace.Name)
		Expect(second.Resume()).To(Succeed())
		allowed, last := window(ctx, through, namespace.Name)
		AddReportEntry(fmt.Sprintf("an API server that resumes allowed %d deletions, the last after %s", allowed, last))
	}, NodeTimeout(3*time.Minute))
}
