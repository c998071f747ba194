// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// provisioned is the label of the namespaces that contain the objects of the template.
	provisioned     = "chaos.example.com/provisioned"
	templateAccount = "provisioner"
	templateName    = "chaos"
	// keptNamespaces is the number of namespaces that exist during all faults.
	keptNamespaces = 5
	// templateInterval is the time between changes of the template.
	templateInterval = 2 * time.Second
	// convergence is the maximum time after the faults in which everything must reach its end state.
	convergence = time.Minute
	// waitTimeout is longer than convergence, so that a failure contains the actual time.
	waitTimeout = 5 * time.Minute
)

const template = `
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: chaos}
spec:
  namespaceSelector: {matchLabels: {chaos.example.com/provisioned: "yes"}}
  serviceAccountName: provisioner
  scope: AllNamespaces
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
      data: {change: "0"}
`

// scenario is a set of managers and of namespaces with a template.
type scenario struct {
	managers *replicas
	// requests and connections are between the managers and the API server.
	requests    *faults.HTTPProxy
	connections *faults.TCPProxy
	// admin uses the undisturbed API server.
	admin *framework.User
	kept  []*corev1.Namespace
	// change is the number of the last change of the template.
	change int
	// disturbed is the number of requests with a fault.
	disturbed atomic.Int64
}

func startScenario(ctx context.Context, managers int, flags ...string) *scenario {
	GinkgoHelper()
	s := &scenario{admin: undisturbed.As(cluster.Admin)}
	var err error
	s.requests, err = faults.StartHTTPProxy(plane.Admin)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.requests.Stop)
	config := s.requests.ConfigFor(managerConfig(ctx))
	s.connections, err = faults.StartTCPProxy(config.Host[len("https://"):])
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.connections.Stop)
	config.Host = "https://" + s.connections.Address()
	s.managers = startReplicas(config, managers, append(flags, "--metrics-bind-address=0")...)
	expectEnforced(ctx)
	s.createTemplate(ctx)
	expectInjected(ctx)
	return s
}

// createTemplate creates the template until the spec ends.
func (s *scenario) createTemplate(ctx context.Context) {
	GinkgoHelper()
	object := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict([]byte(template), object)).To(Succeed())
	s.admin.Creates(ctx, object)
	DeferCleanup(func(ctx context.Context) { Expect(s.admin.Delete(ctx, object)).To(Succeed()) })
}

// expectInjected waits until new namespaces wait for the template.
func expectInjected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := makeProvisioned("probe")
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
	}).WithContext(ctx).Should(Succeed())
}

func makeProvisioned(name string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label(provisioned, "yes").Obj()
}

// keep creates the namespaces that exist during all faults.
func (s *scenario) keep(ctx context.Context) {
	GinkgoHelper()
	for range keptNamespaces {
		namespace := makeProvisioned(framework.Unique("kept"))
		admin.Creates(ctx, namespace)
		s.kept = append(s.kept, namespace)
	}
	s.expectTemplate(ctx)
}

// changeTemplate changes an object in the template.
func (s *scenario) changeTemplate(ctx context.Context) error {
	object := &v1alpha1.NamespaceTemplate{}
	if err := admin.Get(ctx, client.ObjectKey{Name: templateName}, object); err != nil {
		return err
	}
	change := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"change":"%d"}}`, s.change+1)
	object.Spec.Objects[1].Template.Raw = []byte(change)
	if err := admin.Update(ctx, object); err != nil {
		return err
	}
	s.change++
	return nil
}

// expectTemplate waits until the kept namespaces contain the last change of the template.
func (s *scenario) expectTemplate(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, namespace := range s.kept {
			settings := &corev1.ConfigMap{}
			g.Expect(s.admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "settings"}, settings)).To(Succeed())
			g.Expect(settings.Data).To(HaveKeyWithValue("change", fmt.Sprint(s.change)))
		}
	}).WithContext(ctx).WithTimeout(waitTimeout).Should(Succeed())
}

// expectEndState ends the changes and the traffic, and waits until the last change reaches the kept namespaces
// and the other ones are removed. Then it removes the kept namespaces.
func (s *scenario) expectEndState(ctx context.Context, namespaces *traffic, stopChanges func(), since time.Time) {
	GinkgoHelper()
	By("waiting for the end state")
	stopChanges()
	Eventually(s.changeTemplate).WithContext(ctx).WithArguments(ctx).Should(Succeed())
	namespaces.stop()
	removed := time.Since(since)
	s.expectTemplate(ctx)
	updated := time.Since(since)
	namespaces.expectRemoved()
	Expect(max(removed, updated)).To(BeNumerically("<", convergence))
	for _, namespace := range s.kept {
		admin.Deletes(ctx, namespace)
	}
	for _, namespace := range s.kept {
		framework.ExpectDeleted(ctx, admin, namespace)
	}
	AddReportEntry("end state", fmt.Sprintf("%d namespaces removed, the last one %.1f s after the faults\n"+
		"last of %d changes of the template applied %.1f s after the faults\n%d disturbed requests, %d starts of managers",
		namespaces.count(), removed.Seconds(), s.change, updated.Seconds(), s.disturbed.Load(), s.managers.starts),
		ReportEntryVisibilityAlways)
}
