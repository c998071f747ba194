// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A write to an initializing namespace", func() {
	It("is rejected with a Retry-After if the initialization takes longer", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "long")
		got := createTimedOut(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(apierrors.IsTooManyRequests(got.Err)).To(BeTrue(), "%v", got.Err)
		seconds, ok := apierrors.SuggestsClientDelay(got.Err)
		Expect(ok).To(BeTrue())
		Expect(seconds).To(Equal(1))
		Expect(got.Err).To(MatchError(ContainSubstring("absent.test.example.com")))
	})

	It("is rejected at once with the reason if the initialization fails", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "failed")
		held := startCreate(ctx, cluster.Ordinary, namespace.Name, "web")
		annotate(ctx, namespace.Name, map[string]string{
			v1alpha1.AnnotationInitializationResult: `{"status":"Failure","reason":"NoRoom","message":"the cluster is full"}`,
		})
		Expect(expectEnded(ctx, held)).To(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("NoRoom: the cluster is full"))))

		By("rejecting a later write with the reason or because the namespace is deleted")
		// The client repeats a write that arrives when the webhook has observed the deletion and the API server has not.
		err := cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))
		Expect(err).To(MatchError(Or(ContainSubstring("NoRoom"), ContainSubstring("terminated"), ContainSubstring("not found"))))
	})

	It("ends at once if the namespace is deleted", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "deleted")
		held := startCreate(ctx, cluster.Ordinary, namespace.Name, "web")
		cluster.Admin.Deletes(ctx, namespace)
		Expect(expectEnded(ctx, held)).To(Satisfy(apierrors.IsTooManyRequests))
		err := cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))
		Expect(apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)).
			To(BeTrue(), "%v", err)
	})

	It("is not held if the user holds the initialize verb or the provision verb", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "holder")
		provisioner := cluster.AddUser(ctx, framework.Unique("provisioner"), []string{"create", v1alpha1.VerbProvision})
		for _, user := range []*framework.User{cluster.Initializer, provisioner} {
			// The API server needs some time to recognize the permissions of a new user.
			Eventually(func() result {
				return createOnce(ctx, user, namespace.Name, framework.Unique("web"))
			}).WithContext(ctx).Should(
				And(HaveField("Err", Succeed()), HaveField("Duration", BeNumerically("<", options.Duration))))
		}
	})

	It("is held if it is a dry run, a DELETE or an Event of a user", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "kinds")
		cluster.Initializer.Creates(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))
		writes := []func() error{
			func() error {
				return cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "api"), client.DryRunAll)
			},
			func() error { return cluster.Ordinary.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "web")) },
			func() error {
				return cluster.Ordinary.Create(ctx, &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: "web", Namespace: namespace.Name},
					InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace.Name, Name: "web"},
				})
			},
		}
		results := make(chan error, len(writes))
		for _, write := range writes {
			go func() { results <- write() }()
		}
		Eventually(heldWrites).WithContext(ctx).Should(BeEquivalentTo(len(writes)))
		Expect(results).NotTo(Receive())
		cluster.Finish(ctx, namespace.Name)
		for range writes {
			Eventually(results).WithContext(ctx).Should(Receive(BeNil()))
		}
	})

	It("is sent again to another replica when the manager stops", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "stopped")
		held := startCreate(ctx, cluster.Ordinary, namespace.Name, "web")
		cluster.StopManager()
		DeferCleanup(restartManager)
		Expect(expectEnded(ctx, held)).To(Satisfy(apierrors.IsTooManyRequests))

		By("rejecting writes as without webhooks while no manager runs")
		got := createOnce(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Err).To(MatchError(ContainSubstring("nslifecycle-gate")))
	})
})

