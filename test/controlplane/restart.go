// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const certificateLifetime = 24 * time.Hour

// validSince returns the start of the validity of certificates. Clients can have slow clocks.
func validSince() time.Time { return time.Now().Add(-2 * time.Hour) }

// Authority signs the serving certificates of one API server, so that clients trust each of them.
type Authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// WithRestarts allows killing the API server, restarting it with the same keys, and replacing its
// certificate. By default, envtest creates a new certificate authority at each start, and existing clients do
// not trust it. It also allows killing etcd and restarting it with the same data, which by default are in
// a directory that only the running process uses.
func WithRestarts(ca *Authority) Option {
	return func(environment *envtest.Environment) {
		etcdOf(environment).DataDir = filepath.Join(ca.dir, "etcd")
		server := environment.ControlPlane.GetAPIServer()
		server.CertDir = ca.dir
		server.CA = pemOf(cert.CertificateBlockType, ca.certificate.Raw)
	}
}

// NewAuthority creates the keys of an API server in a directory.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("failed to create the key of the authority: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test", NotBefore: validSince()}, key)
	if err != nil {
		return nil, fmt.Errorf("failed to create the certificate of the authority: %w", err)
	}
	ca := &Authority{dir: dir, key: key, certificate: certificate}
	signer, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("failed to create the key for ServiceAccount tokens: %w", err)
	}
	return ca, errors.Join(
		// The API server derives the public key from the private key.
		os.WriteFile(filepath.Join(dir, "sa-signer.key"), signer, 0o600),
		os.WriteFile(filepath.Join(dir, "sa-signer.crt"), signer, 0o600),
		ca.Rotate())
}

// Rotate replaces the key and certificate of the API server. A running API server reloads them
// within a minute.
func (a *Authority) Rotate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("failed to create a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return fmt.Errorf("failed to create a serial number: %w", err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: validSince(), NotAfter: time.Now().Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("failed to sign a certificate: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("failed to encode a key: %w", err)
	}
	// Replace each file atomically, because the API server can read it at any time.
	return errors.Join(
		replaceFile(filepath.Join(a.dir, "apiserver.key"), pemOf(keyutil.ECPrivateKeyBlockType, der)),
		replaceFile(filepath.Join(a.dir, "apiserver.crt"), pemOf(cert.CertificateBlockType, raw)))
}

func pemOf(block string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der})
}

func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// KillAPIServer kills the API server to simulate a crash.
func (c *ControlPlane) KillAPIServer(ctx context.Context) error {
	return kill(ctx, "kube-apiserver.*secure-port="+c.environment.ControlPlane.GetAPIServer().Port)
}

// StartAPIServer restarts, with changed options, an API server that was started with WithRestarts and has exited. It
// returns when the API server is ready.
func (c *ControlPlane) StartAPIServer(options ...Option) error {
	for _, option := range options {
		option(c.environment)
	}
	return c.environment.ControlPlane.GetAPIServer().Start()
}

// KillEtcd kills etcd to simulate a crash.
func (c *ControlPlane) KillEtcd(ctx context.Context) error {
	return kill(ctx, "etcd.*listen-client-urls="+c.EtcdURL())
}

// StartEtcd restarts etcd, with changed options, if the control plane was started with WithRestarts and etcd
// has exited. It returns when etcd is ready.
func (c *ControlPlane) StartEtcd(options ...Option) error {
	for _, option := range options {
		option(c.environment)
	}
	return c.environment.ControlPlane.Etcd.Start()
}

// kill kills the process with the command line, since envtest does not export the processes. It returns when the
// process has released its ports and files.
func kill(ctx context.Context, command string) error {
	output, err := exec.CommandContext(ctx, "pgrep", "-f", command+"( |$)").Output()
	if err != nil {
		return fmt.Errorf("failed to find the process %s: %w", command, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil {
		return fmt.Errorf("failed to find the only process %s: %w", command, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("failed to kill %s: %w", command, err)
	}
	for syscall.Kill(pid, 0) == nil { // until envtest has waited for the process
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
