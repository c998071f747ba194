// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A write to an initializing namespace", func() {
	It("succeeds after the initialization, when client-go sends it again", func(ctx context.Context) {
		cluster.Register(ctx, "quick", "quick.test.example.com")
		fill(ctx, 20, []kubernetes.Interface{cluster.Ordinary.Clientset()})
	})

	It("is rejected with a Retry-After if the initialization takes longer", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "long")
		got := createOnce(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(got.Duration).To(BeNumerically(">=", options.Duration))
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
		got := createOnce(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(got.Err).To(MatchError(Or(ContainSubstring("NoRoom"), ContainSubstring("terminated"), ContainSubstring("not found"))))
		Expect(got.Duration).To(BeNumerically("<", options.Duration))
	})

	It("ends at once if the namespace is deleted", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "deleted")
		held := startCreate(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
		Expect(expectEnded(ctx, held)).To(Satisfy(apierrors.IsTooManyRequests))
		err := cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))
		Expect(apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)).
			To(BeTrue(), "%v", err)
	})

	It("is not held if the user holds the initialize verb or the furnish verb", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "holder")
		furnisher := cluster.AddUser(ctx, framework.Unique("furnisher"), []string{"create", v1alpha1.VerbFurnish})
		for _, user := range []*framework.User{cluster.Initializer, furnisher} {
			// The API server needs some time to recognize the permissions of a new user.
			Eventually(func() result {
				return createOnce(ctx, user, namespace.Name, framework.Unique("web"))
			}).WithContext(ctx).Should(
				And(HaveField("Err", Succeed()), HaveField("Duration", BeNumerically("<", options.Duration))))
		}
	})

	It("is held if it is a dry run, a DELETE or an Event of a user", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "kinds")
		Expect(cluster.Initializer.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))).To(Succeed())
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
		before := receivedWrites()
		for _, write := range writes {
			go func() { results <- write() }()
		}
		Eventually(receivedWrites).WithContext(ctx).Should(BeNumerically(">=", before+float64(len(writes))))
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
		canceled, cancel := context.WithCancel(ctx)
		var held []<-chan result
		for i := range 5 {
			held = append(held, startCreate(canceled, cluster.Ordinary, namespace.Name, fmt.Sprint(i)))
		}
		got := createOnce(ctx, cluster.Ordinary, namespace.Name, "over")
		Expect(apierrors.IsTooManyRequests(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Err).To(MatchError(ContainSubstring("too many writes")))
		Expect(got.Duration).To(BeNumerically("<", options.Duration))

		By("holding a write of another user")
		other := cluster.AddUser(ctx, otherUser, framework.VerbsButInitialize)
		bob := startCreate(ctx, other, namespace.Name, "bob")

		By("holding a write after the client has canceled others")
		cancel()
		for _, write := range held {
			Eventually(write).WithContext(ctx).Should(Receive(HaveField("Err", HaveOccurred())))
		}
		Eventually(heldWrites).WithContext(ctx).Should(BeNumerically("<=", 1))
		again := startCreate(ctx, cluster.Ordinary, namespace.Name, "again")
		cluster.Finish(ctx, namespace.Name)
		Expect(expectEnded(ctx, again)).To(Satisfy(apierrors.IsTooManyRequests))
		Expect(expectEnded(ctx, bob)).To(Satisfy(apierrors.IsTooManyRequests))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "again"))).To(Succeed())
	})
})
