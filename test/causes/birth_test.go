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

// configuration registers an initializer of the group of the scene.
const configuration = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceInitializerConfiguration
metadata: {name: $id}
initializers: [{name: $id.init.example.com}]
`

// initializerRights let the operator of the scene initialize.
const initializerRights = `
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

// newBirth creates a namespace that waits for an initializer, after what is to be made
// before.
func newBirth(ctx context.Context, before func(*scene)) *scene {
	GinkgoHelper()
	s := makeScene()
	if before != nil {
		before(s)
	}
	DeferCleanup(expectInjection, false)
	s.create(ctx, configuration)
	expectInjection(ctx, true)
	s.create(ctx, s.manifest())
	return s
}

// expectInjection waits until a new namespace would have something to wait for, or not.
func expectInjection(ctx context.Context, isExpected bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := wrappers.MakeNamespace("nobody").Obj()
		g.Expect(admin.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
		_, isInjected := namespace.Labels[v1alpha1.LabelInitializing]
		g.Expect(isInjected).To(Equal(isExpected))
	}).WithContext(ctx).Should(Succeed())
}

// finish does the last that the diagnosis recommends: it takes the initializer off the
// list of the namespace.
func (s *scene) finish(ctx context.Context, result *diagnosis.Diagnosis) {
	GinkgoHelper()
	remedies := result.Findings[0].Remedies
	Expect(remedies).To(ContainElement(HavePrefix("kubectl annotate namespace " + s.ns)))
	for _, remedy := range remedies {
		if strings.HasPrefix(remedy, "kubectl annotate") {
			_, err := runShell(ctx, remedy)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	Eventually(func(g Gomega) {
		g.Expect(s.diagnose(g, ctx, gatherer).Stage).To(Equal(diagnosis.StageActive))
	}).WithContext(ctx).Should(Succeed())
	s.expectUnblamed(ctx, gatherer, time.Second)
}

var _ = Describe("A namespace that is being initialized", func() {
	It("waits for an initializer that nobody could be", func(ctx context.Context) {
		s := newBirth(ctx, nil)
		result := s.expectBlamed(ctx, confirmed(diagnosis.CauseInitializerNotRunning, "namespaces/"+s.ns).
			saying(s.text("$id.init.example.com")))
		s.finish(ctx, result)
	})

	It("waits for an initializer that is dead", func(ctx context.Context) {
		s := newBirth(ctx, func(s *scene) {
			s.createOperator(ctx)
			s.create(ctx, initializerRights)
			s.scaleOperator(ctx, 0)
			s.ageLease(ctx)
		})
		result := s.expectBlamed(ctx, likely(diagnosis.CauseInitializerNotRunning, "namespaces/"+s.ns).
			saying(s.text("$id.init.example.com")).since("widget-operator"))
		s.finish(ctx, result)
	})

	It("waits for an initializer whose ServiceAccount is gone", func(ctx context.Context) {
		s := newBirth(ctx, func(s *scene) {
			s.createOperator(ctx)
			s.create(ctx, initializerRights)
			s.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
			(&scene{ns: s.text("$id-system")}).expectGone(ctx)
		})
		result := s.expectBlamed(ctx, confirmed(diagnosis.CauseInitializerNotRunning, "namespaces/"+s.ns).
			saying(s.text("$id.init.example.com")).since("widget-operator"))
		s.finish(ctx, result)
	})

	It("waits for an initializer that lives and does not act", func(ctx context.Context) {
		s := newBirth(ctx, func(s *scene) {
			s.createOperator(ctx)
			s.create(ctx, initializerRights)
		})
		result := s.expectBlamed(ctx, likely(diagnosis.CauseInitializerSlow, "namespaces/"+s.ns).
			saying(s.text("$id.init.example.com")).since("widget-operator"))
		s.finish(ctx, result)
	})

	It("waits for an initializer that is no longer registered", func(ctx context.Context) {
		s := newBirth(ctx, nil)
		s.delete(ctx, configuration)
		result := s.expectBlamed(ctx, confirmed(diagnosis.CauseInitializerUnregistered, "namespaces/"+s.ns).
			saying(s.text("$id.init.example.com")))
		s.finish(ctx, result)
	})

	It("is not blamed while it is young", func(ctx context.Context) {
		s := newBirth(ctx, nil)
		s.expectUnblamed(ctx, patient(time.Hour), 3*time.Second)
	})
})
