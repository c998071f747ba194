// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	writersNamespace = "writers"
	// published is the ConfigMap that the root CA publisher of kube-controller-manager writes into every namespace.
	published = "kube-root-ca.crt"
)

// The root CA publisher has one worker. It runs as a ServiceAccount without the verb, as the controllers of other
// projects do. Its own ServiceAccount holds the verb.
var _ = Describe("A controller with one worker", Ordered, func() {
	// The publisher works on a namespace that is not being initialized.
	const initialized = "publisher-initialized"
	BeforeAll(func(ctx context.Context) {
		framework.CreateNamespace(ctx, cluster.Ordinary, initialized)
		startPublisher(ctx)
		expectPublished(ctx, initialized)
	})

	It("is delayed by at most --hold-duration, and only once, by namespaces that are being initialized", func(ctx context.Context) {
		var names []string
		for range 10 {
			names = append(names, cluster.CreateInitializing(ctx, "publisher").Name)
		}
		// The publisher waits for Retry-After of 1 s after the last hold. Without a limit, it would wait in each namespace.
		Expect(repair(ctx, initialized)).To(BeNumerically("<", 2*options.Duration))
		delay := repair(ctx, initialized)
		AddReportEntry("delay", delay.String())
		Expect(delay).To(BeNumerically("<", options.Duration))
		for _, name := range names {
			cluster.Finish(ctx, name)
		}
		start := time.Now()
		for _, name := range names {
			expectPublished(ctx, name)
		}
		AddReportEntry("written after the initialization", time.Since(start).String())
	})

	for _, duration := range []time.Duration{2 * time.Second, 30 * time.Second, 5 * time.Minute} {
		It(fmt.Sprintf("writes into 20 namespaces that are initialized within %s", duration), Label("long"), func(ctx context.Context) {
			const name = "slow.test.example.com"
			initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name, initializers.After(duration))
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(initializer.Stop)
			cluster.Register(ctx, "slow", name)
			var names []string
			for range 20 {
				names = append(names, framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("publisher")).Name)
			}
			for range 3 {
				AddReportEntry("delay of a write to an initialized namespace", repair(ctx, initialized).String())
			}
			var last time.Duration
			for _, name := range names {
				expectPublished(ctx, name)
				last = time.Since(cluster.GetNamespace(Default, ctx, name).CreationTimestamp.Time)
			}
			AddReportEntry("all written after", last.String())
		}, SpecTimeout(12*time.Minute))
	}

	// A CI job has one identity for all namespaces that it creates.
	It("is held as a person is in the namespaces that it has created", func(ctx context.Context) {
		job := addAccount(ctx, writersNamespace, "job", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: framework.VerbsButInitialize,
		})
		cluster.CreateInitializing(ctx, "job")
		namespace := framework.MakeInitializing(framework.Unique("job")).Obj()
		job.Creates(ctx, namespace)
		for _, create := range []func(context.Context, *framework.User, string, string) result{createTimedOut, createOnce} {
			got := create(ctx, job, namespace.Name, "web")
			Expect(got.Duration).To(BeNumerically(">=", options.Duration))
			Expect(apierrors.IsTooManyRequests(got.Err)).To(BeTrue(), "%v", got.Err)
			_, isRepeated := apierrors.SuggestsClientDelay(got.Err)
			Expect(isRepeated).To(BeTrue(), "%v", got.Err)
		}
		cluster.Finish(ctx, namespace.Name)
	})
})

// repair deletes the ConfigMap of a namespace, and returns the time until the publisher has written it again.
func repair(ctx context.Context, namespace string) time.Duration {
	GinkgoHelper()
	cluster.Admin.Deletes(ctx, wrappers.MakeConfigMap(namespace, published))
	start := time.Now()
	expectPublished(ctx, namespace)
	return time.Since(start)
}

func expectPublished(ctx context.Context, namespace string) {
	GinkgoHelper()
	Eventually(func() error {
		return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: published}, &corev1.ConfigMap{})
	}).WithContext(ctx).WithTimeout(11 * time.Minute).Should(Succeed())
}

// startPublisher runs the root CA publisher until the container ends.
func startPublisher(ctx context.Context) {
	GinkgoHelper()
	account := addAccount(ctx, writersNamespace, "publisher", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch", "create", "update"},
	})
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, account.Config)).To(Succeed())
	publisher, err := cluster.StartControllerManager(ctx,
		"--controllers=root-ca-certificate-publisher-controller", "--kubeconfig="+kubeconfig)
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(publisher.Stop()).To(Succeed()) })
}
