// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A label that a namespace gets after its creation", func() {
	It("is reported if the template is applied only to new namespaces", func(ctx context.Context) {
		template := newTemplate(framework.Unique("late"), only("config", configMap("config", "a")))
		create(ctx, template)
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label("app", "web").Obj()
		createOpen(ctx, namespace)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveField("Status.Conditions", Not(BeEmpty())))
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"nslifecycle.dev/template":"`+template.Name+`"}}}`)
		expectEvents(ctx, namespace, "TemplateNotApplied")
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		By("following the advice")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		expectValue(ctx, namespace, "config", "a")
	})
})
