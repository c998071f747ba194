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

// expectUnblamedUntilGone diagnoses the namespace until it has gone, and expects that
// nothing is ever blamed. It returns how often it has looked.
func (s *scene) expectUnblamedUntilGone(ctx context.Context, from *collect.Collector) int {
	GinkgoHelper()
	looks := 0
	Eventually(func(g Gomega) bool {
		facts, err := from.Collect(ctx, s.ns)
		if apierrors.IsNotFound(err) {
			return true
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.Unread).To(BeEmpty())
		looks++
		if result := rules.Diagnose(facts); len(result.Findings) > 0 {
			StopTrying("something is blamed").Attach("findings", show(result)).Now()
		}
		return false
	}).WithContext(ctx).WithTimeout(4 * time.Minute).Should(BeTrue())
	return looks
}

// patient is a Gatherer with other patience than the suite's.
func patient(patience time.Duration) *collect.Collector {
	GinkgoHelper()
	result := newGatherer(plane.Admin)
	result.ProgressDeadline = patience
	return result
}

var _ = Describe("A healthy namespace", func() {
	It("is not blamed while it is in use", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, settings+"---"+heldSettings)
		s.expectUnblamed(ctx, gatherer, time.Second)
		Expect(s.diagnose(Default, ctx, gatherer).State).To(Equal(diagnosis.Healthy))
	})

	It("is not blamed while it goes", func(ctx context.Context) {
		s := newScene(ctx)
		for i := range 200 {
			s.create(ctx, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: plain-%d}}`, i))
		}
		s.delete(ctx, s.manifest())
		Expect(s.expectUnblamedUntilGone(ctx, patient(diagnosis.DefaultProgressDeadline))).To(BeNumerically(">", 0))
	})

	It("is not blamed while it is young, whatever holds it", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, heldSettings)
		s.create(ctx, pod)
		s.end(ctx)
		s.expectThere(ctx, pod, true)
		s.expectUnblamed(ctx, patient(time.Hour), 4*time.Second)
		s.endPod(ctx)
	})
})

// releasing takes the finalizer off one of the scene's objects before each look at them, so
// that no two looks see the same.
type releasing struct {
	*scene
	next http.RoundTripper
	left chan *unstructured.Unstructured
}

// RoundTrip is that of the next one.
func (r *releasing) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/namespaces/"+r.ns+"/configmaps") {
		select {
		case object := <-r.left:
			if err := tryRelease(request.Context(), object); err != nil {
				return nil, err
			}
		default:
		}
	}
	return r.next.RoundTrip(request)
}

var _ = Describe("A slow namespace", func() {
	It("is not blamed while finalizers are taken off one by one", func(ctx context.Context) {
		const count = 16
		s := newScene(ctx)
		left := make(chan *unstructured.Unstructured, count)
		for i := range count {
			left <- s.create(ctx, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: held-%d, finalizers: [`+testFinalizer+`]}}
`, i))[0]
		}
		config := rest.CopyConfig(plane.Admin)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &releasing{s, next, left} })
		s.end(ctx)
		from := newGatherer(config)
		for len(left) > 0 {
			result := s.diagnose(Default, ctx, from)
			Expect(result.Findings).To(BeEmpty(), show(result))
		}
		s.expectGone(ctx)
	})
})
