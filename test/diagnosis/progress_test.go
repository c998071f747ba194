// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// expectNoFindingsUntilDeleted diagnoses the namespace repeatedly until it no longer exists, and
// expects no findings. It returns the number of diagnoses.
func (f *fixture) expectNoFindingsUntilDeleted(ctx context.Context, collector *collect.Collector) int {
	GinkgoHelper()
	diagnoses := 0
	Eventually(func(g Gomega) bool {
		facts, err := collector.Collect(ctx, f.ns)
		if apierrors.IsNotFound(err) {
			return true
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.Unread).To(BeEmpty())
		diagnoses++
		if result := rules.Diagnose(facts); len(result.Findings) > 0 {
			StopTrying("unexpected finding").Attach("findings", format(result)).Now()
		}
		return false
	}).WithContext(ctx).WithTimeout(4 * time.Minute).Should(BeTrue())
	return diagnoses
}

func newCollectorWithDeadline(deadline time.Duration) *collect.Collector {
	GinkgoHelper()
	result := newCollector(cluster.Admin.Config)
	result.ProgressDeadline = deadline
	return result
}

var _ = Describe("A healthy namespace", func() {
	It("results in a NotFound error if it does not exist", func(ctx context.Context) {
		_, err := collector.Collect(ctx, "does-not-exist")
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	// Long: this spec creates hundreds of CustomResourceDefinitions.
	It("is diagnosed within 10 s in a cluster with 300 additional resource types", Label("long"), func(ctx context.Context) {
		const extra = 300
		for range extra {
			makeFixture().create(ctx, definition)
		}
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		f.deleteNamespace(ctx)
		types := 0
		Eventually(func(g Gomega) {
			facts, err := collector.Collect(ctx, f.ns)
			g.Expect(err).NotTo(HaveOccurred())
			types = len(facts.ResourceTypes.Types)
			g.Expect(types).To(BeNumerically(">", extra))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())

		immediate := newCollectorWithDeadline(0)
		for range 5 {
			begin := time.Now()
			result := f.diagnose(Default, ctx, immediate)
			took := time.Since(begin)
			AddReportEntry("time", fmt.Sprintf("%d types: %s", types, took.Round(time.Millisecond)), ReportEntryVisibilityAlways)
			Expect(result.Findings).To(ConsistOf(HaveField("Cause", diagnosis.CauseFinalizerOwnerNotFound)))
			Expect(took).To(BeNumerically("<", 10*time.Second))
		}
	})

	It("has no findings while it is active", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps+"---\n"+heldConfigMap)
		f.expectNoFindings(ctx, collector, time.Second)
		result := f.diagnose(Default, ctx, collector)
		Expect(result.Result).To(Equal(diagnosis.Healthy))
		Expect(result.State).To(Equal(diagnosis.StateInitialized))
	})

	It("has no findings while its deletion makes progress", func(ctx context.Context) {
		f := newFixture(ctx)
		for i := range 200 {
			f.create(ctx, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: plain-%d}}`, i))
		}
		f.delete(ctx, f.manifest())
		Expect(f.expectNoFindingsUntilDeleted(ctx, newCollectorWithDeadline(diagnosis.DefaultProgressDeadline))).To(BeNumerically(">", 0))
	})

	It("has no findings before the progress deadline", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectTerminating(ctx, pod)
		patient := newCollectorWithDeadline(time.Hour)
		f.expectNoFindings(ctx, patient, 4*time.Second)
		result := f.diagnose(Default, ctx, patient)
		Expect(result.Result).To(Equal(diagnosis.Progressing))
		Expect(result.Summary).To(ContainSubstring("1 configmaps"))
		f.forceDeletePod(ctx)
	})
})

// finalizerRemover removes the finalizer of one object before each list request, so that the two lists
// of a diagnosis always differ.
type finalizerRemover struct {
	*fixture
	next      http.RoundTripper
	remaining chan *unstructured.Unstructured
}

// RoundTrip implements http.RoundTripper.
func (r *finalizerRemover) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/namespaces/"+r.ns+"/configmaps") {
		select {
		case object := <-r.remaining:
			if err := tryRemoveFinalizers(request.Context(), object); err != nil {
				return nil, err
			}
		default:
		}
	}
	return r.next.RoundTrip(request)
}

var _ = Describe("A namespace with a slow deletion", func() {
	It("has no findings while finalizers are removed one by one", func(ctx context.Context) {
		const count = 16
		f := newFixture(ctx)
		remaining := make(chan *unstructured.Unstructured, count)
		for i := range count {
			remaining <- f.create(ctx, makeHeld(fmt.Sprintf("held-%d", i)))[0]
		}
		config := rest.CopyConfig(cluster.Admin.Config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &finalizerRemover{f, next, remaining} })
		f.deleteNamespace(ctx)
		collector := newCollector(config)
		for len(remaining) > 0 {
			result := f.diagnose(Default, ctx, collector)
			Expect(result.Findings).To(BeEmpty(), format(result))
		}
		f.expectDeleted(ctx)
	})
})

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
	Entry("without a controller", nothing, nothing, inferred(diagnosis.CauseInitializerNotRunning)),
	Entry("that is not running", func(ctx context.Context, f *fixture) {
		f.createInitializer(ctx)
		f.scaleOperator(ctx, 0)
		f.expireLease(ctx)
	}, nothing, inferred(diagnosis.CauseInitializerNotRunning).withEvidence("widget-operator")),
	Entry("whose ServiceAccount is deleted", func(ctx context.Context, f *fixture) {
		f.createInitializer(ctx)
		f.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
		(&fixture{ns: f.text("$id-system")}).expectDeleted(ctx)
	}, nothing, inferred(diagnosis.CauseInitializerNotRunning).withEvidence("widget-operator")),
	Entry("that published why it is not done", nothing, func(ctx context.Context, f *fixture) {
		f.publishOnNamespace(ctx, f.text("$id.init.example.com/Initialized"), "NoPlan", "ConfigMap plans/default is missing")
	}, published(diagnosis.CauseInitializerFailing).withMessage("NoPlan: ConfigMap plans/default is missing")),
	Entry("that is running but makes no progress", func(ctx context.Context, f *fixture) {
		f.createInitializer(ctx)
	}, nothing, inferred(diagnosis.CauseInitializerSlow).withEvidence("widget-operator")),
	Entry("that is no longer registered", nothing, func(ctx context.Context, f *fixture) {
		stopManager() // It would skip the initializer.
		f.delete(ctx, configuration)
	}, proven(diagnosis.CauseInitializerNotRegistered)),
)

func nothing(context.Context, *fixture) {}

// createInitializer creates a controller that may initialize namespaces.
func (f *fixture) createInitializer(ctx context.Context) {
	GinkgoHelper()
	f.createOperator(ctx)
	f.create(ctx, initializerRBAC)
}

var _ = Describe("An initializing namespace", func() {
	It("has no findings before the progress deadline", func(ctx context.Context) {
		f := newInitializingFixture(ctx, nothing)
		f.expectNoFindings(ctx, newCollectorWithDeadline(time.Hour), 3*time.Second)
	})
})
