// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/faults"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

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
		if strings.Contains(r.Body(), `"`+v1alpha1.AnnotationTemplates+`"`) {
			name += " with the applied templates"
		} else if strings.Contains(r.Body(), `"`+v1alpha1.ReasonCompleted+`"`) {
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
	namespace := makeFurnished(name)
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
	}).WithContext(ctx).Should(Succeed())
	Expect(admin.Create(ctx, wrappers.MakeConfigMap(name, "content"))).To(Succeed())
	Expect(admin.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "content"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	})).To(Succeed())
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
	framework.ExpectDeleted(ctx, admin, namespace)
}
