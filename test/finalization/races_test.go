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

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// requestFor matches requests for a namespace or something in it, watches aside.
func requestFor(name, method, rest string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method == method && request.URL.Path == "/api/v1/namespaces/"+name+rest &&
			request.URL.Query().Get("watch") == ""
	}
}

var _ = Describe("A recreated namespace", func() {
	// begin is what the old namespace is like when the manager comes.
	type begin struct {
		held, empty, noTokens bool
	}

	DescribeTable("keeps its content while a request for the old namespace is in flight:",
		func(ctx context.Context, old begin, method, rest string, afterwards bool, status int) {
			stopManager()
			replaced := unique("replaced")
			namespace := wrappers.MakeNamespace(replaced).Obj()
			create(ctx, namespace)
			names := []string{"a", "b", "c"}
			if !old.empty {
				create(ctx, settings(replaced, names...)...)
			}
			if old.held {
				create(ctx, hold(wrappers.MakeConfigMap(replaced, "held")))
				names = append(names, "held")
			}
			if old.noTokens {
				finalize(ctx, replaced)
			}
			deleteObject(ctx, namespace)

			By("holding the request")
			logged := captureLog()
			held := newGate(requestFor(replaced, method, rest))
			held.afterwards = afterwards
			requests := &writes{}
			startOther(ctx, held.guard(requests.record(managerConfig(ctx))), withSettlingTime(0))
			Eventually(held.arrived).WithContext(ctx).Should(BeClosed())

			By("replacing the namespace and its objects meanwhile")
			removeAll(ctx, configMaps, replaced)
			if old.noTokens {
				// A namespace without tokens goes with the next DELETE.
				Expect(client.IgnoreNotFound(admin.Delete(ctx, namespace))).To(Succeed())
			} else {
				finalize(ctx, replaced)
			}
			again := createAgain(ctx, replaced)
			Expect(again.UID).NotTo(Equal(namespace.UID))
			objects := settings(replaced, names...)
			create(ctx, objects...)

			By("letting the request go on")
			close(held.opened)
			Eventually(held.answers).WithContext(ctx).Should(ContainElement(status))
			expectKept(ctx, append(objects, again)...)
			Expect(get(Default, ctx, replaced)).To(And(BeActive(), HaveTokens(kubernetesToken), HaveNoVerdict()))
			for _, object := range objects {
				uid := object.GetUID()
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				Expect(object.GetUID()).To(Equal(uid))
			}
			Expect(logged.Contents()).NotTo(ContainSubstring("Reconciler error"), "nothing went wrong")

			By("ending the new one as any other when it is deleted")
			deleteObject(ctx, again)
			expectGone(ctx, again)
			Expect(countOf(Default, ctx, configMaps, replaced)).To(BeZero())
		},
		Entry("a list of objects, not sent yet", begin{}, "GET", "/configmaps", false, 200),
		Entry("a list of objects, answered already", begin{}, "GET", "/configmaps", true, 200),
		Entry("a list of pods, the first that counts", begin{}, "GET", "/pods", false, 200),
		Entry("the confirmation that it is still the same, not sent yet", begin{}, "GET", "", false, 200),
		Entry("the confirmation that it is still the same, answered already", begin{}, "GET", "", true, 200),
		Entry("the deletion of an object", begin{}, "DELETE", "/configmaps/b", false, 409),
		Entry("the conditions", begin{held: true}, "PATCH", "/status", false, 422),
		Entry("the removal of the namespace finalizer", begin{}, "PUT", "/finalize", false, 409),
		Entry("the removal of the namespace finalizer from an empty namespace", begin{empty: true},
			"PUT", "/finalize", false, 409),
		Entry("the final deletion", begin{empty: true, noTokens: true}, "DELETE", "", false, 409),
	)
})

// foreign is a condition that has nothing to do with finalization.
const foreign corev1.NamespaceConditionType = "example.com/Foreign"

// restlessWriter writes to a namespace all the time, as fast as it can.
type restlessWriter struct {
	name   string
	cancel context.CancelFunc
	done   chan error
	last   int // valid after stop
}

func (w *restlessWriter) token(number int) corev1.FinalizerName {
	return corev1.FinalizerName(fmt.Sprintf("example.com/writer-%d", number))
}

