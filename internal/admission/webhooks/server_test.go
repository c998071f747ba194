// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
)

type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue returns a certificate for localhost and the common name. Without a CA, it returns a CA.
func (i *issuer) issue(g Gomega, name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        i.certificate == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if i.certificate == nil {
		i.certificate, i.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.certificate, key.Public(), i.key)
	g.Expect(err).NotTo(HaveOccurred())
	leaf, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	if template.IsCA {
		i.certificate = leaf
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newIssuer(g Gomega) *issuer {
	created := &issuer{}
	created.issue(g, "ca")
	return created
}

func (i *issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})
}

// start serves webhooks until the test ends, and returns the address.
func start(t *testing.T, options Options, webhooks ...Webhook) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	address, stopped := startUntil(t, ctx, options, webhooks...)
	t.Cleanup(func() {
		stop()
		NewWithT(t).Expect(<-stopped).To(Succeed())
	})
	return address
}

// startUntil serves webhooks until the context ends, and returns the address and the result.
func startUntil(t *testing.T, ctx context.Context, options Options, webhooks ...Webhook) (string, <-chan error) {
	t.Helper()
	g := NewWithT(t)
	certificate := &Certificate{}
	serving := newIssuer(g).issue(g, "localhost")
	certificate.current.Store(&serving)
	config, err := tlsConfig(options, certificate)
	g.Expect(err).NotTo(HaveOccurred())
	server := newServer("", config, logr.Discard())
	for _, webhook := range webhooks {
		server.Register(webhook)
	}
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	stopped := make(chan error, 1)
	go func() { stopped <- server.serve(ctx, tcp) }()
	return tcp.Addr().String(), stopped
}

func newClient(certificates ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
	}}
}

func allow(_ context.Context, request *Request) (*admissionv1.AdmissionResponse, error) {
	request.Serving()
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func TestServer(t *testing.T) {
	g := NewWithT(t)
	address := start(t, Options{},
		Webhook{Path: "/head", Handle: allow},
		Webhook{Path: "/object", Fields: allFields, Handle: allow},
		Webhook{Path: "/panic", Handle: func(context.Context, *Request) (*admissionv1.AdmissionResponse, error) { panic("no") }},
		Webhook{Path: "/error", Handle: func(context.Context, *Request) (*admissionv1.AdmissionResponse, error) {
			return nil, errors.New("no")
		}},
	)
	large := encode(g, `{"data":"`+strings.Repeat("<", 3<<20)+`"}`)
	valid := encode(g, "{}")
	tests := map[string]struct {
		path, body string
		change     func(*http.Request)
		want       int
	}{
		"a review":                       {path: "/head?timeout=15s", body: valid, want: http.StatusOK},
		"a review with the object":       {path: "/object", body: valid, want: http.StatusOK},
		"the largest object":             {path: "/head", body: large, want: http.StatusOK},
		"a large object that is decoded": {path: "/object", body: large, want: http.StatusRequestEntityTooLarge},
		"many groups":                    {path: "/head", body: strings.Replace(valid, `"groups":["a`, `"groups":["a`+strings.Repeat("a", maxHead), 1), want: http.StatusOK},
		"a long user name":               {path: "/head", body: strings.Replace(valid, `"alice`, `"alice`+strings.Repeat("a", maxHead), 1), want: http.StatusRequestEntityTooLarge},
		"another path":                   {path: "/", body: valid, want: http.StatusNotFound},
		"an error":                       {path: "/error", body: valid, want: http.StatusServiceUnavailable},
		"a panic":                        {path: "/panic", body: valid, want: http.StatusInternalServerError},
		"GET":                            {path: "/head", body: valid, change: func(r *http.Request) { r.Method = http.MethodGet }, want: http.StatusMethodNotAllowed},
		"YAML": {path: "/head", body: valid, change: func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") },
			want: http.StatusUnsupportedMediaType},
		"YAML called JSON": {path: "/head", body: "request: {uid: a}", want: http.StatusBadRequest},
		"compressed": {path: "/head", body: valid, change: func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
			want: http.StatusUnsupportedMediaType},
		"without a length": {path: "/head", body: valid, change: func(r *http.Request) { r.ContentLength = -1 },
			want: http.StatusLengthRequired},
		"a long header": {path: "/head", body: valid, change: func(r *http.Request) { r.Header.Set("X", strings.Repeat("a", 1<<15)) },
			want: http.StatusRequestHeaderFieldsTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+test.path,
				strings.NewReader(test.body))
			g.Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", contentType)
			if test.change != nil {
				test.change(request)
			}
			response, err := newClient().Do(request)
			g.Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			g.Expect(response.StatusCode).To(Equal(test.want))
			if test.want == http.StatusOK {
				review := &admissionv1.AdmissionReview{}
				g.Expect(json.NewDecoder(response.Body).Decode(review)).To(Succeed())
				g.Expect(review.Kind).To(Equal("AdmissionReview"))
				g.Expect(review.Response).To(Equal(&admissionv1.AdmissionResponse{UID: "1", Allowed: true}))
			}
		})
	}
}

