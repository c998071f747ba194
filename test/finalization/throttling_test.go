// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// rejectRequests makes API Priority and Fairness reject the manager's requests with the given verb
// for ConfigMaps in a namespace until the returned function is called. The only seat of the
// priority level is occupied by another request, which a webhook blocks.
func rejectRequests(ctx context.Context, namespace, verb string) func() {
	GinkgoHelper()
	seat := createNamespace(ctx, "seat")
	occupant := wrappers.MakeConfigMap(seat.Name, "occupant")
	create(ctx, occupant)
	// The policy confine denies such a request by the manager before the webhook is called.
	name := framework.Unique("occupant")
	user := cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"},
	})
	schema := createFlowSchema(ctx, name,
		flowcontrolv1.ResourcePolicyRule{Verbs: []string{verb}, Namespaces: []string{namespace}},
		flowcontrolv1.ResourcePolicyRule{Verbs: []string{"delete"}, Namespaces: []string{seat.Name}})

	config := managerConfig(ctx)
	var webhook *denyingWebhook
	release := framework.OccupySeat(ctx, user, occupant,
		func(denialReason func(*admissionv1.AdmissionRequest) string) {
			webhook = denyDeletions(ctx, seat.Name, http.StatusForbidden, denialReason)
		})
	stop := sync.OnceFunc(func() {
		release()
		deleteObject(ctx, schema)
		deleteObject(ctx, webhook.configuration)
		deleteObject(ctx, seat)
	})
	DeferCleanup(stop)
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	request := clientset.CoreV1().RESTClient().Verb(map[string]string{"list": "GET", "delete": "DELETE"}[verb])
	if verb == "delete" {
		request = request.Name("none")
	}
	err = request.Namespace(namespace).Resource("configmaps").MaxRetries(0).Do(ctx).Error()
	Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "the API server must reject the request: %v", err)
	return stop
}

// createFlowSchema assigns the requests of the manager and of a user for the given ConfigMaps to a priority
// level with one seat and without a queue.
func createFlowSchema(ctx context.Context, user string, rules ...flowcontrolv1.ResourcePolicyRule) *flowcontrolv1.FlowSchema {
	GinkgoHelper()
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: unique("one-seat")}}
	level.Spec = flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(0)), BorrowingLimitPercent: new(int32(0)),
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		},
	}
	for i := range rules {
		rules[i].APIGroups, rules[i].Resources = []string{""}, []string{"configmaps"}
	}
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: level.Name}}
	schema.Spec = flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name},
		MatchingPrecedence:         2, // Only the exempt FlowSchema has a higher precedence.
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{
				Kind: flowcontrolv1.SubjectKindServiceAccount,
				ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
					Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
				},
			}, {
				Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user},
			}},
			ResourceRules: rules,
		}},
	}
	create(ctx, level, schema)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, schema))).To(Succeed())
		Expect(client.IgnoreNotFound(admin.Delete(ctx, level))).To(Succeed())
	})
	Eventually(func(g Gomega) {
		current := schema.DeepCopy()
		g.Expect(admin.Get(ctx, keyOf(current), current)).To(Succeed())
		g.Expect(current.Status.Conditions).To(ContainElement(And(
			HaveField("Type", BeEquivalentTo(flowcontrolv1.FlowSchemaConditionDangling)),
			HaveField("Status", BeEquivalentTo(flowcontrolv1.ConditionFalse)))))
	}).WithContext(ctx).Should(Succeed())
	return schema
}

var _ = Describe("A namespace whose requests are throttled", func() {
	DescribeTable("reports the failure, does not block other namespaces, and is finalized when throttling ends:",
		func(ctx context.Context, verb, what string, content OmegaMatcher) {
			namespace, other := createNamespace(ctx, "throttled"), createNamespace(ctx, "not-throttled")
			createMany(ctx, namespace.Name, 100)
			createMany(ctx, other.Name, 100)
			stopRejecting := rejectRequests(ctx, namespace.Name, verb)

			deleteObject(ctx, namespace)
			deleteObject(ctx, other)
			expectDeleted(ctx, other)
			Eventually(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(And(HaveContentFailure(what, "too many requests"), content))
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
			expectNamespaceFinalizerKept(ctx, namespace)
			Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(100))

			stopRejecting()
			// The last Retry-After might be as long as 32 s.
			expectDeleted(ctx, namespace)
			expectNoObjects(ctx, namespace.Name)
		},
		Entry("lists", "list", "failed to list configmaps", HaveCondition(
			corev1.NamespaceContentRemaining, corev1.ConditionUnknown, "ContentUnknown", "configmaps")),
		Entry("deletions", "delete", "failed to delete configmaps", HaveRemaining("configmaps. has 100 resource instances")),
	)

	DescribeTable("is finalized by retries that honor Retry-After:",
		func(ctx context.Context, method string, seconds, times int) {
			stopManager()
			throttler := &throttler{method: method, wait: time.Duration(seconds) * time.Second, left: times}
			faults := &faultInjector{respond: throttler.respond}
			startManager(ctx, faults.inject(managerConfig(ctx)), withGracePeriod(0))
			namespace := createNamespace(ctx, "retry-after")
			create(ctx, wrappers.MakeConfigMap(namespace.Name, "one"))
			throttler.namespace = namespace.Name
			faults.enabled.Store(true)
			deleteObject(ctx, namespace)
			if throttler.wait > 30*time.Second {
				eventuallyNamespace(ctx, namespace.Name, HaveContentFailure("too many requests"))
			}
			expectDeleted(ctx, namespace)
			throttler.expectRetryAfterHonored(times)
		},
		Entry("a list, 2 s", http.MethodGet, 2, 3),
		Entry("a deletion, 2 s", http.MethodDelete, 2, 3),
		Entry("a list, longer than the request timeout", http.MethodGet, 32, 1),
	)
})

// throttler throttles the first requests for ConfigMaps in a namespace.
type throttler struct {
	namespace, method string
	wait              time.Duration

	lock  sync.Mutex
	left  int
	times []time.Time
}

func (p *throttler) respond(e exchange) (*http.Response, error) {
	path := "/api/v1/namespaces/" + p.namespace + "/configmaps"
	if e.Method != p.method || !strings.HasPrefix(e.URL.Path, path) || e.URL.Query().Get("watch") != "" {
		return nil, nil
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.times = append(p.times, time.Now())
	if p.left--; p.left < 0 {
		return nil, nil
	}
	busy := errorResponse(e.Request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
	busy.Header.Set("Retry-After", strconv.Itoa(int(p.wait.Seconds())))
	return busy, nil
}

// expectRetryAfterHonored checks that count requests were throttled and that each retry was sent
// after the Retry-After period.
func (p *throttler) expectRetryAfterHonored(count int) {
	GinkgoHelper()
	p.lock.Lock()
	defer p.lock.Unlock()
	Expect(len(p.times)).To(BeNumerically(">", count))
	for i := range count {
		Expect(p.times[i+1].Sub(p.times[i])).To(BeNumerically(">=", p.wait-10*time.Millisecond), "the time between request %d and the next request", i)
	}
}
