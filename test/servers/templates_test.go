// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	templateLabel   = "test.example.com/provisioned"
	templateAccount = "provisioner"
)

const template = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: servers}
spec:
  serviceAccountName: provisioner
  objects:
  - name: limits
    template:
      apiVersion: v1
      kind: LimitRange
      metadata: {name: limits}
      spec: {limits: [{type: Container, default: {memory: 64Mi}}]}
  - name: settings
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: settings}
      data: {namespace: "${ns.name}"}
`

var _ = Describe("A template that is applied through one API server", Serial, func() {
	DescribeTable("is complete before a user can write through the other one",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			labelValue := createTemplate(ctx)
			delayed.start(latency)
			all := &results{}
			var group sync.WaitGroup
			for range rounds {
				creator, _ := inOrder(latency)
				name := framework.Unique("provisioned")
				creator.create(ctx, wrappers.MakeNamespace(name).Label(templateLabel, labelValue).Obj())
				group.Go(func() {
					defer GinkgoRecover()
					responses := &results{}
					for responses.count(accepted) == 0 && ctx.Err() == nil {
						responses.add("create", operations(b.ordinary, name)["create"](ctx))
					}
					for _, object := range []func() error{
						func() error {
							_, err := a.admin.CoreV1().LimitRanges(name).Get(ctx, "limits", metav1.GetOptions{})
							return err
						},
						func() error {
							_, err := a.admin.CoreV1().ConfigMaps(name).Get(ctx, "settings", metav1.GetOptions{})
							return err
						},
					} {
						Expect(object()).To(Succeed(), "the first write was accepted before the template was applied")
					}
					all.merge(responses)
				})
				if random.IntN(4) == 0 {
					group.Wait()
				}
			}
			group.Wait()
			report("writes to %d namespaces of a template: %s", rounds, all)
			Expect(all.count(accepted)).To(Equal(rounds))
			// A request that is late can arrive after the initialization.
			if latency == noLatency {
				Expect(all.count(string(metav1.StatusReasonForbidden))).To(BeNumerically(">", 0))
			}
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 20, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 500, path{}, noLatency),
		Entry(late(etcdPath), SpecTimeout(specTimeout), 10, etcdPath, 300*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 10, namespacesPath, 300*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 10, membersPath, 300*time.Millisecond),
	)
})

// createTemplate creates the template, and waits until all API servers select new namespaces with it. It returns the
// value of the label of these namespaces, which is unique: an API server that is late can still read the template of
// an earlier spec. The template exists until the spec ends.
func createTemplate(ctx context.Context) (labelValue string) {
	GinkgoHelper()
	labelValue = framework.Unique("template")
	object := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict([]byte(template), object)).To(Succeed())
	object.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{templateLabel: v1alpha1.LabelValue(labelValue)},
	}
	cluster.CreateTemplate(ctx, object)
	for _, s := range all {
		Eventually(func(g Gomega) {
			probe, err := s.ordinary.CoreV1().Namespaces().Create(ctx, wrappers.MakeNamespace("probe").Label(templateLabel, labelValue).Obj(),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(framework.PendingOf(probe)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
		}).WithContext(ctx).Should(Succeed())
	}
	return labelValue
}
