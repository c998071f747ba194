// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policywebhooks

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	first  = "first.test.example.com"
	second = "second.test.example.com"
)

// refusedBy matches the error of a request that the API server rejects because no manager answers a webhook.
func refusedBy(webhook string) OmegaMatcher {
	return MatchError(ContainSubstring(`failed calling webhook "` + webhook + `.nslifecycle.dev"`))
}

var _ = Describe("On an API server without MutatingAdmissionPolicy, the operator", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		authority, err := controlplane.NewAuthority(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		cluster = framework.Start(ctx, controlplane.WithRestarts(authority), controlplane.WithMutatingPolicies(false))
		cluster.Install(ctx, "default")
		Expect(framework.ServesPolicies(ctx, cluster.Admin.Config)).To(BeFalse())
	}, NodeTimeout(8*time.Minute))

	It("makes the webhooks select requests, and inject fail when it answers", func(ctx context.Context) {
		for _, webhook := range configuration(Default, ctx).Webhooks {
			Expect(webhook.Rules).To(BeEmpty())
		}
		watching, err := cluster.Admin.Clientset().AdmissionregistrationV1().MutatingWebhookConfigurations().Watch(ctx,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", internalv1alpha1.InjectConfiguration).String()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watching.Stop)
		startManager(ctx)
		cluster.Register(ctx, "webhooks", first)
		var policies []admissionv1.FailurePolicyType
		for len(policies) == 0 || policies[len(policies)-1] != admissionv1.Fail {
			var event watch.Event
			Eventually(watching.ResultChan()).WithContext(ctx).Should(Receive(&event))
			inject := event.Object.(*admissionv1.MutatingWebhookConfiguration).Webhooks[0]
			Expect(inject.Name).To(Equal("inject.nslifecycle.dev"))
			if len(inject.Rules) > 0 {
				policies = append(policies, ptr.Deref(inject.FailurePolicy, ""))
			}
		}
		Expect(policies[0]).To(Equal(admissionv1.Ignore))
		for name, failurePolicy := range map[string]admissionv1.FailurePolicyType{
			"complete": admissionv1.Fail, "restore": admissionv1.Ignore,
		} {
			webhook := webhook(Default, ctx, name)
			Expect(webhook.Rules).NotTo(BeEmpty())
			Expect(webhook.FailurePolicy).To(HaveValue(Equal(failurePolicy)), name)
		}
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("webhooks"))
		Expect(framework.PendingOf(namespace)).To(Equal(first))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
	}, SpecTimeout(5*time.Minute))

	It("preserves a match condition that an administrator adds", func(ctx context.Context) {
		cluster.Register(ctx, "exempting", first)
		const name = "is-not-exempt"
		changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
			inject.MatchConditions = append(inject.MatchConditions, admissionv1.MatchCondition{
				Name: name, Expression: "!object.metadata.?name.orValue('').startsWith('exempt-')",
			})
		})
		DeferCleanup(func(ctx context.Context) {
			changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
				inject.MatchConditions = inject.MatchConditions[:len(inject.MatchConditions)-1]
			})
		})
		By("changing the webhook for another initializer")
		cluster.Register(ctx, "others", second)
		Expect(webhook(Default, ctx, "inject").MatchConditions).To(ContainElement(HaveField("Name", name)))
		Eventually(func(g Gomega) {
			exempt := wrappers.MakeNamespace(framework.Unique("exempt")).Obj()
			g.Expect(cluster.Ordinary.Create(ctx, exempt, client.DryRunAll)).To(Succeed())
			g.Expect(exempt.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		cluster.ExpectInjected(ctx)
	}, SpecTimeout(5*time.Minute))

	It("completes and restores in the same request; without it, nothing is lost", func(ctx context.Context) {
		cluster.Register(ctx, "update", first, second)
		name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("update")).Name
		replaced := replaceWithout(ctx, cluster.Ordinary, name)
		// The API server ignores a webhook that does not answer in time, and the policy then rejects the request.
		Eventually(replaced).WithContext(ctx).Should(Succeed())
		state := cluster.GetNamespace(Default, ctx, name)
		Expect(framework.PendingOf(state)).To(Equal(first + "," + second))
		Expect(state.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Expect(state.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
		cluster.Finish(ctx, name)

		By("sending the same requests while no manager runs")
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) {
			if cluster.Manager == nil {
				startManager(ctx)
			}
		})
		before := cluster.GetNamespace(Default, ctx, name)
		// The API server can read the namespace from a cache that is some milliseconds old.
		Eventually(replaced).WithContext(ctx).Should(matchers.BeDeniedBy("guard"))
		Expect(complete(ctx, name)).To(refusedBy("complete"))
		Expect(replaceWithout(ctx, cluster.Initializer, name)()).To(refusedBy("complete"))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, "early"))).To(matchers.BeForbiddenBy("gate"))
		after := cluster.GetNamespace(Default, ctx, name)
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations))

		By("repeating them when a manager runs again")
		startManager(ctx)
		Eventually(replaced).WithContext(ctx).Should(Succeed())
		Eventually(complete).WithContext(ctx).WithArguments(name).Should(Succeed())
		completed := cluster.GetNamespace(Default, ctx, name)
		Expect(completed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		Expect(completed.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
		Expect(completed.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInitializers, first+","+second))
	}, SpecTimeout(5*time.Minute))

	It("is needed to create namespaces, except exempt ones", func(ctx context.Context) {
		cluster.Register(ctx, "stopped", first)
		Eventually(func(g Gomega) {
			g.Expect(webhook(g, ctx, "inject").FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
		}).WithContext(ctx).Should(Succeed())
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { startManager(ctx) })
		Eventually(func() error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("stopped").Obj(), client.DryRunAll)
		}).WithContext(ctx).Should(refusedBy("inject"))
		Expect(cluster.Ordinary.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stopped-"}})).To(refusedBy("inject"))
		for _, name := range []string{
			metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
			controlplane.SystemNamespace,
		} {
			forged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "forged-", Labels: map[string]string{corev1.LabelMetadataName: name},
			}}
			Expect(cluster.Ordinary.Create(ctx, forged)).To(refusedBy("inject"), name)
			err := cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj())
			Expect(client.IgnoreAlreadyExists(err)).NotTo(HaveOccurred(), name)
			err = cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Label(v1alpha1.LabelInitializing, "true").Obj())
			Expect(err).To(refusedBy("inject"), "the keys are removed")
		}
		var namespaces corev1.NamespaceList
		Expect(cluster.Admin.List(ctx, &namespaces)).To(Succeed())
		for _, namespace := range namespaces.Items {
			Expect(namespace.Name).NotTo(Or(HavePrefix("stopped-"), HavePrefix("forged-")))
		}
	}, SpecTimeout(5*time.Minute))

	It("costs a write at most 2 s behind a firewall that drops packets", func(ctx context.Context) {
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { startManager(ctx) })
		proxy, _ := cluster.StartManagerBehind(ctx)
		expectUnreachable(ctx, proxy)
	}, SpecTimeout(5*time.Minute))

	// The API server cannot reach the Service of the webhooks, which the manifest contains.
	It("keeps the settings of webhooks with a Service if the manifest is applied again", func(ctx context.Context) {
		cluster.StopManager()
		cluster.Admin.Deletes(ctx, configuration(Default, ctx))
		cluster.Install(ctx, "default")
		startManager(ctx, func(options *manager.Options) { options.Hold.URL = "" })
		expectWebhooks(ctx, true)
		configured := wrappers.MakeConfiguration("unreachable").Initializers(first).Obj()
		cluster.Admin.Creates(ctx, configured)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configured)).To(Succeed()) })
		cluster.ExpectReason(ctx, configured.Name, v1alpha1.ReasonEnforcementPending)
		changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
			Expect(inject.FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
			inject.FailurePolicy = ptr.To(admissionv1.Fail)
		})
		before := configuration(Default, ctx)
		cluster.Install(ctx, "default")
		after := configuration(Default, ctx)
		Expect(after.Webhooks).To(Equal(before.Webhooks))
		Expect(after.Generation).To(Equal(before.Generation))
	}, SpecTimeout(5*time.Minute))

	It("continues to inject without a restart", func(ctx context.Context) {
		cluster.StopManager()
		startManager(ctx)
		cluster.Register(ctx, "upgrade", first)
		created := createNamespaces(ctx)

		By("upgrading the API server")
		restartAPIServer(ctx, true)
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration},
				&admissionv1.MutatingAdmissionPolicyBinding{})
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
		expectWebhooks(ctx, true)
		cluster.ExpectInjected(ctx)
		created.expectMore(ctx)

		By("downgrading it again")
		restartAPIServer(ctx, false)
		created.expectMore(ctx)
		Consistently(cluster.Manager.Done()).ShouldNot(Receive())
		for _, namespace := range created.stop() {
			Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace))).To(Equal(first), namespace)
		}
	}, SpecTimeout(8*time.Minute))

	It("makes the webhooks optional an hour after it has applied the policies", func(ctx context.Context) {
		cluster.StopManager()
		restartAPIServer(ctx, true)
		later := clocktesting.NewFakePassiveClock(time.Now().Add(2 * time.Hour))
		hasLaterClock := func(options *manager.Options) { options.Clock = later }
		startManager(ctx, hasLaterClock)
		expectWebhooks(ctx, true)
		cluster.Register(ctx, "later", first)
		Expect(configuration(Default, ctx).Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
		cluster.StopManager()
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("later"))
		Expect(framework.PendingOf(namespace)).To(Equal(first))
		startManager(ctx, hasLaterClock) // Deregisters the initializer.
	}, SpecTimeout(8*time.Minute))
})

