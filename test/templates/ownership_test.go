// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// recordOf returns what a Namespace records about a template.
func recordOf(g Gomega, ctx context.Context, namespace *corev1.Namespace, name string) template.Entry {
	current := cluster.GetNamespace(g, ctx, namespace.Name)
	state, err := template.ParseRecord(current)
	g.Expect(err).NotTo(HaveOccurred())
	return state[name]
}

// expectRecorded waits until a Namespace records the only object of a template.
func expectRecorded(ctx context.Context, namespace *corev1.Namespace, name string) template.ObjectState {
	GinkgoHelper()
	var recorded template.ObjectState
	Eventually(func(g Gomega) {
		entry := recordOf(g, ctx, namespace, name)
		g.Expect(entry.Objects).To(HaveLen(1))
		recorded = entry.Objects[0]
		g.Expect(recorded.UID).To(Equal(objectsOf(ctx, namespace)[recorded.Kind.Kind+"/"+recorded.Name].UID))
	}).WithContext(ctx).Should(Succeed())
	return recorded
}

// forge makes the metadata of a ConfigMap equal to that of an object which the operator has created: label,
// annotation, and only one field manager. Permission to patch the object is sufficient.
func forge(ctx context.Context, namespace *corev1.Namespace, name, templateName string) {
	GinkgoHelper()
	Eventually(func() error {
		config := getConfig(ctx, namespace, name)
		config.Labels = map[string]string{v1alpha1.LabelManagedByTemplate: templateName}
		config.Annotations = map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace.UID)}
		config.ManagedFields = []metav1.ManagedFieldsEntry{managedBy(template.FieldManager(templateName))}
		return cluster.Admin.Update(ctx, config, client.FieldOwner(template.FieldManager(templateName)))
	}).WithContext(ctx).Should(Succeed())
	config := getConfig(ctx, namespace, name)
	config.ManagedFields = []metav1.ManagedFieldsEntry{managedBy(template.FieldManager(templateName))}
	Expect(cluster.Admin.Update(ctx, config, client.FieldOwner(template.FieldManager(templateName)))).To(Succeed())
	Expect(getConfig(ctx, namespace, name).ManagedFields).To(HaveLen(1))
}

// managedBy returns an entry for the data of a ConfigMap and the metadata of the operator.
func managedBy(manager string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:key":{}},"f:metadata":{"f:annotations":{"f:` +
			v1alpha1.AnnotationNamespaceUID + `":{}},"f:labels":{"f:` + v1alpha1.LabelManagedByTemplate + `":{}}}}`),
	}
}

// forgeManagers adds as many field managers of other templates to a ConfigMap and changes its value.
func forgeManagers(ctx context.Context, namespace *corev1.Namespace, name string, number int, value string) {
	GinkgoHelper()
	Eventually(func() error {
		config := getConfig(ctx, namespace, name)
		config.Data["key"] = value
		for i := range number {
			entry := managedBy(fmt.Sprintf("%s%s-%d", template.FieldManager(""), framework.Unique("x"), i))
			config.ManagedFields = append(config.ManagedFields, entry)
		}
		return cluster.Admin.Update(ctx, config)
	}).WithContext(ctx).Should(Succeed())
}

// unselect removes the label by which a template selects a Namespace, and waits until nothing is recorded.
func unselect(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	relabel(ctx, "", namespace)
	Eventually(func(g Gomega) {
		current := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(current.Annotations).NotTo(HaveKey(v1alpha1.AnnotationAppliedTemplates))
	}).WithContext(ctx).Should(Succeed())
}

func withPrune(spec *v1alpha1.NamespaceTemplateSpec) {
	spec.Scope, spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.ScopeAllNamespaces, v1alpha1.RetentionDelete
}

