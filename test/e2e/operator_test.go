// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The Deployment of config/default", Ordered, func() {
	It("runs two managers under the restricted Pod Security Standard", func(ctx context.Context) {
		var namespace corev1.Namespace
		Expect(admin.Get(ctx, client.ObjectKey{Name: systemNamespace}, &namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
		Expect(managers(ctx)).To(HaveLen(2))
		Expect(kubectl(ctx, "--namespace="+systemNamespace, "exec", "deployment/"+deploymentName, "--", "/manager", "--check")).
			NotTo(ContainSubstring("FAIL"))
	}, SpecTimeout(3*time.Minute))

	It("serves its metrics only to authorized clients", func(ctx context.Context) {
		kubectl(ctx, "--namespace="+accounts, "create", "serviceaccount", "prometheus")
		address := forward("pod/"+leader(ctx), 8443)
		token := serviceAccount(ctx, accounts, "prometheus").BearerToken
		status, _ := scrape(ctx, address, token)
		Expect(status).To(Equal(http.StatusForbidden))
		kubectl(ctx, "create", "clusterrolebinding", "nslifecycle-e2e-metrics",
			"--clusterrole=nslifecycle-metrics-reader", "--serviceaccount="+accounts+":prometheus")
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "delete", "clusterrolebinding", "nslifecycle-e2e-metrics")
		})
		Eventually(func(g Gomega) {
			status, metrics := scrape(ctx, address, token)
			g.Expect(status).To(Equal(http.StatusOK))
			g.Expect(metrics).To(ContainSubstring(`leader_election_master_status{name="nslifecycle.dev"} 1`))
			g.Expect(metrics).To(ContainSubstring("nslifecycle_diagnoses_total"))
		}).WithContext(ctx).Should(Succeed())
		status, _ = scrape(ctx, address, "")
		Expect(status).To(Equal(http.StatusUnauthorized))
	}, SpecTimeout(3*time.Minute))

	It("allows the eviction of only one manager at a time", func(ctx context.Context) {
		pods := managers(ctx)
		Expect(evict(ctx, pods[0])).To(Succeed())
		err := evict(ctx, pods[1])
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		awaitManagers(ctx, pods[0])
	}, SpecTimeout(3*time.Minute))

	DescribeTable("continues to work when the leader is", func(ctx context.Context, arguments ...string) {
		old := leader(ctx)
		before := createNamespace(ctx, "before-", nil)
		kubectl(ctx, append([]string{"--namespace=" + systemNamespace, "delete", "pod", old}, arguments...)...)
		started := time.Now()
		after := createNamespace(ctx, "after-", nil)
		// Before a deleted Pod releases the Lease, it keeps serving the webhooks for a few seconds.
		Eventually(func() string { return leader(ctx) }).WithContext(ctx).ShouldNot(Equal(old))
		for _, namespace := range []*corev1.Namespace{before, after} {
			expectReady(ctx, namespace)
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			expectDeleted(ctx, namespace)
		}
		AddReportEntry("from the leader's termination to the deletion of a namespace", time.Since(started).Round(100*time.Millisecond).String())
		awaitManagers(ctx, old)
	},
		Entry("deleted", SpecTimeout(4*time.Minute), "--wait=false"),
		Entry("killed", SpecTimeout(4*time.Minute), "--grace-period=0", "--force"),
	)
})

// managers waits until all replicas are ready, and returns the names of their Pods.
func managers(ctx context.Context) []string {
	GinkgoHelper()
	var names []string
	Eventually(func(g Gomega) {
		names = nil
		var deployment appsv1.Deployment
		g.Expect(admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: deploymentName}, &deployment)).To(Succeed())
		var pods corev1.PodList
		g.Expect(admin.List(ctx, &pods, client.InNamespace(systemNamespace),
			client.MatchingLabels(deployment.Spec.Selector.MatchLabels))).To(Succeed())
		for _, pod := range pods.Items {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					names = append(names, pod.Name)
				}
			}
		}
		g.Expect(pods.Items).To(HaveLen(int(*deployment.Spec.Replicas)))
		g.Expect(names).To(HaveLen(int(*deployment.Spec.Replicas)))
	}).WithContext(ctx).Should(Succeed())
	return names
}

// awaitManagers waits until all replicas are ready and the old Pod no longer exists.
func awaitManagers(ctx context.Context, old string) {
	GinkgoHelper()
	Eventually(func() []string { return managers(ctx) }).WithContext(ctx).ShouldNot(ContainElement(old))
}

// leader returns the name of the Pod that holds the Lease.
func leader(ctx context.Context) string {
	GinkgoHelper()
	var holder string
	Eventually(func(g Gomega) {
		var lease coordinationv1.Lease
		g.Expect(admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "nslifecycle.dev"}, &lease)).To(Succeed())
		holder, _, _ = strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
		g.Expect(holder).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	return holder
}

func evict(ctx context.Context, pod string) error {
	clientset, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return err
	}
	return clientset.PolicyV1().Evictions(systemNamespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: systemNamespace},
	})
}

// forward forwards a port of a Pod until the end of the spec, and returns the local address.
func forward(target string, port int) string {
	GinkgoHelper()
	command := exec.Command(kubectlCommand(), "--namespace="+systemNamespace, "port-forward", target, fmt.Sprintf(":%d", port))
	stdout, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	said := make([]byte, 200)
	n, err := stdout.Read(said)
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(said[:n]))
	Expect(found).NotTo(BeEmpty(), string(said[:n]))
	return found
}

func scrape(ctx context.Context, address, token string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The manager's certificate is self-signed.
	httpClient := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := httpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