var _ = Describe("The number of held writes", func() {
	It("is limited for each user, and a canceled request does not count", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "limited")
		other := cluster.AddUser(ctx, otherUser, framework.VerbsButInitialize)
		// The caches contain the namespace when a first write is held.
		known, forget := context.WithCancel(ctx)
		startCreate(known, cluster.Ordinary, namespace.Name, "known")
		forget()
		Eventually(heldWrites).WithContext(ctx).Should(BeZero())
		canceled, cancel := context.WithCancel(ctx)
		var held []<-chan result
		for i := range 5 { // At the same time: each is held only for a limited time.
			done := make(chan result, 1)
			go func() { done <- createOnce(canceled, cluster.Ordinary, namespace.Name, fmt.Sprint(i)) }()
			held = append(held, done)
		}
		Eventually(heldWrites).WithContext(ctx).Should(BeEquivalentTo(5))
		got := createOnce(ctx, cluster.Ordinary, namespace.Name, "over")
		Expect(apierrors.IsTooManyRequests(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Err).To(MatchError(ContainSubstring("too many writes")))
		Expect(got.Duration).To(BeNumerically("<", options.Duration))

		By("holding a write of another user")
		held = append(held, startCreate(canceled, other, namespace.Name, "bob"))

		By("holding a write after the client has canceled others")
		cancel()
		for _, write := range held {
			Eventually(write).WithContext(ctx).Should(Receive(HaveField("Err", HaveOccurred())))
		}
		Eventually(heldWrites).WithContext(ctx).Should(BeZero())
		again := startCreate(ctx, cluster.Ordinary, namespace.Name, "again")
		cluster.Finish(ctx, namespace.Name)
		Expect(expectEnded(ctx, again)).To(Satisfy(apierrors.IsTooManyRequests))
		cluster.Ordinary.Creates(ctx, wrappers.MakeConfigMap(namespace.Name, "again"))
	})
})

var _ = Describe("Held writes", func() {
	BeforeEach(func(ctx context.Context) { cluster.Register(ctx, "quick", "quick.test.example.com") })

	// In each namespace, client-go waits one second before it sends the writes again.
	DescribeTable("succeed through any API server", func(ctx context.Context, namespaces int) {
		second := cluster.StartSecondAPIServer(ctx)
		fill(ctx, namespaces, []kubernetes.Interface{cluster.Ordinary.Clientset(), second.As(cluster.Ordinary).Clientset()})
	},
		Entry("in 6 namespaces", 6),
		Entry("in 20 namespaces", Label("long"), 20),
	)

	It("are not interrupted when the certificate and its CA are replaced", func(ctx context.Context) {
		// On a busy machine, the replacement can take longer than the write is held.
		Eventually(func() time.Duration {
			namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("rotated")).Name
			held := startCreate(ctx, cluster.Ordinary, namespace, "web")
			secret := &corev1.Secret{}
			key := client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: webhooks.SecretName}
			Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
			before := secret.Data[corev1.TLSCertKey]
			cluster.Admin.Patches(ctx, secret, `{"data":null}`)
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
				g.Expect(secret.Data[corev1.TLSCertKey]).NotTo(Or(BeEmpty(), Equal(before)))
			}).WithContext(ctx).Should(Succeed())
			hasEnded := len(held) > 0
			cluster.Finish(ctx, namespace)
			var got result
			Eventually(held).WithContext(ctx).Should(Receive(&got))
			Expect(got.Err).To(Satisfy(apierrors.IsTooManyRequests))
			Expect(hasEnded && got.Duration < options.Duration).To(BeFalse(), "the replacement has interrupted the write")
			return got.Duration
		}).WithContext(ctx).Should(BeNumerically("<", options.Duration))
	})
})

// fill creates namespaces, and objects in them through each client, and initializes them. It reports the
// time from the response to the write that completes an initialization to each response to a held
// write.
func fill(ctx context.Context, number int, clients []kubernetes.Interface) {
	GinkgoHelper()
	var lock sync.Mutex
	var delays []time.Duration
	for range number {
		name := framework.Unique("filled")
		framework.CreateNamespace(ctx, cluster.Ordinary, name)
		var writes sync.WaitGroup
		var completed time.Time
		for i, clientset := range clients {
			for j := range 4 {
				writes.Go(func() {
					defer GinkgoRecover()
					_, err := clientset.CoreV1().ConfigMaps(name).Create(ctx,
						wrappers.MakeConfigMap(name, fmt.Sprintf("%d-%d", i, j)), metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
					lock.Lock()
					defer lock.Unlock()
					delays = append(delays, time.Since(completed))
				})
			}
		}
		time.Sleep(20 * time.Millisecond)
		lock.Lock()
		cluster.Finish(ctx, name)
		completed = time.Now()
		lock.Unlock()
		writes.Wait()
	}
	AddReportEntry("release of held writes", summarize(delays))
}

// summarize returns the median, the 99th percentile and the maximum.
func summarize(durations []time.Duration) string {
	slices.Sort(durations)
	return fmt.Sprintf("median %s, p99 %s, maximum %s of %d", durations[len(durations)/2],
		durations[len(durations)*99/100], durations[len(durations)-1], len(durations))
}
