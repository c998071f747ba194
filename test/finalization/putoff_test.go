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
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// rejectRequests makes API Priority and Fairness throttle the manager's requests for the
// ConfigMaps of one namespace, for a verb, until the function that it returns is called.
// There is a single seat for that, and it is taken: a webhook holds the request that has it.
func rejectRequests(ctx context.Context, namespace, verb string) func() {
	GinkgoHelper()
	seat := createNamespace(ctx, "seat")
	taken := wrappers.MakeConfigMap(seat.Name, "taken")
	create(ctx, taken)
	schema := createFlowSchema(ctx,
		flowcontrolv1.ResourcePolicyRule{Verbs: []string{verb}, Namespaces: []string{namespace}},
		flowcontrolv1.ResourcePolicyRule{Verbs: []string{"delete"}, Namespaces: []string{seat.Name}})

	asked, letGo := make(chan struct{}), make(chan struct{})
	webhook := refuseDeletions(ctx, seat.Name, func(request *admissionv1.AdmissionRequest) string {
		if isDryRun(request) {
			return "the webhook is there"
		}
		close(asked)
		<-letGo
		return ""
	})
	webhook.expectRefused(ctx, taken)
	clientset, err := kubernetes.NewForConfig(managerConfig(ctx))
	Expect(err).NotTo(HaveOccurred())
	var group errgroup.Group
	group.Go(func() error {
		return clientset.CoreV1().ConfigMaps(seat.Name).Delete(ctx, taken.Name, metav1.DeleteOptions{})
	})
	Eventually(ctx, asked).Should(BeClosed(), "the seat is taken")
	stop := sync.OnceFunc(func() {
		close(letGo)
		Expect(group.Wait()).To(Succeed())
		deleteObject(ctx, schema)
		deleteObject(ctx, webhook.configuration)
		deleteObject(ctx, seat)
	})
	DeferCleanup(stop)
	request := clientset.CoreV1().RESTClient().Verb(map[string]string{"list": "GET", "delete": "DELETE"}[verb])
	if verb == "delete" {
		request = request.Name("nobody")
	}
	err = request.Namespace(namespace).Resource("configmaps").MaxRetries(0).Do(ctx).Error()
	Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "the API server says: %v", err)
	return stop
}

// createFlowSchema gives the manager's requests about some ConfigMaps a priority level of
// their own, in which one is served at a time and the others are rejected.
func createFlowSchema(ctx context.Context, rules ...flowcontrolv1.ResourcePolicyRule) *flowcontrolv1.FlowSchema {
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
		MatchingPrecedence:         2, // right after those that are exempt
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{
				Kind: flowcontrolv1.SubjectKindServiceAccount,
				ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
					Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
				},
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
	DescribeTable("is not confirmed empty, reports it, does not block other namespaces, and is finalized afterwards:",
		func(ctx context.Context, verb, what string, content OmegaMatcher) {
			namespace, other := createNamespace(ctx, "put-off"), createNamespace(ctx, "not-put-off")
			createMany(ctx, namespace.Name, 100)
			createMany(ctx, other.Name, 100)
			stopRejecting := rejectRequests(ctx, namespace.Name, verb)

			deleteObject(ctx, namespace)
			deleteObject(ctx, other)
			expectGoneWithin(ctx, other, 15*time.Second, "another namespace, during throttling -> deleted")
			Eventually(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(And(HaveContentFailure(what, "too many requests"), content))
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
			expectTokenStays(ctx, namespace)
			Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(100))

			stopRejecting()
			// By then the API server may have asked to wait for up to 32 s.
			expectGoneWithin(ctx, namespace, time.Minute, "throttling ends -> namespace deleted")
			expectNothingLeft(ctx, namespace.Name)
		},
		Entry("lists", "list", "failed to list configmaps", HaveCondition(
			corev1.NamespaceContentRemaining, corev1.ConditionUnknown, "ContentUnknown", "configmaps")),
		Entry("deletions", "delete", "failed to delete configmaps", HaveRemaining("configmaps. has 100 resource instances")),
	)

	DescribeTable("is not requested again before the Retry-After has passed:",
		func(ctx context.Context, method string, seconds, times int) {
			stopManager()
			putOff := &putOffs{method: method, wait: time.Duration(seconds) * time.Second, left: times}
			faults := &failing{respond: putOff.respond}
			startOther(ctx, faults.breakDown(managerConfig(ctx)), withSettlingTime(0))
			namespace := createNamespace(ctx, "retry-after")
			create(ctx, wrappers.MakeConfigMap(namespace.Name, "one"))
			putOff.namespace = namespace.Name
			faults.isOn.Store(true)
			deleteObject(ctx, namespace)
			if putOff.wait > 30*time.Second {
				expectSays(ctx, namespace, HaveContentFailure("too many requests"))
			}
			expectGoneWithin(ctx, namespace, time.Minute, "the first throttled request -> namespace deleted")
			putOff.expectPatience(times)
		},
		Entry("shortly, for a list", http.MethodGet, 2, 3),
		Entry("shortly, for a deletion", http.MethodDelete, 2, 3),
		Entry("for longer than a request may take", http.MethodGet, 32, 1),
	)
})

// putOffs throttles the first few requests for the ConfigMaps of a namespace.
type putOffs struct {
	namespace, method string
	wait              time.Duration

	lock  sync.Mutex
	left  int
	times []time.Time
}

func (p *putOffs) respond(e exchange) (*http.Response, error) {
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
	busy := answer(e.Request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
	busy.Header.Set("Retry-After", strconv.Itoa(int(p.wait.Seconds())))
	return busy, nil
}

// expectPatience checks that a number of requests were throttled and that none followed one
// of these too early.
func (p *putOffs) expectPatience(count int) {
	GinkgoHelper()
	p.lock.Lock()
	defer p.lock.Unlock()
	Expect(len(p.times)).To(BeNumerically(">", count))
	for i := range count {
		Expect(p.times[i+1].Sub(p.times[i])).To(BeNumerically(">=", p.wait-10*time.Millisecond), "between request %d and the next", i)
	}
}