// start writes an annotation with PUT, a token with PUT to /finalize and a condition with
// PUT to /status, each with the same number, one after the other.
func (w *restlessWriter) start(ctx context.Context) {
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
					kept := []corev1.FinalizerName{w.token(number)}
					for _, token := range namespace.Spec.Finalizers {
						if token == kubernetesToken {
							kept = append(kept, token)
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

func (w *restlessWriter) stop() error {
	w.cancel()
	return <-w.done
}

func tokensOf(namespace *corev1.Namespace) []corev1.FinalizerName { return namespace.Spec.Finalizers }

var _ = Describe("A namespace that another client updates continuously", func() {
	It("keeps these updates and is finalized", func(ctx context.Context) {
		namespace := createNamespace(ctx, "busy", "example.com/writer-0", kubernetesToken)
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		past := watchNamespace(context.WithoutCancel(ctx), namespace)
		busy := &restlessWriter{name: namespace.Name}
		busy.start(ctx)
		stop := sync.OnceValue(busy.stop)
		DeferCleanup(func() { _ = stop() })

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		begin := time.Now()
		release(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, Not(WithTransform(tokensOf, ContainElement(kubernetesToken))))
		AddReportEntry("time to the release", time.Since(begin).String())
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNothingLeft())
		eventuallyNamespace(ctx, namespace.Name, WithTransform(func(now *corev1.Namespace) (int, error) {
			return strconv.Atoi(now.Annotations["example.com/writer"])
		}, BeNumerically(">", 20)))
		Expect(stop()).To(Succeed())
		AddReportEntry("rounds of the writer", busy.last)

		last := fmt.Sprint(busy.last)
		end := get(Default, ctx, namespace.Name)
		Expect(end).To(And(BeTerminating(), HaveTokens(busy.token(busy.last)), HaveNothingLeft(),
			HaveCondition(foreign, corev1.ConditionUnknown, "Counted", last)))
		Expect(end.Annotations).To(HaveKeyWithValue("example.com/writer", last))

		By("never having gone back")
		Eventually(func() string {
			states := past.states()
			return states[len(states)-1].ResourceVersion
		}).WithContext(ctx).Should(Equal(end.ResourceVersion))
		highest := map[string]int{}
		wasReleased := false
		for _, state := range past.states() {
			numbers := map[string]string{"annotation": state.Annotations["example.com/writer"]}
			for _, condition := range state.Status.Conditions {
				if condition.Type == foreign {
					numbers["condition"] = condition.Message
				}
			}
			text, isWriters := strings.CutPrefix(string(state.Spec.Finalizers[0]), "example.com/writer-")
			Expect(isWriters).To(BeTrue(), "the writer's namespace finalizer in %v", state.Spec.Finalizers)
			numbers["token"] = text
			for what, text := range numbers {
				number := 0
				_, _ = fmt.Sscan(text, &number) // none before the first
				Expect(number).To(BeNumerically(">=", highest[what]), "%s in %v", what, state)
				highest[what] = number
			}
			hasToken := HaveTokens(state.Spec.Finalizers[0], kubernetesToken)
			if isHeld, _ := hasToken.Match(state); isHeld {
				Expect(wasReleased).To(BeFalse(), "the namespace finalizer was restored")
			} else {
				wasReleased = true
			}
		}
		Expect(highest).To(Equal(map[string]int{"annotation": busy.last, "token": busy.last, "condition": busy.last}))
		finalize(ctx, namespace.Name)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A namespace that is updated just before its namespace finalizer is removed", func() {
	It("keeps the update", func(ctx context.Context) {
		const late corev1.FinalizerName = "example.com/late"
		stopManager()
		namespace := createNamespace(ctx, "late")
		deleteObject(ctx, namespace)
		held := newGate(requestFor(namespace.Name, "PUT", "/finalize"))
		startOther(ctx, held.guard(managerConfig(ctx)), withSettlingTime(0))
		Eventually(held.arrived).WithContext(ctx).Should(BeClosed())

		By("writing while the release is on its way")
		finalize(ctx, namespace.Name, kubernetesToken, late)
		live := get(Default, ctx, namespace.Name)
		live.Status.Conditions = append(live.Status.Conditions, corev1.NamespaceCondition{
			Type: foreign, Status: corev1.ConditionUnknown, Reason: "Late",
		})
		Expect(admin.Status().Update(ctx, live)).To(Succeed())
		live.Labels = map[string]string{"example.com/late": "yes"}
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, "example.com/late", "yes")
		Expect(admin.Update(ctx, live)).To(Succeed())

		close(held.opened)
		eventuallyNamespace(ctx, namespace.Name, HaveTokens(late))
		Eventually(held.answers).WithContext(ctx).Should(HaveExactElements(http.StatusConflict, http.StatusOK))
		end := get(Default, ctx, namespace.Name)
		Expect(end).To(HaveCondition(foreign, corev1.ConditionUnknown, "Late"))
		Expect(end.Labels).To(HaveKeyWithValue("example.com/late", "yes"))
		Expect(end.Annotations).To(HaveKeyWithValue("example.com/late", "yes"))
		finalize(ctx, namespace.Name)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))
})
