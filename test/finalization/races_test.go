// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// requestFor matches requests for a namespace or its content, except watch requests.
func requestFor(name, method, rest string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method == method && request.URL.Path == "/api/v1/namespaces/"+name+rest &&
			request.URL.Query().Get("watch") == ""
	}
}

var _ = Describe("A recreated namespace", func() {
	// initialState is the state of the old namespace when the manager starts.
	type initialState struct {
		held, empty, noNamespaceFinalizers bool
	}

	DescribeTable("keeps its content while a request for the old namespace is in flight:",
		func(ctx context.Context, old initialState, method, rest string, afterResponse bool, status int) {
			stopManager()
			replaced := unique("replaced")
			namespace := wrappers.MakeNamespace(replaced).Obj()
			create(ctx, namespace)
			names := []string{"a", "b", "c"}
			if !old.empty {
				create(ctx, makeConfigMaps(replaced, names...)...)
			}
			if old.held {
				create(ctx, withFinalizer(wrappers.MakeConfigMap(replaced, "held")))
				names = append(names, "held")
			}
			if old.noNamespaceFinalizers {
				finalize(ctx, replaced)
			}
			deleteObject(ctx, namespace)

			By("blocking the request")
			logged := captureLog()
			blocked := newRequestBlocker(requestFor(replaced, method, rest))
			blocked.afterResponse = afterResponse
			requests := &requestRecorder{}
			startManager(ctx, blocked.wrap(requests.record(managerConfig(ctx))), withGracePeriod(0))
			Eventually(blocked.arrived).WithContext(ctx).Should(BeClosed())

			By("recreating the namespace and its objects")
			removeAll(ctx, configMaps, replaced)
			if old.noNamespaceFinalizers {
				// Another DELETE request removes a terminating namespace that has no namespace
				// finalizers.
				Expect(client.IgnoreNotFound(admin.Delete(ctx, namespace))).To(Succeed())
			} else {
				finalize(ctx, replaced)
			}
			recreated := createAgain(ctx, replaced)
			Expect(recreated.UID).NotTo(Equal(namespace.UID))
			objects := makeConfigMaps(replaced, names...)
			create(ctx, objects...)

			By("unblocking the request")
			close(blocked.unblock)
			Eventually(blocked.responses).WithContext(ctx).Should(ContainElement(status))
			expectKept(ctx, append(objects, recreated)...)
			Expect(get(Default, ctx, replaced)).To(And(BeActive(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveNoFinalizationConditions()))
			for _, object := range objects {
				uid := object.GetUID()
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				Expect(object.GetUID()).To(Equal(uid))
			}
			Expect(logged.Contents()).NotTo(ContainSubstring("Reconciler error"), "the reconciliation must succeed")

			By("finalizing the recreated namespace after its deletion")
			deleteObject(ctx, recreated)
			expectDeleted(ctx, recreated)
			Expect(countOf(Default, ctx, configMaps, replaced)).To(BeZero())
		},
		Entry("a list of objects, before it is sent", initialState{}, "GET", "/configmaps", false, 200),
		Entry("a list of objects, after the response", initialState{}, "GET", "/configmaps", true, 200),
		Entry("a list of pods, before it is sent", initialState{}, "GET", "/pods", false, 200),
		Entry("the check of the namespace's UID, before it is sent", initialState{}, "GET", "", false, 200),
		Entry("the check of the namespace's UID, after the response", initialState{}, "GET", "", true, 200),
		Entry("the deletion of an object", initialState{}, "DELETE", "/configmaps/b", false, 409),
		Entry("the conditions", initialState{held: true}, "PATCH", "/status", false, 422),
		Entry("the removal of the namespace finalizer", initialState{}, "PUT", "/finalize", false, 409),
		Entry("the removal of the namespace finalizer from an empty namespace", initialState{empty: true},
			"PUT", "/finalize", false, 409),
		Entry("the addition of the namespace finalizer", initialState{noNamespaceFinalizers: true}, "PUT", "/finalize", false, 409),
	)
})

// foreign is a condition type that finalization does not use.
const foreign corev1.NamespaceConditionType = "example.com/Foreign"

// continuousWriter updates a namespace continuously.
type continuousWriter struct {
	name   string
	cancel context.CancelFunc
	done   chan error
	last   int // Valid only after stop has returned.
}

func (w *continuousWriter) finalizer(number int) corev1.FinalizerName {
	return corev1.FinalizerName(fmt.Sprintf("example.com/writer-%d", number))
}

// start starts a loop that increments a number and writes the number to an annotation, to a
// namespace finalizer through /finalize and to a condition through /status.
func (w *continuousWriter) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.done = make(chan error, 1)
	update := func(change func(*corev1.Namespace), write func(*corev1.Namespace) error) error {
		for {
			namespace := &corev1.Namespace{}
			if err := admin.Get(context.WithoutCancel(ctx), client.ObjectKey{Name: w.name}, namespace); err != nil {
				return err
			}
			change(namespace)
			err := write(namespace)
			if !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	background := context.WithoutCancel(ctx)
	go func() {
		defer close(w.done)
		for number := 1; ctx.Err() == nil; number++ {
			err := update(func(namespace *corev1.Namespace) {
				metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, "example.com/writer", fmt.Sprint(number))
			}, func(namespace *corev1.Namespace) error { return admin.Update(background, namespace) })
			if err == nil {
				err = update(func(namespace *corev1.Namespace) {
					kept := []corev1.FinalizerName{w.finalizer(number)}
					for _, finalizer := range namespace.Spec.Finalizers {
						if finalizer == corev1.FinalizerKubernetes {
							kept = append(kept, finalizer)
						}
					}
					namespace.Spec.Finalizers = kept
				}, func(namespace *corev1.Namespace) error {
					return admin.SubResource("finalize").Update(background, namespace)
				})
			}
			if err == nil {
				err = update(func(namespace *corev1.Namespace) {
					kept := []corev1.NamespaceCondition{}
					for _, condition := range namespace.Status.Conditions {
						if condition.Type != foreign {
							kept = append(kept, condition)
						}
					}
					namespace.Status.Conditions = append(kept, corev1.NamespaceCondition{
						Type: foreign, Status: corev1.ConditionUnknown, Reason: "Counted", Message: fmt.Sprint(number),
					})
				}, func(namespace *corev1.Namespace) error { return admin.Status().Update(background, namespace) })
			}
			if err != nil {
				w.done <- err
				return
			}
			w.last = number
		}
	}()
}

func (w *continuousWriter) stop() error {
	w.cancel()
	return <-w.done
}

func namespaceFinalizersOf(namespace *corev1.Namespace) []corev1.FinalizerName {
	return namespace.Spec.Finalizers
}

var _ = Describe("A namespace that another client updates continuously", func() {
	It("keeps all updates and is finalized", func(ctx context.Context) {
		namespace := createNamespace(ctx, "busy", "example.com/writer-0", corev1.FinalizerKubernetes)
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		observed := framework.WatchNamespace(ctx, plane.Admin, namespace)
		busy := &continuousWriter{name: namespace.Name}
		busy.start(ctx)
		stop := sync.OnceValue(busy.stop)
		DeferCleanup(func() { _ = stop() })

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		removeFinalizers(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, Not(WithTransform(namespaceFinalizersOf, ContainElement(corev1.FinalizerKubernetes))))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveContentRemoved())
		eventuallyNamespace(ctx, namespace.Name, WithTransform(func(now *corev1.Namespace) (int, error) {
			return strconv.Atoi(now.Annotations["example.com/writer"])
		}, BeNumerically(">", 20)))
		Expect(stop()).To(Succeed())
		AddReportEntry("updates by the writer", busy.last)

		last := fmt.Sprint(busy.last)
		end := get(Default, ctx, namespace.Name)
		Expect(end).To(And(BeTerminating(), HaveNamespaceFinalizers(busy.finalizer(busy.last)), HaveContentRemoved(),
			HaveCondition(foreign, corev1.ConditionUnknown, "Counted", last)))
		Expect(end.Annotations).To(HaveKeyWithValue("example.com/writer", last))

		By("checking that no update was reverted")
		Eventually(func() string {
			states := observed.States()
			return states[len(states)-1].ResourceVersion
		}).WithContext(ctx).Should(Equal(end.ResourceVersion))
		highest := map[string]int{}
		wasRemoved := false
		for _, state := range observed.States() {
			numbers := map[string]string{"annotation": state.Annotations["example.com/writer"]}
			for _, condition := range state.Status.Conditions {
				if condition.Type == foreign {
					numbers["condition"] = condition.Message
				}
			}
			text, ok := strings.CutPrefix(string(state.Spec.Finalizers[0]), "example.com/writer-")
			Expect(ok).To(BeTrue(), "the writer's namespace finalizer is not the first entry of %v", state.Spec.Finalizers)
			numbers["finalizer"] = text
			for what, text := range numbers {
				number := 0
				_, _ = fmt.Sscan(text, &number) // The condition contains no number before the first update.
				Expect(number).To(BeNumerically(">=", highest[what]), "%s in %v", what, state)
				highest[what] = number
			}
			hasFinalizer := HaveNamespaceFinalizers(state.Spec.Finalizers[0], corev1.FinalizerKubernetes)
			if ok, _ := hasFinalizer.Match(state); ok {
				Expect(wasRemoved).To(BeFalse(), "the namespace finalizer was restored")
			} else {
				wasRemoved = true
			}
		}
		Expect(highest).To(Equal(map[string]int{"annotation": busy.last, "finalizer": busy.last, "condition": busy.last}))
		finalize(ctx, namespace.Name)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A namespace that is updated just before its namespace finalizer is removed", func() {
	It("keeps the update", func(ctx context.Context) {
		const late corev1.FinalizerName = "example.com/late"
		stopManager()
		namespace := createNamespace(ctx, "late")
		deleteObject(ctx, namespace)
		blocked := newRequestBlocker(requestFor(namespace.Name, "PUT", "/finalize"))
		startManager(ctx, blocked.wrap(managerConfig(ctx)), withGracePeriod(0))
		Eventually(blocked.arrived).WithContext(ctx).Should(BeClosed())

		By("updating the namespace while the request is in flight")
		finalize(ctx, namespace.Name, corev1.FinalizerKubernetes, late)
		live := get(Default, ctx, namespace.Name)
		live.Status.Conditions = append(live.Status.Conditions, corev1.NamespaceCondition{
			Type: foreign, Status: corev1.ConditionUnknown, Reason: "Late",
		})
		Expect(admin.Status().Update(ctx, live)).To(Succeed())
		live.Labels = map[string]string{"example.com/late": "yes"}
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, "example.com/late", "yes")
		Expect(admin.Update(ctx, live)).To(Succeed())

		close(blocked.unblock)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(late))
		Eventually(blocked.responses).WithContext(ctx).Should(HaveExactElements(http.StatusConflict, http.StatusOK))
		end := get(Default, ctx, namespace.Name)
		Expect(end).To(HaveCondition(foreign, corev1.ConditionUnknown, "Late"))
		Expect(end.Labels).To(HaveKeyWithValue("example.com/late", "yes"))
		Expect(end.Annotations).To(HaveKeyWithValue("example.com/late", "yes"))
		finalize(ctx, namespace.Name)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))
})
