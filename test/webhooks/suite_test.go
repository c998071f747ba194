// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var (
	// cluster is shared by all specs.
	cluster *framework.Cluster
	options *hold.Options
	// clientCertificates is the directory with the certificate of the API server for webhooks.
	clientCertificates string
)

func TestWebhooks(t *testing.T) { framework.RunSuite(t, "Webhooks") }

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.Make(ctx, "helm")
	clientCertificates = GinkgoT().TempDir()
	writeClientCertificate(clientCertificates)
	cluster = framework.Start(ctx,
		// With many rounds, the default range has too few addresses for all Services.
		controlplane.WithAPIServerFlag("service-cluster-ip-range", "10.0.0.0/16"),
		controlplane.WithAPIServerFlag("admission-control-config-file", writeAdmissionConfiguration(clientCertificates)))
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	options = cluster.StartHoldingManager(ctx)
	cluster.StartObserver(ctx, func(o *framework.Observation) {
		// Independent of permissions, which the specs remove.
		o.Rules.MayWrite = func(user authenticationv1.UserInfo, _ string, _ ...string) bool {
			return user.Username != framework.OrdinaryUser && user.Username != otherUser &&
				!strings.HasPrefix(user.Username, serviceaccount.MakeUsername(writersNamespace, ""))
		}
		o.Resources = append(o.Resources, v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"))
	})
}, NodeTimeout(15*time.Minute))

// restartManager starts the manager again, at another port.
func restartManager(ctx context.Context) {
	GinkgoHelper()
	cluster.StopManager()
	options = cluster.RestartHoldingManager(ctx)
	cluster.ExpectInjected(ctx) // A spec can have deleted the policies, which the manager applies again.
}

const (
	first  = "first.test.example.com"
	second = "second.test.example.com"
)

// otherUser is a user without the verb, like framework.OrdinaryUser.
const otherUser = "bob@corp.example.com"

// result is the response to a request.
type result struct {
	Err      error
	Duration time.Duration
}

// createOnce creates a ConfigMap without the retries of client-go.
func createOnce(ctx context.Context, user *framework.User, namespace, name string) result {
	start := time.Now()
	err := user.Clientset().CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(namespace).Resource("configmaps").Body(wrappers.MakeConfigMap(namespace, name)).Do(ctx).Error()
	return result{Err: err, Duration: time.Since(start)}
}

// createTimedOut repeats createOnce until a write waits as long as it may. Others end at once: the caches of the
// operator and the API server can be without a new namespace.
func createTimedOut(ctx context.Context, user *framework.User, namespace, name string) (got result) {
	GinkgoHelper()
	Eventually(func() result {
		got = createOnce(ctx, user, namespace, name)
		return got
	}).WithContext(ctx).Should(HaveField("Duration", BeNumerically(">=", options.Duration)))
	return got
}

// startCreate is createOnce in the background. It returns when the write is held, and repeats a write that ends before,
// as createTimedOut.
func startCreate(ctx context.Context, user *framework.User, namespace, name string) <-chan result {
	GinkgoHelper()
	done := make(chan result, 1)
	var before float64
	send := func() {
		before = heldWrites()
		go func() { done <- createOnce(ctx, user, namespace, name) }()
	}
	send()
	var last result
	Eventually(func(g Gomega) {
		select {
		case last = <-done:
			send()
		default:
		}
		g.Expect(heldWrites()).To(BeNumerically(">", before), "%+v", last)
	}).WithContext(ctx).Should(Succeed())
	return done
}

// expectEnded expects that a held write ends before its time limit, and returns its error.
func expectEnded(ctx context.Context, held <-chan result) error {
	GinkgoHelper()
	var got result
	Eventually(held).WithContext(ctx).Should(Receive(&got))
	Expect(got.Duration).To(BeNumerically("<", options.Duration))
	return got.Err
}

// heldWrites returns the number of writes that the hold webhooks hold. The manager runs in this process.
func heldWrites() float64 {
	GinkgoHelper()
	return framework.Metrics()["nslifecycle_hold_writes"][0].GetGauge().GetValue()
}

// annotate sets annotations of a namespace as the initializer.
func annotate(ctx context.Context, name string, annotations map[string]string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(cluster.Initializer.Patch(ctx, namespace, mergePatch(annotations))).To(Succeed())
}

// mergePatch returns a patch that sets annotations.
func mergePatch(annotations map[string]string) client.Patch {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	Expect(err).NotTo(HaveOccurred())
	return framework.MergePatch(patch)
}