// changeWebhook changes the webhook inject as an administrator.
func changeWebhook(ctx context.Context, change func(*admissionv1.MutatingWebhook)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := configuration(g, ctx)
		change(&current.Webhooks[0])
		g.Expect(cluster.Admin.Update(ctx, current)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// replaceWithout returns a function that replaces a namespace with one without labels and annotations.
func replaceWithout(ctx context.Context, user client.Client, name string) func() error {
	return func() error {
		current := cluster.GetNamespace(Default, ctx, name)
		current.Labels, current.Annotations = nil, nil
		err := user.Update(ctx, current)
		if apierrors.IsConflict(err) {
			return replaceWithout(ctx, user, name)()
		}
		return err
	}
}

// complete empties the pending list as an initializer.
func complete(ctx context.Context, name string) error {
	return cluster.Initializer.Patch(ctx, wrappers.MakeNamespace(name).Obj(), framework.MergePatch(
		`{"metadata":{"annotations":{"`+v1alpha1.AnnotationPendingInitializers+`":""}}}`))
}

// restartAPIServer restarts the API server with or without MutatingAdmissionPolicy.
func restartAPIServer(ctx context.Context, hasPolicies bool) {
	GinkgoHelper()
	Expect(cluster.KillAPIServer(ctx)).To(Succeed())
	Expect(cluster.StartAPIServer(controlplane.WithMutatingPolicies(hasPolicies))).To(Succeed())
	if hasPolicies {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "it cannot be enabled")
	} else {
		Expect(framework.ServesPolicies(ctx, cluster.Admin.Config)).To(BeFalse())
	}
}

// creation creates namespaces until it is stopped.
type creation struct {
	lock  sync.Mutex
	names []string
	end   func()
}

// createNamespaces creates a namespace every 100 ms as the ordinary user. Requests fail while the API server restarts.
func createNamespaces(ctx context.Context) *creation {
	ctx, cancel := context.WithCancel(ctx)
	created, done := &creation{}, make(chan struct{})
	created.end = func() { cancel(); <-done }
	DeferCleanup(created.end)
	go func() {
		defer close(done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			<-ticker.C
			name := framework.Unique("created")
			if err := cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj()); err == nil {
				created.lock.Lock()
				created.names = append(created.names, name)
				created.lock.Unlock()
			}
		}
	}()
	return created
}

