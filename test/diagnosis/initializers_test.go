// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
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

// newInitializingFixture creates a namespace that waits for an initializer after it has called before.
func newInitializingFixture(ctx context.Context, before func(context.Context, *fixture)) *fixture {
	GinkgoHelper()
	f := makeFixture()
	before(ctx, f)
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
		g.Expect(f.diagnose(g, ctx, collector).State).To(Equal(diagnosis.StateInitialized))
	}).WithContext(ctx).Should(Succeed())
	f.expectNoFindings(ctx, collector, time.Second)
}

var _ = DescribeTable("An initializing namespace waits for an initializer",
	func(ctx context.Context, before, after func(context.Context, *fixture), expected expectedFinding) {
		f := newInitializingFixture(ctx, before)
		after(ctx, f)
		expected.objects = []string{"namespaces/$ns"}
		f.expectRemedied(ctx, f.expectFindings(ctx, expected.withMessage("$id.init.example.com")))
	},
	Entry("that is not running", func(ctx context.Context, f *fixture) {
		f.createInitializer(ctx)
		f.scaleOperator(ctx, 0)
		f.expireLease(ctx)
	}, nothing, inferred(diagnosis.CauseInitializerNotRunning).withEvidence("widget-operator")),
	Entry("that published why it is not done", nothing, func(ctx context.Context, f *fixture) {
		f.publishOnNamespace(ctx, f.text("$id.init.example.com/Initialized"), "NoPlan", "ConfigMap plans/default is missing")
	}, published(diagnosis.CauseInitializerFailing).withMessage("NoPlan: ConfigMap plans/default is missing")),
)

func nothing(context.Context, *fixture) {}

// createInitializer creates a controller that may initialize namespaces.
func (f *fixture) createInitializer(ctx context.Context) {
	GinkgoHelper()
	f.createOperator(ctx)
	f.create(ctx, initializerRBAC)
}
