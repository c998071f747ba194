// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

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
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = It("Only an API server with a client certificate can call the webhooks", func(ctx context.Context) {
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	writeClientCertificate(dir, "kube-apiserver")
	options.ClientCAFile = filepath.Join(dir, "client.crt")
	options.ClientNames = []string{"kube-apiserver"}
	_, port, err := net.SplitHostPort(options.Address)
	Expect(err).NotTo(HaveOccurred())
	own := framework.Start(ctx, controlplane.WithAPIServerFlag("admission-control-config-file",
		writeAdmissionConfiguration(dir, "localhost:"+port)))
	Expect(own.InstallHold(ctx, "default")).To(Succeed())
	own.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(own.WaitForHold(ctx, options.URL)).To(Succeed())

	namespace := own.CreateInitializing(ctx, "verified").Name
	Eventually(func() error {
		return own.Ordinary.Clientset().CoreV1().RESTClient().Post().MaxRetries(0).Namespace(namespace).
			Resource("configmaps").Body(wrappers.MakeConfigMap(namespace, "web")).Do(ctx).Error()
	}).WithContext(ctx).Should(Satisfy(apierrors.IsTooManyRequests))

	response, err := client.Post(options.URL+"/hold", "application/json", strings.NewReader(review("{}")))
	if err == nil {
		_ = response.Body.Close()
	}
	Expect(err).To(MatchError(ContainSubstring("certificate required")))
}, SpecTimeout(10*time.Minute))

// writeClientCertificate writes a self-signed certificate and its key.
func writeClientCertificate(dir, name string) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	for file, block := range map[string]*pem.Block{
		"client.crt": {Type: "CERTIFICATE", Bytes: der}, "client.key": {Type: "EC PRIVATE KEY", Bytes: encoded},
	} {
		Expect(os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600)).To(Succeed())
	}
}

// writeAdmissionConfiguration makes the API server use the certificate for a host, and returns the path of the file.
func writeAdmissionConfiguration(dir, host string) string {
	GinkgoHelper()
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
users:
- name: %s
  user: {client-certificate: %[2]s/client.crt, client-key: %[2]s/client.key}
`, host, dir)
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