var _ = Describe("The operator deletes no object that it has not created", func() {
	It("if its labels, annotations and managedFields are forged", func(ctx context.Context) {
		created := createTemplate(ctx, "forged", only("config", configMap("config", "a")), withPrune)
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy("other"))
		victim := newConfig(namespace.Name, "config", "a")
		Expect(cluster.Admin.Create(ctx, victim, client.FieldOwner("victim"))).To(Succeed())
		forge(ctx, namespace, "config", created.Name)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		Expect(expectRecorded(ctx, namespace, created.Name).IsAdopted).To(BeTrue())
		unselect(ctx, namespace)
		expectEvents(ctx, namespace, "TemplateObjectRetained")
		Expect(getConfig(ctx, namespace, "config").UID).To(Equal(victim.UID))
	})

	It("if it replaces one that the operator has created", func(ctx context.Context) {
		created, namespace := createSelecting(ctx, "replaced", only("config", configMap("config", "a")), withPrune)
		cluster.StopManager()
		DeferCleanup(restoreManager)
		cluster.Admin.Deletes(ctx, getConfig(ctx, namespace, "config"))
		victim := newConfig(namespace.Name, "config", "a")
		Expect(cluster.Admin.Create(ctx, victim, client.FieldOwner("victim"))).To(Succeed())
		forge(ctx, namespace, "config", created.Name)
		cluster.StartManager(ctx)
		Expect(expectRecorded(ctx, namespace, created.Name).IsAdopted).To(BeTrue())
		unselect(ctx, namespace)
		Expect(getConfig(ctx, namespace, "config").UID).To(Equal(victim.UID))
	})

	It("if it has stopped before it could record that it has created it", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := newTemplate(framework.Unique("stopped"), only("config", configMap("config", "a")), withPrune)
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(created.Name))
		applied := make(chan struct{})
		var isApplied atomic.Bool
		restartManager(ctx, func(request *http.Request) fault {
			if !isTemplateWrite(request, namespace.Name) {
				return noFault
			}
			if isApplied.CompareAndSwap(false, true) {
				defer close(applied)
				return noFault
			}
			return notSent
		})
		create(ctx, created)
		Eventually(applied).WithContext(ctx).Should(BeClosed())
		Eventually(func() error { // The request is sent after the channel was closed.
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Succeed())
		restartManager(ctx, nil)
		// A user could have created it meanwhile.
		Expect(expectRecorded(ctx, namespace, created.Name).IsAdopted).To(BeTrue())
		uid := getConfig(ctx, namespace, "config").UID
		unselect(ctx, namespace)
		Expect(getConfig(ctx, namespace, "config").UID).To(Equal(uid))
	})

	It("but one that it has created, also if it could not record it at first", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := newTemplate(framework.Unique("retried"), only("config", configMap("config", "a")), withPrune)
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(created.Name))
		var failures atomic.Int32
		restartManager(ctx, func(request *http.Request) fault {
			isRecord := isTemplateWrite(request, namespace.Name) && strings.HasSuffix(request.URL.Path, "/status")
			if isRecord && failures.Add(1) <= 3 {
				return notSent
			}
			return noFault
		})
		create(ctx, created)
		Expect(expectRecorded(ctx, namespace, created.Name).IsAdopted).To(BeFalse())
		Expect(failures.Load()).To(BeNumerically(">", 3))
		restartManager(ctx, nil)
		unselect(ctx, namespace)
		expectDeleted(ctx, namespace, "config")
	})

	It("if only the record names it, or if its own mark is absent", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created, namespace := createSelecting(ctx, "record", only("config", configMap("config", "a")), withPrune)
		Expect(expectRecorded(ctx, namespace, created.Name).IsAdopted).To(BeFalse())
		cluster.StopManager()
		unmarked, precious := getConfig(ctx, namespace, "config"), newConfig(namespace.Name, "precious", "a")
		cluster.Admin.Patches(ctx, unmarked, `{"metadata":{"labels":null,"managedFields":[{}]}}`)
		cluster.Admin.Creates(ctx, precious)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"precious":"a"},"annotations":{"precious":"a"}}}`)

		current := cluster.GetNamespace(Default, ctx, namespace.Name)
		state, err := template.ParseRecord(current)
		Expect(err).NotTo(HaveOccurred())
		entry, hash := state[created.Name], template.HashOf("a")
		for kind, uid := range map[schema.GroupKind]types.UID{
			{Kind: "ConfigMap"}: precious.UID, template.KindLabel: current.UID, template.KindAnnotation: current.UID,
		} {
			entry.Objects = append(entry.Objects, template.ObjectState{
				Kind: kind, Name: "precious", UID: uid, Content: hash, Fields: hash,
			})
		}
		state[created.Name] = entry
		patch := client.MergeFrom(current.DeepCopy())
		current.Annotations[v1alpha1.AnnotationAppliedTemplates] = state.String()
		Expect(cluster.Admin.Patch(ctx, current, patch)).To(Succeed())
		cluster.StartManager(ctx)
		unselect(ctx, namespace)
		Expect(getConfig(ctx, namespace, "config").UID).To(Equal(unmarked.UID))
		Expect(getConfig(ctx, namespace, "precious").UID).To(Equal(precious.UID))
		kept := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(kept.Labels).To(HaveKeyWithValue("precious", "a"))
		Expect(kept.Annotations).To(HaveKeyWithValue("precious", "a"))
	})
})

var _ = Describe("The record of what the operator has created", func() {
	It("causes no request for the objects of a new namespace except one for each", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := createTemplate(ctx, "requests")
		intercepted := restartManager(ctx, nil)
		createInitialized(ctx, selectedBy(created.Name)) // The first one waits for the watches.
		namespace := createInitialized(ctx, selectedBy(created.Name))
		sent := slices.DeleteFunc(intercepted.sent(), func(request string) bool {
			path, _, _ := strings.Cut(request, "?")
			return !strings.Contains(path, "/namespaces/"+namespace.Name+"/") || strings.HasSuffix(path, "/status")
		})
		Expect(sent).To(HaveLen(4))
		Expect(sent).To(HaveEach(HavePrefix("PATCH ")))
	})
})

var _ = Describe("Forged field managers of templates", func() {
	for _, number := range []int{250, 1000} {
		It(fmt.Sprintf("cause few requests: %d", number), func(ctx context.Context) {
			DeferCleanup(restoreManager)
			created, namespace := createSelecting(ctx, "managers", only("config", configMap("config", "ours")))
			intercepted := restartManager(ctx, nil)
			expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
			intercepted.sent()
			forgeManagers(ctx, namespace, "config", number, "theirs")
			start := time.Now()
			expectValue(ctx, namespace, "config", "ours")
			AddReportEntry("time until the restoration", time.Since(start))
			Consistently(func() int {
				return countContaining(intercepted.requestsSoFar(), "/configmaps/config?")
			}).WithContext(ctx).Should(BeNumerically("<=", 2), "the removal of the managedFields, and the restoration")
			By("without the label, so that the cache does not contain the object")
			Eventually(func() error {
				config := getConfig(ctx, namespace, "config")
				config.Labels, config.Data["key"] = nil, "theirs"
				for i := range number {
					config.ManagedFields = append(config.ManagedFields, managedBy(fmt.Sprintf("x-%d", i)))
				}
				return cluster.Admin.Update(ctx, config)
			}).WithContext(ctx).Should(Succeed())
			expectValue(ctx, namespace, "config", "ours")
		})
	}

	It("on an object that exists already are a conflict", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := createTemplate(ctx, "managers", only("config", configMap("config", "a")), withPrune)
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy("other"))
		cluster.Admin.Creates(ctx, newConfig(namespace.Name, "config", "a"))
		forgeManagers(ctx, namespace, "config", 1000, "a")
		intercepted := restartManager(ctx, nil)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		expectCondition(ctx, created.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		Expect(writes(intercepted.sent())).NotTo(ContainElement(ContainSubstring("/configmaps/config?")))
	})
})

var _ = Describe("The objects that a template has left", func() {
	It("are adopted by a template with another name, and lose the fields of the first one", func(ctx context.Context) {
		policy := func(labels string) func(*v1alpha1.NamespaceTemplateSpec) {
			return only("policy", `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"policy",
				"labels":{`+labels+`}},"spec":{"podSelector":{},"policyTypes":["Ingress"],"ingress":[]}}`)
		}
		first, namespace := createSelecting(ctx, "first", policy(`"kept":"x","removed":"x"`))
		deleteTemplate(ctx, first.Name, nil)
		second := newTemplate(framework.Unique("second"), policy(`"kept":"x"`), withPrune)
		second.Spec.NamespaceSelector = first.Spec.NamespaceSelector
		create(ctx, second)
		Expect(expectRecorded(ctx, namespace, second.Name).IsAdopted).To(BeTrue())
		labels := get(ctx, namespace, "policy", &networkingv1.NetworkPolicy{}).Labels
		Expect(labels).To(Equal(map[string]string{"kept": "x", v1alpha1.LabelManagedByTemplate: second.Name}))
	})
})

// restored is what a tool leaves of an object that it restores or copies.
type restored struct {
	// change changes the object of the backup before it is created.
	change func(*corev1.ConfigMap)
	// owner is the field manager of the tool.
	owner string
	// isApplied is true if the tool uses server-side apply.
	isApplied bool
	// keepsManagedFields is true if the tool writes the managedFields of the backup afterwards.
	keepsManagedFields bool
}

// DescribeTable for the tools that restore objects of templates, or copy them to another namespace or cluster. All drop
// uid, resourceVersion and creationTimestamp, without which the API server creates no object.
var _ = DescribeTable("An object of an earlier namespace that is restored is adopted",
	func(ctx context.Context, tool restored) {
		created, original := createSelecting(ctx, "restored", only("config", configMap("config", "a")), withPrune)
		backup := getConfig(ctx, original, "config")
		restore := func(namespace *corev1.Namespace, value string) {
			object := &corev1.ConfigMap{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace.Name, Name: backup.Name, Labels: backup.Labels, Annotations: backup.Annotations,
				}, Data: map[string]string{"key": value},
			}
			if tool.change != nil {
				object = object.DeepCopy()
				tool.change(object)
			}
			if tool.isApplied {
				encoded, err := json.Marshal(object)
				Expect(err).NotTo(HaveOccurred())
				Expect(cluster.Admin.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, encoded), client.FieldOwner(tool.owner))).
					To(Succeed())
			} else {
				Expect(cluster.Admin.Create(ctx, object, client.FieldOwner(tool.owner))).To(Succeed())
			}
			if tool.keepsManagedFields {
				object.ManagedFields = slices.Clone(backup.ManagedFields)
				cluster.Admin.Updates(ctx, object)
			}
		}
		By("before it is the turn of the templates of a new namespace")
		first := framework.Unique("first") + ".test.example.com"
		configuration := wrappers.MakeConfiguration(framework.Unique("first")).
			Initializer(first, v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"first": "true"},
			}}).Initializers(v1alpha1.TemplatesInitializer).Obj()
		cluster.Admin.Creates(ctx, configuration)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) })
		namespace := selectedBy(created.Name)
		namespace.Labels["first"] = "true"
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
			g.Expect(framework.PendingOf(namespace)).To(HavePrefix(first))
		}).WithContext(ctx).Should(Succeed())
		namespace = wrappers.MakeNamespace(namespace.Name).Label("kind", created.Name).Label("first", "true").Obj()
		creator.Creates(ctx, namespace)
		restore(namespace, "a")
		cluster.Finish(ctx, namespace.Name)
		expectInitialized(ctx, namespace)
		recorded := expectRecorded(ctx, namespace, created.Name)
		By("in an initialized namespace that is selected afterwards")
		initialized := framework.CreateAs(ctx, cluster.Admin, selectedBy("other"))
		restore(initialized, "a")
		cluster.Admin.Patches(ctx, initialized.DeepCopy(), `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		Expect(expectRecorded(ctx, initialized, created.Name).IsAdopted).To(BeTrue())
		Expect(recorded.IsAdopted).To(BeTrue())
		By("unless a field of the template has another value")
		different := framework.CreateAs(ctx, cluster.Admin, selectedBy("other"))
		restore(different, "b")
		cluster.Admin.Patches(ctx, different.DeepCopy(), `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		if tool.keepsManagedFields {
			// The operator is the only manager of the field, as after a change by the operator itself.
			expectValue(ctx, different, "config", "a")
			return
		}
		expectCondition(ctx, created.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		expectValue(ctx, different, "config", "b")
	},
	Entry("kubectl get -o yaml, kubectl create", restored{owner: "kubectl-create"}),
	Entry("kubectl get -o yaml, kubectl apply", restored{owner: "kubectl-client-side-apply", change: func(c *corev1.ConfigMap) {
		c.Annotations[corev1.LastAppliedConfigAnnotation] = `{"apiVersion":"v1","kind":"ConfigMap"}`
	}}),
	Entry("Velero", restored{owner: "velero-server", change: func(c *corev1.ConfigMap) {
		c.Labels["velero.io/backup-name"], c.Labels["velero.io/restore-name"] = "daily", "daily"
	}}),
	Entry("Velero, which restores managedFields", restored{owner: "velero-server", keepsManagedFields: true}),
	Entry("a GitOps controller with server-side apply", restored{owner: "argocd-controller", isApplied: true}),
	Entry("a backup of a template with another name", restored{owner: "kubectl-create", change: func(c *corev1.ConfigMap) {
		c.Labels[v1alpha1.LabelManagedByTemplate] = "earlier"
	}}),
	Entry("a backup of a locked object", restored{owner: "kubectl-create", change: func(c *corev1.ConfigMap) {
		c.Labels[v1alpha1.LabelLocked] = "true"
	}}),
)

var _ = Describe("The record of the objects in a namespace", func() {
	It("keeps all objects while it has an unknown form", func(ctx context.Context) {
		created, namespace := createSelecting(ctx, "unknown", only("config", configMap("config", "a")))
		record := namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]
		config := getConfig(ctx, namespace, "config")
		changed := strings.Replace(record, `"objects"`, `"version":2,"objects"`, 1)
		text, err := json.Marshal(changed)
		Expect(err).NotTo(HaveOccurred())
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationAppliedTemplates+`":`+string(text)+`}}}`)
		_, err = template.ParseRecord(cluster.GetNamespace(Default, ctx, namespace.Name))
		Expect(err).To(MatchError(ContainSubstring("unknown form")))

		change(ctx, created.Name, only("other", configMap("other", "b")))
		Consistently(func(g Gomega) {
			g.Expect(getConfig(ctx, namespace, "config").UID).To(Equal(config.UID))
			g.Expect(objectsOf(ctx, namespace)).To(HaveLen(1))
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Annotations).
				To(HaveKeyWithValue(v1alpha1.AnnotationAppliedTemplates, changed))
		}).WithContext(ctx).Should(Succeed())

		By("repairing it")
		text, err = json.Marshal(record)
		Expect(err).NotTo(HaveOccurred())
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationAppliedTemplates+`":`+string(text)+`}}}`)
		Eventually(objectsOf).WithContext(ctx).WithArguments(namespace).
			Should(And(HaveLen(1), HaveKey("ConfigMap/other")))
	})
})
