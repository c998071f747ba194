// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// minNamespaces is the number of namespaces that the traffic must create and delete.
const minNamespaces = 100

// disruption is a failure or a change that occurs during the traffic.
type disruption struct {
	name string
	do   func(ctx context.Context, managers *replicas)
}

var disruptions = []disruption{
	{"no disruption", func(context.Context, *replicas) {}},
	{"the leader is terminated", func(ctx context.Context, managers *replicas) {
		leader := managers.leader(ctx)
		leader.Terminate()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit(0))
	}},
	{"the leader is killed", func(ctx context.Context, managers *replicas) {
		leader := managers.leader(ctx)
		leader.Kill()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit())
	}},
	{"the API server is killed", func(ctx context.Context, _ *replicas) {
		Expect(plane.KillAPIServer(ctx)).To(Succeed())
		Expect(plane.StartAPIServer()).To(Succeed())
	}},
	// The API server is killed because clients keep their connections until the server closes them.
	{"the API server's certificate is replaced and the server is killed", func(ctx context.Context, _ *replicas) {
		before := servingCertificate(ctx, plane.Admin)
		Expect(authority.Rotate()).To(Succeed())
		Eventually(func() string { return servingCertificate(ctx, plane.Admin) }).
			WithContext(ctx).WithTimeout(2 * time.Minute).ShouldNot(Equal(before))
		Expect(plane.KillAPIServer(ctx)).To(Succeed())
		Expect(plane.StartAPIServer()).To(Succeed())
	}},
	{"a new version of CRDs, RBAC objects and policies is installed", func(ctx context.Context, _ *replicas) {
		upgrade(ctx)
	}},
}

var _ = Describe("Namespaces are created and deleted", func() {
	It("while managers, the API server, certificates and CRDs are disrupted", func(ctx context.Context) {
		managers := startReplicas(managerConfig(ctx), 2, "--leader-elect", "--metrics-bind-address=0")
		managers.leader(ctx)
		expectEnforced(ctx)
		namespaces := startTraffic(ctx, nil)
		var report strings.Builder
		for _, disruption := range disruptions {
			By(disruption.name)
			start := time.Now()
			disruption.do(ctx, managers)
			took := time.Since(start)
			initialized, removed := namespaces.recovery(ctx, start)
			fmt.Fprintf(&report, "%-68s took %5.1f s, next initialized after %5.1f s, next removed after %5.1f s\n",
				disruption.name, took.Seconds(), initialized.Seconds(), removed.Seconds())
		}
		// Continue the traffic after the last disruption.
		Eventually(namespaces.count).WithContext(ctx).Should(BeNumerically(">=", minNamespaces))
		namespaces.stop()
		AddReportEntry("recovery", report.String())
		namespaces.expectRemoved()
	}, SpecTimeout(8*time.Minute))
})

// expectEnforced waits until the initializers are injected, and makes the API server reject namespaces that it
// cannot inject them into.
func expectEnforced(ctx context.Context) {
	GinkgoHelper()
	cluster.ExpectActive(ctx, "chaos")
	if servesPolicies {
		// The manager would make this change later, depending on the age of the NamespaceInitializerSet.
		_, err := plane.Kubectl(ctx, plane.Admin, "patch", "mutatingadmissionpolicy", v1alpha1.InjectConfiguration,
			"--type=merge", `--patch={"spec":{"failurePolicy":"Fail"}}`)
		Expect(err).NotTo(HaveOccurred())
		return
	}
	expectFail(ctx)
}

// expectFail waits until API servers reject namespaces for which the webhook fails.
func expectFail(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		webhooks := &admissionv1.MutatingWebhookConfiguration{}
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: v1alpha1.InjectConfiguration}, webhooks)).To(Succeed())
		g.Expect(webhooks.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The manager", func() {
	It("reloads the certificate of its metrics endpoint", func(ctx context.Context) {
		dir, address := GinkgoT().TempDir(), framework.FreeAddress()
		replaceMetricsCertificate(dir, "first.example.com")
		runManager(binary, managerConfig(ctx), controlplane.WithoutAdmission, "--metrics-bind-address="+address, "--metrics-cert-path="+dir)
		served := func() string { return commonName(address) }
		Eventually(served).WithContext(ctx).Should(HavePrefix("first.example.com"))
		replaceMetricsCertificate(dir, "second.example.com")
		Eventually(served).WithContext(ctx).Should(HavePrefix("second.example.com"))
	}, SpecTimeout(5*time.Minute))
})

// upgrade installs the manifests again, and changes each CRD as a new version would: it adds a
// printer column and a schema field.
func upgrade(ctx context.Context) {
	GinkgoHelper()
	Expect(plane.Install(ctx)).To(Succeed())
	var crds apiextensionsv1.CustomResourceDefinitionList
	Expect(admin.List(ctx, &crds)).To(Succeed())
	changed := 0
	for _, crd := range crds.Items {
		if crd.Spec.Group != "nslifecycle.dev" {
			continue
		}
		before := crd.DeepCopy()
		version := &crd.Spec.Versions[0]
		version.AdditionalPrinterColumns = append(version.AdditionalPrinterColumns,
			apiextensionsv1.CustomResourceColumnDefinition{Name: "Next", Type: "string", JSONPath: ".next"})
		version.Schema.OpenAPIV3Schema.Properties["next"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		Expect(admin.Patch(ctx, &crd, client.MergeFrom(before))).To(Succeed())
		changed++
	}
	Expect(changed).To(Equal(3))
}

// servingCertificate returns the serial number of the certificate that the server presents to new
// connections.
func servingCertificate(ctx context.Context, config *rest.Config) string {
	GinkgoHelper()
	pool := x509.NewCertPool()
	Expect(pool.AppendCertsFromPEM(config.CAData)).To(BeTrue())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	connection, err := dialer.DialContext(ctx, "tcp", strings.Trim(strings.TrimPrefix(config.Host, "https:"), "/"))
	Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func commonName(address string) string {
	// The test reads only the name in the self-signed certificate.
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return ""
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func replaceMetricsCertificate(dir, host string) {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
}
