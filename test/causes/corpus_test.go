// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	known "github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// situation is what the controllers of the corpus do while namespaces are diagnosed.
type situation string

const (
	// situationRunning: the controllers run, but do and publish nothing.
	situationRunning situation = "running"
	// situationFailing: the controllers run, and publish why they cannot delete the object.
	situationFailing situation = "failing"
	// situationStopped: the workloads of the controllers are scaled to zero.
	situationStopped situation = "stopped"
	// situationUninstalled: of the controllers, only the CustomResourceDefinitions exist.
	situationUninstalled situation = "uninstalled"
)

// corpusCase is an object with a finalizer of a controller, in a namespace that is deleted.
type corpusCase struct {
	controller *known.Controller
	finalizer  string
	resource   known.Resource
	// failure is published on the object if it is not nil.
	failure   *known.Failure
	namespace string
}

// corpus is a cluster with all known controllers.
type corpus struct {
	client      client.Client
	collector   *collect.Collector
	controllers []known.Controller
	// owners are the names of the controllers that each workload, ServiceAccount and Lease belongs to,
	// by its namespace and name. Decoys belong to no controller.
	owners map[string][]string
}

// newCorpus starts a cluster and installs controllers in it.
func newCorpus(ctx context.Context, controllers []known.Controller) *corpus {
	GinkgoHelper()
	cluster := framework.StartControlPlane(ctx)
	cluster.Install(ctx, "default")
	// The manager finalizes the namespaces, but does not diagnose them.
	cluster.StartManager(ctx, func(o *nsmanager.Options) { o.DiagnosisProgressDeadline = time.Hour })
	c := &corpus{
		client:    framework.NewClient(cluster.ControlPlane.Admin, apiextensionsv1.AddToScheme),
		collector: newCollector(cluster.ControlPlane.Admin), controllers: controllers,
		owners: map[string][]string{},
	}
	c.install(ctx)
	return c
}

// cases returns a case for each controller with a finalizer on namespaced objects, or for each
// controller that publishes failures.
func (c *corpus) cases(isFailing bool) []corpusCase {
	var cases []corpusCase
	for i := range c.controllers {
		controller := &c.controllers[i]
		finalizer, resource, ok := exampleOf(controller)
		if !ok {
			continue
		}
		one := corpusCase{controller: controller, finalizer: finalizer, resource: resource}
		one.namespace = "quiet-" + slug(controller)
		if isFailing {
			failures := slices.DeleteFunc(slices.Clone(controller.Failures), func(failure known.Failure) bool {
				// The namespace controller deletes Events, and the diagnosis does not read the status of built-in types.
				return failure.IsEvent || isBuiltIn(resource)
			})
			if len(failures) == 0 {
				continue
			}
			one.failure = &failures[i%len(failures)]
			one.namespace = "failing-" + slug(controller)
		}
		cases = append(cases, one)
	}
	return cases
}

// exampleOf returns a finalizer of a controller and a namespaced type of objects with it.
func exampleOf(controller *known.Controller) (finalizer string, resource known.Resource, ok bool) {
	for _, finalizer := range controller.Finalizers {
		for _, resource := range finalizer.Resources {
			if !resource.ClusterScoped {
				name := finalizer.Name
				if name == "" {
					name = finalizer.Prefix + "example"
				}
				return name, resource, true
			}
		}
	}
	return "", known.Resource{}, false
}

// slug returns a name of a controller for objects.
func slug(controller *known.Controller) string {
	words := strings.FieldsFunc(strings.ToLower(controller.Name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	return strings.Trim(name[:min(len(name), 50)], "-")
}

// block creates the objects of all cases and requests the deletion of their namespaces. It waits until
// the namespace controller has found all objects.
func (c *corpus) block(ctx context.Context, cases []corpusCase) {
	GinkgoHelper()
	forEach(cases, func(one corpusCase) {
		c.createObject(ctx, one)
		namespace := &corev1.Namespace{}
		namespace.Name = one.namespace
		Expect(c.client.Delete(ctx, namespace)).To(Succeed())
	})
	forEach(cases, func(one corpusCase) {
		Eventually(func(g Gomega) {
			namespace := &corev1.Namespace{}
			g.Expect(c.client.Get(ctx, client.ObjectKey{Name: one.namespace}, namespace)).To(Succeed())
			g.Expect(namespace.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NamespaceFinalizersRemaining), HaveField("Status", corev1.ConditionTrue))))
		}).WithContext(ctx).Should(Succeed(), one.namespace)
	})
}

// diagnose diagnoses the namespaces of all cases and adds the results to a report.
func (c *corpus) diagnose(ctx context.Context, cases []corpusCase, in situation, report *corpusReport) {
	GinkgoHelper()
	By("diagnosing: " + string(in))
	forEach(cases, func(one corpusCase) {
		var found classification
		Eventually(func(g Gomega) {
			result, err := c.collector.Diagnose(ctx, one.namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Unread).To(BeEmpty())
			found = c.classify(&one, result)
			g.Expect(found.outcome).NotTo(Equal(outcomeNone), format(result))
		}).WithContext(ctx).WithPolling(progressDeadline).Should(Succeed(), one.namespace)
		report.add(&one, in, c.expectedOutcome(&one, in), found)
	})
}

// run diagnoses all cases in all situations.
func (c *corpus) run(ctx context.Context) *corpusReport {
	GinkgoHelper()
	report := &corpusReport{}
	quiet, failing := c.cases(false), c.cases(true)
	c.block(ctx, slices.Concat(quiet, failing))
	c.diagnose(ctx, quiet, situationRunning, report)
	c.diagnose(ctx, failing, situationFailing, report)
	c.stop(ctx)
	c.diagnose(ctx, quiet, situationStopped, report)
	c.uninstall(ctx)
	c.diagnose(ctx, quiet, situationUninstalled, report)
	return report
}

var _ = Describe("The corpus of known controllers", func() {
	DescribeTable("is diagnosed", func(ctx context.Context, controllers func() []known.Controller, hasFacts bool) {
		report := newCorpus(ctx, controllers()).run(ctx)
		AddReportEntry("confusion matrix", report.String())
		GinkgoWriter.Println(report.String())
		Expect(report.harmful()).To(BeEmpty())
		if hasFacts {
			Expect(report.wrong()).To(BeEmpty())
		}
	},
		Entry("if the diagnosis knows the controllers", known.All, true),
		// The data of the diagnosis contains none of the finalizers and API groups.
		Entry("if the diagnosis must infer the controllers", renamedControllers, false),
	)
})
