// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// configuration registers an initializer in the domain of the fixture.
const configuration = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceInitializerConfiguration
metadata: {name: $id}
initializers: [{name: $id.init.example.com}]
`

// initializerRBAC allows the fixture's operator to initialize namespaces.
const initializerRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-initializer}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch, patch, initialize]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-initializer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-initializer}
subjects:
- {kind: ServiceAccount, namespace: $id-system, name: widget-operator}
`

// newInitializingFixture creates a namespace that waits for an initializer. If before is not nil, it
// is called first.
func newInitializingFixture(ctx context.Context, before func(*fixture)) *fixture {
	GinkgoHelper()
	f := makeFixture()
	if before != nil {
		before(f)
	}
	DeferCleanup(expectInjected, false)
	f.create(ctx, configuration)
	expectInjected(ctx, true)
	f.create(ctx, f.manifest())
	return f
}

// expectInjected waits until the API server adds initializers to new namespaces, or stops adding
// them.
func expectInjected(ctx context.Context, isExpected bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := wrappers.MakeNamespace("dry-run").Obj()
		g.Expect(admin.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
		_, isInjected := namespace.Labels[v1alpha1.LabelInitializing]
		g.Expect(isInjected).To(Equal(isExpected))
	}).WithContext(ctx).Should(Succeed())
}

// expectRemedied runs the recommended command that removes the initializer from the pending list,
// and expects that the namespace becomes active and has no findings.
func (f *fixture) expectRemedied(ctx context.Context, result *diagnosis.Diagnosis) {
	GinkgoHelper()
	remedies := result.Findings[0].Remedies
	Expect(remedies).To(ContainElement(HaveField("Command", HavePrefix("kubectl annotate namespace "+f.ns))))
	for _, remedy := range remedies {
		if strings.HasPrefix(remedy.Command, "kubectl annotate") {
			_, err := runShell(ctx, remedy.Command)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	Eventually(func(g Gomega) {
		g.Expect(f.diagnose(g, ctx, collector).Stage).To(Equal(diagnosis.StageActive))
	}).WithContext(ctx).Should(Succeed())
	f.expectNoFindings(ctx, collector, time.Second)
}

var _ = Describe("An initializing namespace", func() {
	It("waits for an initializer without a controller", func(ctx context.Context) {
		f := newInitializingFixture(ctx, nil)
		result := f.expectFindings(ctx, inferred(diagnosis.CauseInitializerNotRunning, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com")))
		f.expectRemedied(ctx, result)
	})

	It("waits for an initializer that is not running", func(ctx context.Context) {
		f := newInitializingFixture(ctx, func(f *fixture) {
			f.createOperator(ctx)
			f.create(ctx, initializerRBAC)
			f.scaleOperator(ctx, 0)
			f.expireLease(ctx)
		})
		result := f.expectFindings(ctx, inferred(diagnosis.CauseInitializerNotRunning, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com")).withEvidence("widget-operator"))
		f.expectRemedied(ctx, result)
	})

	It("waits for an initializer whose ServiceAccount is deleted", func(ctx context.Context) {
		f := newInitializingFixture(ctx, func(f *fixture) {
			f.createOperator(ctx)
			f.create(ctx, initializerRBAC)
			f.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
			(&fixture{ns: f.text("$id-system")}).expectDeleted(ctx)
		})
		result := f.expectFindings(ctx, inferred(diagnosis.CauseInitializerNotRunning, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com")).withEvidence("widget-operator"))
		f.expectRemedied(ctx, result)
	})

	It("waits for an initializer that published why it is not done", func(ctx context.Context) {
		f := newInitializingFixture(ctx, nil)
		f.publishOnNamespace(ctx, f.text("$id.init.example.com/Initialized"), "NoPlan", "ConfigMap plans/default is missing")
		result := f.expectFindings(ctx, published(diagnosis.CauseInitializerFailing, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com"), "NoPlan: ConfigMap plans/default is missing"))
		f.expectRemedied(ctx, result)
	})

	It("waits for an initializer that is running but makes no progress", func(ctx context.Context) {
		f := newInitializingFixture(ctx, func(f *fixture) {
			f.createOperator(ctx)
			f.create(ctx, initializerRBAC)
		})
		result := f.expectFindings(ctx, inferred(diagnosis.CauseInitializerSlow, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com")).withEvidence("widget-operator"))
		f.expectRemedied(ctx, result)
	})

	It("waits for an initializer that is no longer registered", func(ctx context.Context) {
		f := newInitializingFixture(ctx, nil)
		stopManager() // It would skip the initializer.
		f.delete(ctx, configuration)
		result := f.expectFindings(ctx, proven(diagnosis.CauseInitializerUnregistered, "namespaces/"+f.ns).
			withMessage(f.text("$id.init.example.com")))
		f.expectRemedied(ctx, result)
	})

	It("has no findings before the progress deadline", func(ctx context.Context) {
		f := newInitializingFixture(ctx, nil)
		f.expectNoFindings(ctx, newCollectorWithDeadline(time.Hour), 3*time.Second)
	})
})
