// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// Clients that replace a Namespace, such as kubectl replace and GitOps controllers, remove labels for a moment.
var _ = Describe("A label that is absent for a moment", func() {
	AfterEach(restoreManager)

	prune := func(spec *v1alpha1.NamespaceTemplateSpec) {
		only("config", configMap("config", "a"))(spec)
		spec.Objects = append(spec.Objects, objectNamed("large", configMap("large", "a")))
		spec.Objects[1].IncludeWhen = `'size' in ns.labels && ns.labels['size'] == 'l'`
		spec.Removal.OnUnmatch = v1alpha1.RemovalPrune
	}
	keep := func(spec *v1alpha1.NamespaceTemplateSpec) {
		prune(spec)
		spec.Removal.OnUnmatch, spec.Removal.FromTemplate = v1alpha1.RemovalKeep, v1alpha1.RemovalKeep
	}

	// The label is absent until the operator has recognized it, and longer than in reports of GitOps controllers.
	DescribeTable("does not end the management of an object", func(
		ctx context.Context, label string, policy func(*v1alpha1.NamespaceTemplateSpec), restart bool,
	) {
		template := newTemplate(framework.Unique("flap"), policy)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		namespace.Labels["size"] = "l"
		createOpen(ctx, namespace)
		before := uidsOf(objectsOf(ctx, namespace))
		Expect(before).To(HaveLen(2))
		value := namespace.Labels[label]
		recorded := func() string {
			return cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationTemplates]
		}
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"`+label+`":null}}}`)
		Consistently(recorded).WithContext(ctx).Should(Equal(namespace.Annotations[v1alpha1.AnnotationTemplates]))
		if restart {
			restartManager(ctx, nil)
			Consistently(recorded).WithContext(ctx).Should(Equal(namespace.Annotations[v1alpha1.AnnotationTemplates]))
		}
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"`+label+`":"`+value+`"}}}`)
		By("a change of the template")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			policy(spec)
			spec.Objects[0] = objectNamed("config", configMap("config", "b"))
			spec.Objects[1].Template = objectNamed("large", configMap("large", "b")).Template
		})
		expectValue(ctx, namespace, "config", "b")
		expectValue(ctx, namespace, "large", "b")
		Expect(uidsOf(objectsOf(ctx, namespace))).To(HaveLen(2))
		after := objectsOf(ctx, namespace)
		for name, uid := range before {
			Expect(after[name].UID).To(Equal(uid))
		}
	},
		Entry("with removal Prune", "kind", prune, false),
		Entry("with removal Keep", "kind", keep, false),
		Entry("with removal Prune, during a restart", "kind", prune, true),
		Entry("that it includes", "size", prune, false),
	)

	It("ends it after the delay of deregistration", func(ctx context.Context) {
		template := newTemplate(framework.Unique("unset"), prune)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		namespace.Labels["size"] = "l"
		createOpen(ctx, namespace)
		removed := time.Now()
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"size":null}}}`)
		expectDeleted(ctx, namespace, "large")
		Expect(time.Since(removed)).To(BeNumerically(">=", initialization.DeregistrationDelay))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, "False", "All 1")
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{})).
			To(Succeed())
	})
})

var _ = Describe("A label that a new namespace lacks for a moment", func() {
	It("does not open the namespace without the template", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespace can be created while no manager runs")
		template := newTemplate(framework.Unique("blink"), only("config", configMap("config", "a")))
		create(ctx, template)
		cluster.StopManager()
		ns := selectedBy(template.Name)
		Expect(creator.Create(ctx, ns)).To(Succeed())
		patchNamespace(ctx, ns, `{"metadata":{"labels":{"kind":null}}}`)
		cluster.StartManager(ctx)
		time.Sleep(500 * time.Millisecond)
		patchNamespace(ctx, ns, fmt.Sprintf(`{"metadata":{"labels":{"kind":%q}}}`, template.Name))
		expectOpen(ctx, ns)
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "config"}, &corev1.ConfigMap{})
		}).WithContext(ctx).WithTimeout(5 * time.Second).Should(Succeed())
	})
})
