// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A write while the webhooks do not work", func() {
	DescribeTable("is rejected by the gate",
		func(ctx context.Context, serve func(net.Listener)) {
			namespace := cluster.CreateInitializing(ctx, "fault")
			cluster.StopManager()
			DeferCleanup(restartManager)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = listener.Close() })
			counting := &countingListener{Listener: listener}
			if serve != nil {
				serve(counting)
			} else {
				Expect(listener.Close()).To(Succeed())
			}
			setURL(ctx, "https://"+listener.Addr().String())
			got := createOnce(ctx, cluster.Ordinary, namespace.Name, "web")
			Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
			Expect(got.Err).To(MatchError(ContainSubstring("nslifecycle-gate")))
			AddReportEntry("response after", got.Duration.String())
			if serve != nil {
				Expect(counting.accepted.Load()).To(BeNumerically(">", 0), "the API server must call the server")
			}
			Expect(createOnce(ctx, cluster.Initializer, namespace.Name, "quota").Err).NotTo(HaveOccurred())
		},
		Entry("if the certificate is from another authority", func(listener net.Listener) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			Expect(server.Listener.Close()).To(Succeed())
			server.Listener = listener
			server.StartTLS()
			DeferCleanup(server.Close)
		}),
		Entry("if nothing listens", nil),
		Entry("if they accept connections and never respond", Label("long"), func(listener net.Listener) {
			go func() {
				for {
					connection, err := listener.Accept()
					if err != nil {
						return
					}
					defer connection.Close()
				}
			}()
		}),
	)

	It("is held again after an expired certificate has been replaced", func(ctx context.Context) {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: options.Secret}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		expired := secret.DeepCopy()
		expired.Data[corev1.TLSCertKey], expired.Data[corev1.TLSPrivateKeyKey] = makeExpired()
		Expect(cluster.Admin.Update(ctx, expired)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data[corev1.TLSCertKey]).NotTo(Equal(expired.Data[corev1.TLSCertKey]))
		}).WithContext(ctx).Should(Succeed())
		namespace := cluster.CreateInitializing(ctx, "renewed")
		Eventually(func() error {
			return createOnce(ctx, cluster.Ordinary, namespace.Name, "web").Err
		}).WithContext(ctx).Should(Satisfy(apierrors.IsTooManyRequests))
	})
})

var _ = Describe("A held write", func() {
	It("does not reach a namespace that is recreated with the same name", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "recreated")
		held := startCreate(ctx, cluster.Ordinary, namespace.Name, "web")
		Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
		var got result
		Eventually(held).WithContext(ctx).Should(Receive(&got))
		Expect(got.Err).To(HaveOccurred())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		framework.CreateNamespace(ctx, cluster.Ordinary, namespace.Name)
		cluster.Finish(ctx, namespace.Name)
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "web"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
})

var _ = Describe("1,000 writes to ten initializing namespaces", func() {
	// This spec is Serial, since an API server ends a request after 60 seconds. If other specs use the processors, too, a
	// write can take that long.
	It("succeed, and do not delay requests of another user until the end", Serial, func(ctx context.Context) {
		const namespaces, writes = 10, 100
		cluster.Register(ctx, "crowd", "crowd.test.example.com")
		other := cluster.AddUser(ctx, otherUser, framework.VerbsButInitialize)
		open := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("open")).Name
		cluster.Finish(ctx, open)
		AddReportEntry("latency of another user before: " + latencies(ctx, other, open))
		var names []string
		for range namespaces {
			names = append(names, framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("crowd")).Name)
		}
		var requests sync.WaitGroup
		for _, name := range names {
			for i := range writes {
				requests.Go(func() {
					defer GinkgoRecover()
					_, err := cluster.Ordinary.Clientset().CoreV1().ConfigMaps(name).Create(ctx,
						wrappers.MakeConfigMap(name, fmt.Sprint(i)), metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
				})
			}
		}
		AddReportEntry("latency of another user meanwhile: " + latencies(ctx, other, open))
		for _, name := range names {
			cluster.Finish(ctx, name)
		}
		requests.Wait()
	})
})

// latencies returns the durations of reads and writes that a user sends to a namespace one after the other.
func latencies(ctx context.Context, user *framework.User, namespace string) string {
	GinkgoHelper()
	var durations []time.Duration
	for range 50 {
		start := time.Now()
		Expect(user.Create(ctx, wrappers.MakeConfigMap(namespace, framework.Unique("web")))).To(Succeed())
		Expect(user.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace), client.Limit(1))).To(Succeed())
		durations = append(durations, time.Since(start))
		time.Sleep(20 * time.Millisecond)
	}
	return summarize(durations)
}

// countingListener counts the accepted connections.
type countingListener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return connection, err
}

// setURL makes the API server call another server until the manager starts again.
func setURL(ctx context.Context, url string) {
	GinkgoHelper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: v1alpha1.HoldConfiguration}, configuration)).To(Succeed())
	hold.Configure(configuration, url, nil)
	Expect(cluster.Admin.Update(ctx, configuration)).To(Succeed())
	// The API server reads webhook configurations with an informer.
	time.Sleep(time.Second)
}

// makeExpired returns an expired certificate and its key.
func makeExpired() (certificate, key []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}
