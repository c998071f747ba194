// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// minNamespaces is the number of namespaces that the traffic must create and delete.
const minNamespaces = 100

// disruption is a failure or a change that occurs during the traffic.
type disruption struct {
	name string
	do   func(ctx context.Context, managers *replicas)
}

var disruptions = []disruption{
	{"no disruption", func(context.Context, *replicas) {}},
	{"the leader is terminated", func(ctx context.Context, managers *replicas) {
		leader := managers.leader(ctx)
		leader.Terminate()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit(0))
	}},
	{"the leader is killed", func(ctx context.Context, managers *replicas) {
		leader := managers.leader(ctx)
		leader.Kill()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit())
	}},
	{"the API server is killed", func(ctx context.Context, _ *replicas) {
		Expect(plane.KillAPIServer(ctx)).To(Succeed())
		Expect(plane.StartAPIServer()).To(Succeed())
	}},
	// The API server is killed because clients keep their connections until the server closes them.
	{"the API server's certificate is replaced and the server is killed", func(ctx context.Context, _ *replicas) {
		before := servingCertificate(ctx, plane.Admin)
		Expect(authority.Rotate()).To(Succeed())
		Eventually(func() string { return servingCertificate(ctx, plane.Admin) }).
			WithContext(ctx).WithTimeout(2 * time.Minute).ShouldNot(Equal(before))
		Expect(plane.KillAPIServer(ctx)).To(Succeed())
		Expect(plane.StartAPIServer()).To(Succeed())
	}},
	{"a new version of CRDs, RBAC objects and policies is installed", func(ctx context.Context, _ *replicas) {
		upgrade(ctx)
	}},
}

var _ = Describe("Namespaces are created and deleted", func() {
	It("while managers, the API server, certificates and CRDs are disrupted", func(ctx context.Context) {
		managers := startReplicas(managerConfig(ctx), 2, "--leader-elect", "--metrics-bind-address=0")
		managers.leader(ctx)
		expectEnforced(ctx)
		namespaces := startTraffic(ctx, nil)
		var report strings.Builder
		for _, disruption := range disruptions {
			By(disruption.name)
			start := time.Now()
			disruption.do(ctx, managers)
			took := time.Since(start)
			initialized, removed := namespaces.recovery(ctx, start)
			fmt.Fprintf(&report, "%-68s took %5.1f s, next initialized after %5.1f s, next removed after %5.1f s\n",
				disruption.name, took.Seconds(), initialized.Seconds(), removed.Seconds())
		}
		// Continue the traffic after the last disruption.
		Eventually(namespaces.count).WithContext(ctx).Should(BeNumerically(">=", minNamespaces))
		namespaces.stop()
		AddReportEntry("recovery", report.String())
		namespaces.expectRemoved()
	}, SpecTimeout(8*time.Minute))
})

// expectEnforced waits until the initializers are injected, and makes the API server reject namespaces that it
// cannot inject them into.
func expectEnforced(ctx context.Context) {
	GinkgoHelper()
	cluster.ExpectActive(ctx, "chaos")
	if servesPolicies {
		// The manager would make this change later, depending on the age of the NamespaceInitializerSet.
		_, err := plane.Kubectl(ctx, plane.Admin, "patch", "mutatingadmissionpolicy", internalv1alpha1.InjectConfiguration,
			"--type=merge", `--patch={"spec":{"failurePolicy":"Fail"}}`)
		Expect(err).NotTo(HaveOccurred())
		return
	}
	expectFail(ctx)
}

// expectFail waits until API servers reject namespaces for which the webhook fails.
func expectFail(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		webhooks := &admissionv1.MutatingWebhookConfiguration{}
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, webhooks)).To(Succeed())
		g.Expect(webhooks.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}).WithContext(ctx).Should(Succeed())
}

