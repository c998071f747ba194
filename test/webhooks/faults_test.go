// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
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
			// The API server reads webhook configurations with an informer.
			Eventually(func(g Gomega) {
				got := createOnce(ctx, cluster.Ordinary, namespace.Name, "web")
				Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
				Expect(got.Err).To(MatchError(ContainSubstring("nslifecycle-gate")))
				AddReportEntry("response after", got.Duration.String())
				if serve != nil {
					g.Expect(counting.accepted.Load()).To(BeNumerically(">", 0), "the API server must call the server")
				}
			}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
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
		key := client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: webhooks.SecretName}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		expired := secret.DeepCopy()
		expired.Data[corev1.TLSCertKey], expired.Data[corev1.TLSPrivateKeyKey] = makeCertificate(&x509.Certificate{
			DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		})
		Expect(cluster.Admin.Patch(ctx, expired, client.MergeFrom(secret))).To(Succeed())
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
		cluster.Admin.Deletes(ctx, namespace)
		var got result
		Eventually(held).WithContext(ctx).Should(Receive(&got))
		Expect(got.Err).To(HaveOccurred())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		cluster.Ordinary.Creates(ctx, framework.MakeInitializing(namespace.Name).Obj())
		cluster.Finish(ctx, namespace.Name)
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "web"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
})

var _ = Describe("Many writes to initializing namespaces", func() {
	// This spec is Serial, since an API server ends a request after 60 seconds. If other specs use the processors, too, a
	// write can take that long.
	DescribeTable("succeed, and do not delay requests of another user until the end", Serial, func(ctx context.Context, namespaces int) {
		const writes = 100
		cluster.Register(ctx, "crowd", "crowd.test.example.com")
		other := cluster.AddUser(ctx, otherUser, framework.VerbsButInitialize)
		initialized := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initialized")).Name
		cluster.Finish(ctx, initialized)
		AddReportEntry("latency of another user before: " + latencies(ctx, other, initialized))
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
		AddReportEntry("latency of another user meanwhile: " + latencies(ctx, other, initialized))
		for _, name := range names {
			cluster.Finish(ctx, name)
		}
		requests.Wait()
	},
		Entry("300 writes to three namespaces", 3),
		Entry("1,000 writes to ten namespaces", Label("long"), 10),
	)
})

// latencies returns the durations of reads and writes that a user sends to a namespace one after the other.
func latencies(ctx context.Context, user *framework.User, namespace string) string {
	GinkgoHelper()
	var durations []time.Duration
	for range 50 {
		start := time.Now()
		user.Creates(ctx, wrappers.MakeConfigMap(namespace, framework.Unique("web")))
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
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.HoldConfiguration}, configuration)).To(Succeed())
	hold.Configure(configuration, url, true, nil)
	cluster.Admin.Updates(ctx, configuration)
}

var _ = It("Only an API server with a client certificate can call the webhooks", func(ctx context.Context) {
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	options.ClientCAFile = filepath.Join(clientCertificates, "client.crt")
	options.ClientNames = []string{clientName}
	cluster.StopManager()
	DeferCleanup(restartManager)
	cluster.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(cluster.WaitForHold(ctx, options.URL)).To(Succeed())

	namespace := cluster.CreateInitializing(ctx, "verified").Name
	Eventually(func() error {
		return createOnce(ctx, cluster.Ordinary, namespace, "web").Err
	}).WithContext(ctx).Should(Satisfy(apierrors.IsTooManyRequests))

	response, err := reconnecting.Post(options.URL+"/hold", "application/json", strings.NewReader(review("{}")))
	if err == nil {
		_ = response.Body.Close()
	}
	Expect(err).To(MatchError(ContainSubstring("certificate required")))
}, SpecTimeout(10*time.Minute))

// clientName is the common name of the API server's client certificate.
const clientName = "kube-apiserver"

// writeClientCertificate writes a self-signed certificate and its key.
func writeClientCertificate(dir string) {
	GinkgoHelper()
	certificate, key := makeCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: clientName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	Expect(os.WriteFile(filepath.Join(dir, "client.crt"), certificate, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "client.key"), key, 0o600)).To(Succeed())
}

// makeCertificate returns a self-signed certificate and its key.
func makeCertificate(template *x509.Certificate) (certificate, key []byte) {
	GinkgoHelper()
	template.SerialNumber = big.NewInt(1)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// writeAdmissionConfiguration makes the API server use the certificate for all webhooks, and returns the path of the
// file.
func writeAdmissionConfiguration(dir string) string {
	GinkgoHelper()
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
users:
- name: "*"
  user: {client-certificate: %[1]s/client.crt, client-key: %[1]s/client.key}
`, dir)
	Expect(os.WriteFile(filepath.Join(dir, "webhooks.kubeconfig"), []byte(kubeconfig), 0o600)).To(Succeed())
	configuration := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		configuration += fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, "+
			"kind: WebhookAdmissionConfiguration, kubeConfigFile: %s/webhooks.kubeconfig}\n", plugin, dir)
	}
	path := filepath.Join(dir, "admission.yaml")
	Expect(os.WriteFile(path, []byte(configuration), 0o600)).To(Succeed())
	return path
}
