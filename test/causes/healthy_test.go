// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

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

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
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
	result := newCollector(plane.Admin)
	result.ProgressDeadline = deadline
	return result
}

var _ = Describe("A healthy namespace", func() {
	It("has no findings while it is active", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps+"---"+heldConfigMap)
		f.expectNoFindings(ctx, collector, time.Second)
		Expect(f.diagnose(Default, ctx, collector).State).To(Equal(diagnosis.Healthy))
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
		f.expectNoFindings(ctx, newCollectorWithDeadline(time.Hour), 4*time.Second)
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
			remaining <- f.create(ctx, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: held-%d, finalizers: [`+testFinalizer+`]}}
`, i))[0]
		}
		config := rest.CopyConfig(plane.Admin)
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