// upgrade installs the manifests again, and changes each CRD as a new version would: it adds a
// printer column and a schema field.
func upgrade(ctx context.Context) {
	GinkgoHelper()
	Expect(plane.Install(ctx)).To(Succeed())
	var crds apiextensionsv1.CustomResourceDefinitionList
	Expect(admin.List(ctx, &crds)).To(Succeed())
	changed := 0
	for _, crd := range crds.Items {
		if !strings.HasSuffix(crd.Spec.Group, "nslifecycle.dev") {
			continue
		}
		before := crd.DeepCopy()
		version := &crd.Spec.Versions[0]
		version.AdditionalPrinterColumns = append(version.AdditionalPrinterColumns,
			apiextensionsv1.CustomResourceColumnDefinition{Name: "Next", Type: "string", JSONPath: ".next"})
		version.Schema.OpenAPIV3Schema.Properties["next"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		Expect(admin.Patch(ctx, &crd, client.MergeFrom(before))).To(Succeed())
		changed++
	}
	Expect(changed).To(Equal(3))
}

// servingCertificate returns the serial number of the certificate that the server presents to new
// connections.
func servingCertificate(ctx context.Context, config *rest.Config) string {
	GinkgoHelper()
	pool := x509.NewCertPool()
	Expect(pool.AppendCertsFromPEM(config.CAData)).To(BeTrue())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	connection, err := dialer.DialContext(ctx, "tcp", strings.Trim(strings.TrimPrefix(config.Host, "https:"), "/"))
	Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// step is a kind of write, such as "patch namespaces/status".
type step string

// stepOf returns the step of a request for a namespace or for its content, "" if it is no such write. The
// manager works without Events.
func stepOf(r *faults.Request, namespace string) step {
	if !r.IsWrite() || r.Namespace != namespace || r.Resource == "events" {
		return ""
	}
	name := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
		if strings.Contains(r.Body(), `"`+v1alpha1.AnnotationAppliedTemplates+`"`) {
			name += " with the applied templates"
		} else if strings.Contains(r.Body(), `"`+v1alpha1.ReasonInitialized+`"`) {
			name += " after the initialization"
		}
	}
	if r.ImpersonatedUser() != "" {
		name += " as the template's ServiceAccount"
	}
	return step(name)
}

// kills are the times, relative to a write, at which the manager is killed.
var kills = map[string]func(kill func()) faults.Fault{
	"before": faults.Abort,
	"after":  func(kill func()) faults.Fault { return faults.LoseResponse(faults.Abort(kill)) },
}

var _ = Describe("A manager that is killed", func() {
	It("before or after any write completes the initialization and the finalization after its restart", func(ctx context.Context) {
		s := startScenario(ctx, 1)
		steps := s.recordSteps(ctx)
		Expect(steps).To(ContainElements(step("patch namespaces/status"), step("patch namespaces/status with the applied templates"),
			step("patch namespaces/status after the initialization"), step("update namespaces/finalize"),
			step("patch configmaps as the template's ServiceAccount"), step("patch limitranges as the template's ServiceAccount"),
			step("delete pods"), step("delete configmaps")))
		var report strings.Builder
		for _, step := range steps {
			for _, when := range []string{"before", "after"} {
				By(fmt.Sprintf("killing the manager %s: %s", when, step))
				start := time.Now()
				s.killAt(ctx, step, kills[when])
				fmt.Fprintf(&report, "%-6s %-60s end state after %4.1f s\n", when, step, time.Since(start).Seconds())
			}
		}
		AddReportEntry("kills", report.String(), ReportEntryVisibilityAlways)
	}, SpecTimeout(15*time.Minute))
})

// recordSteps returns the steps of the lifecycle of a namespace, in their order.
func (s *scenario) recordSteps(ctx context.Context) []step {
	GinkgoHelper()
	name := framework.Unique("steps")
	var lock sync.Mutex
	var steps []step
	s.requests.Set(func(r *faults.Request) faults.Fault {
		lock.Lock()
		defer lock.Unlock()
		if step := stepOf(r, name); step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
		return nil
	})
	s.createAndDelete(ctx, name)
	s.requests.Set(nil)
	lock.Lock()
	defer lock.Unlock()
	return steps
}

// killAt kills the manager at the first write of a kind to a namespace that is created and deleted.
func (s *scenario) killAt(ctx context.Context, target step, at func(kill func()) faults.Fault) {
	GinkgoHelper()
	name, killed := framework.Unique("killed"), make(chan struct{})
	var once sync.Once
	s.requests.Set(func(r *faults.Request) (fault faults.Fault) {
		if stepOf(r, name) == target {
			once.Do(func() {
				fault = at(func() {
					session := s.managers.random()
					session.Kill()
					<-session.Exited
					close(killed)
				})
			})
		}
		return fault
	})
	s.createAndDelete(ctx, name)
	Eventually(killed).WithContext(ctx).Should(BeClosed())
	s.requests.Set(nil)
}

// createAndDelete creates a namespace with a template and content, and waits until it is initialized. Then it
// deletes the namespace and waits until it is removed.
func (s *scenario) createAndDelete(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := makeProvisioned(name)
	admin.Creates(ctx, namespace)
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
	}).WithContext(ctx).Should(Succeed())
	admin.Creates(ctx, wrappers.MakeConfigMap(name, "content"))
	admin.Creates(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "content"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	})
	admin.Deletes(ctx, namespace)
	framework.ExpectDeleted(ctx, admin, namespace)
}