func (c *creation) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.names)
}

// expectMore waits until more namespaces have been created.
func (c *creation) expectMore(ctx context.Context) {
	GinkgoHelper()
	Eventually(c.count).WithContext(ctx).Should(BeNumerically(">", c.count()+20))
}

// stop returns the names of the created namespaces.
func (c *creation) stop() []string {
	c.end()
	return c.names
}

// startManager runs the manager with its webhooks, at another address each time.
func startManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	serve := func(options *manager.Options) { options.Hold = webhooks }
	cluster.StartManager(ctx, append([]func(*manager.Options){serve}, changes...)...)
}

// configuration returns the configuration of the webhooks.
func configuration(g Gomega, ctx context.Context) *admissionv1.MutatingWebhookConfiguration {
	found := &admissionv1.MutatingWebhookConfiguration{}
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, found)).To(Succeed())
	return found
}

// webhook returns one of the webhooks.
func webhook(g Gomega, ctx context.Context, name string) admissionv1.MutatingWebhook {
	for _, webhook := range configuration(g, ctx).Webhooks {
		if webhook.Name == name+".nslifecycle.dev" {
			return webhook
		}
	}
	g.Expect(name).To(Equal("the name of a webhook"))
	return admissionv1.MutatingWebhook{}
}

// expectWebhooks waits until the webhooks select requests, or none.
func expectWebhooks(ctx context.Context, selectRequests bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, webhook := range configuration(g, ctx).Webhooks {
			if selectRequests {
				g.Expect(webhook.Rules).NotTo(BeEmpty(), webhook.Name)
			} else {
				g.Expect(webhook.Rules).To(BeEmpty(), webhook.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectUnreachable expects that the API server rejects new namespaces, and updates that omit state, in time.
func expectUnreachable(ctx context.Context, proxy *faults.TCPProxy) {
	GinkgoHelper()
	cluster.Register(ctx, "unreachable", first)
	name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("unreachable")).Name
	Eventually(func(g Gomega) {
		g.Expect(webhook(g, ctx, "inject").FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}).WithContext(ctx).Should(Succeed())
	Expect(configuration(Default, ctx).Webhooks).To(HaveEach(framework.HaveShortTimeout))
	proxy.Drop(true)
	defer proxy.Drop(false)
	for what, test := range map[string]struct {
		send func(Gomega) error
		want OmegaMatcher
	}{
		"a new namespace": {func(Gomega) error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("unreachable")).Obj())
		}, refusedBy("inject")},
		"an update that omits state": {func(g Gomega) error {
			current := cluster.GetNamespace(g, ctx, name)
			current.Labels, current.Annotations = nil, nil
			return cluster.Ordinary.Update(ctx, current)
		}, matchers.BeDeniedBy("guard")},
		"a completion": {func(Gomega) error { return complete(ctx, name) }, refusedBy("complete")},
	} {
		Eventually(func(g Gomega) { // The operator can change the namespace at the same time.
			begin := time.Now()
			err := test.send(g)
			cost := time.Since(begin)
			AddReportEntry(what, cost.String())
			if cost > framework.UnreachableCost {
				StopTrying(what + " took " + cost.String()).Now()
			}
			g.Expect(err).To(test.want, what)
		}).WithContext(ctx).Should(Succeed())
	}
}