// TestShutdown verifies that the server answers the last requests before the manager exits.
func TestShutdown(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	began, proceed := make(chan struct{}), make(chan struct{})
	address, stopped := startUntil(t, ctx, Options{}, Webhook{Path: "/slow",
		Handle: func(ctx context.Context, request *Request) (*admissionv1.AdmissionResponse, error) {
			close(began)
			<-proceed
			return allow(ctx, request)
		}})
	responses := make(chan error, 1)
	go func() {
		response, err := newClient().Post("https://"+address+"/slow", "application/json", strings.NewReader(encode(g, "{}")))
		if err == nil {
			err = response.Body.Close()
		}
		responses <- err
	}()
	<-began
	stop()
	g.Consistently(stopped).WithTimeout(200 * time.Millisecond).ShouldNot(Receive())
	close(proceed)
	g.Expect(<-responses).To(Succeed())
	g.Expect(<-stopped).To(Succeed())
}

func TestTooLarge(t *testing.T) {
	g := NewWithT(t)
	request := &http.Request{
		Method: http.MethodPost, Header: http.Header{"Content-Type": {contentType}}, ContentLength: maxBody,
	}
	g.Expect(refuse(request)).To(BeNil())
	request.ContentLength++
	g.Expect(refuse(request).code).To(Equal(http.StatusRequestEntityTooLarge))
}

// TestConnections verifies that unfinished connections of any kind give way to newer ones, and that those whose
// requests are being served do not.
func TestConnections(t *testing.T) {
	release, served := make(chan struct{}), make(chan struct{}, 1)
	address := start(t, Options{},
		Webhook{Path: "/head", Handle: allow},
		Webhook{Path: "/wait", Handle: func(ctx context.Context, r *Request) (*admissionv1.AdmissionResponse, error) {
			r.Serving()
			served <- struct{}{}
			<-release
			return allow(ctx, r)
		}},
	)
	g := NewWithT(t)
	post := func(path string) (int, error) {
		response, err := newClient().Post("https://"+address+path, contentType, strings.NewReader(encode(g, "{}")))
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	waiting := make(chan int)
	go func() {
		code, err := post("/wait")
		g.Expect(err).NotTo(HaveOccurred())
		waiting <- code
	}()
	<-served
	config := &tls.Config{InsecureSkipVerify: true}
	for name, begin := range map[string]func(net.Conn) error{
		"no handshake":        func(net.Conn) error { return nil },
		"part of a handshake": func(c net.Conn) error { _, err := c.Write([]byte{22, 3, 1, 16, 0, 1, 0}); return err },
		"no header":           func(c net.Conn) error { return tls.Client(c, config).Handshake() },
		"part of a header": func(c net.Conn) error {
			_, err := tls.Client(c, config).Write([]byte("POST /head HTTP/1.1\r\nHost: a\r\n"))
			return err
		},
		"part of a body": func(c net.Conn) error {
			_, err := tls.Client(c, config).Write([]byte(
				"POST /head HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for range limitedhttp.MaxConnections + 10 {
				connection, err := net.Dial("tcp", address)
				g.Expect(err).NotTo(HaveOccurred())
				defer connection.Close()
				g.Expect(begin(connection)).To(Succeed())
			}
			g.Expect(post("/head")).To(Equal(http.StatusOK))
		})
	}
	close(release)
	g.Expect(<-waiting).To(Equal(http.StatusOK))
}

// TestEndlessHandshake verifies that the server does not buffer what precedes the body without limits.
func TestEndlessHandshake(t *testing.T) {
	g := NewWithT(t)
	address := start(t, Options{})
	connection, err := net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	// A ClientHello of 16 MiB in records of 16 KiB.
	record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 1<<14)...)
	copy(record[5:], []byte{1, 0xff, 0xff, 0xff})
	_, err = io.Copy(connection, io.MultiReader(bytes.NewReader(record), endless{}))
	g.Expect(err).To(HaveOccurred())
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestClientCertificates(t *testing.T) {
	g := NewWithT(t)
	ca, other := newIssuer(g), newIssuer(g)
	file := filepath.Join(t.TempDir(), "ca.crt")
	g.Expect(os.WriteFile(file, ca.pem(), 0o600)).To(Succeed())
	tests := map[string]struct {
		names        []string
		certificates []tls.Certificate
		want         bool
	}{
		"any name":        {certificates: []tls.Certificate{ca.issue(g, "apiserver")}, want: true},
		"an allowed name": {names: []string{"other", "apiserver"}, certificates: []tls.Certificate{ca.issue(g, "apiserver")}, want: true},
		"another name":    {names: []string{"apiserver"}, certificates: []tls.Certificate{ca.issue(g, "pod")}},
		"another CA":      {certificates: []tls.Certificate{other.issue(g, "apiserver")}},
		"no certificate":  {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			address := start(t, Options{ClientCAFile: file, ClientNames: test.names}, Webhook{Path: "/head", Handle: allow})
			response, err := newClient(test.certificates...).Post("https://"+address+"/head", contentType,
				strings.NewReader(encode(g, "{}")))
			if !test.want {
				g.Expect(err).To(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		})
	}
	_, err := tlsConfig(Options{ClientCAFile: filepath.Join(t.TempDir(), "missing")}, &Certificate{})
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
