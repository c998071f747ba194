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
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const certificateLifetime = 24 * time.Hour

// Authority signs the certificates of one API server, so that there can be another one that
// its clients trust as well.
type Authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// WithRestarts lets the API server be killed and started again with the keys that it had,
// and lets its certificate be replaced. envtest would make new ones each time, which no
// client trusts.
func WithRestarts(ca *Authority) Option {
	return func(environment *envtest.Environment) {
		server := environment.ControlPlane.GetAPIServer()
		server.CertDir = ca.dir
		server.CA = pemOf(cert.CertificateBlockType, ca.certificate.Raw)
	}
}

// NewAuthority puts the keys of an API server into a directory.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test"}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the authority: %w", err)
	}
	ca := &Authority{dir: dir, key: key, certificate: certificate}
	signer, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("making the key for the tokens of ServiceAccounts: %w", err)
	}
	return ca, errors.Join(
		// The API server takes the public half from the file of the private key.
		os.WriteFile(filepath.Join(dir, "sa-signer.key"), signer, 0o600),
		os.WriteFile(filepath.Join(dir, "sa-signer.crt"), signer, 0o600),
		ca.Rotate())
}

// Rotate gives the API server a new key and certificate. A running one notices by itself,
// within a minute.
func (a *Authority) Rotate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return fmt.Errorf("making a serial number: %w", err)
	}
	now := time.Now()
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("signing a certificate: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	// Each by a rename, as the API server may look in between.
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

// KillAPIServer ends the API server as a crash would.
func (c *ControlPlane) KillAPIServer(ctx context.Context) error {
	flag := "secure-port=" + c.environment.ControlPlane.GetAPIServer().Port
	output, err := exec.CommandContext(ctx, "pkill", "-KILL", "-f", "kube-apiserver.*"+flag).CombinedOutput()
	if err != nil {
		return fmt.Errorf("killing the API server: %w: %s", err, output)
	}
	return nil
}

// StartAPIServer starts one again that was started WithRestarts and has ended, and returns
// when it is up.
func (c *ControlPlane) StartAPIServer() error {
	return c.environment.ControlPlane.GetAPIServer().Start()
}
