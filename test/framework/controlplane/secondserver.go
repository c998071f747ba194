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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// SecondAPIServer is another kube-apiserver that shares the etcd of a ControlPlane. It accepts the
// same client certificates and tokens as the first one.
type SecondAPIServer struct {
	process *Process
	address string
	log     string
}

// StartSecondAPIServer starts another kube-apiserver with the first one's flags and additional
// flags, such as --feature-gates=CBORServingAndStorage=true. It returns when the API server is
// ready. The caller must stop it before the ControlPlane.
func (c *ControlPlane) StartSecondAPIServer(ctx context.Context, flags ...string) (*SecondAPIServer, error) {
	return c.StartAPIServerFrom(ctx, c.assets, flags...)
}

// StartAPIServerFrom is like StartSecondAPIServer with the kube-apiserver in a directory. It can have another version.
func (c *ControlPlane) StartAPIServerFrom(
	ctx context.Context, directory string, flags ...string,
) (*SecondAPIServer, error) {
	first := c.environment.ControlPlane.GetAPIServer()
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("failed to parse address %q: %w", address, err)
	}
	log, err := os.CreateTemp(c.Dir, "second-kube-apiserver-")
	if err != nil {
		return nil, fmt.Errorf("failed to create the log of the second kube-apiserver: %w", err)
	}
	defer log.Close()
	// These are the defaults of envtest. Flags that a test has set for the first server take
	// precedence.
	args := first.Configure().AsStrings(map[string][]string{
		"service-cluster-ip-range":         {"10.0.0.0/24"},
		"allow-privileged":                 {"true"},
		"disable-admission-plugins":        {"ServiceAccount"},
		"authorization-mode":               {"RBAC"},
		"bind-address":                     {"127.0.0.1"},
		"secure-port":                      {port},
		"cert-dir":                         {first.CertDir},
		"service-account-issuer":           {first.SecureServing.URL("https", "/").String()},
		"service-account-key-file":         {filepath.Join(first.CertDir, "sa-signer.crt")},
		"service-account-signing-key-file": {filepath.Join(first.CertDir, "sa-signer.key")},
	})
	// The first server can use a proxy.
	args = slices.DeleteFunc(args, isEtcdServers)
	if !slices.ContainsFunc(flags, isEtcdServers) {
		args = append(args, "--etcd-servers="+c.EtcdURL())
	}
	process, err := StartProcess(log, filepath.Join(directory, "kube-apiserver"), append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	second := &SecondAPIServer{process: process, address: address, log: log.Name()}
	if err := second.waitUntilReady(ctx, c.Admin); err != nil {
		return nil, errors.Join(err, process.Kill())
	}
	return second, nil
}

func isEtcdServers(flag string) bool { return strings.HasPrefix(flag, "--etcd-servers=") }

func (s *SecondAPIServer) waitUntilReady(ctx context.Context, admin *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(s.ConfigFor(admin))
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := clientset.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Ended():
			log, _ := os.ReadFile(s.log)
			return fmt.Errorf("the second kube-apiserver exited: %s", lastOf(string(log)))
		case <-ctx.Done():
			return fmt.Errorf("the second kube-apiserver is not ready: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ConfigFor returns a client configuration for this API server with the credentials in config.
func (s *SecondAPIServer) ConfigFor(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + s.address
	return config
}

// Pause sends SIGSTOP to the process. Its caches are stale until Resume is called.
func (s *SecondAPIServer) Pause() error {
	return s.process.command.Process.Signal(syscall.SIGSTOP)
}

// Resume resumes the process after Pause.
func (s *SecondAPIServer) Resume() error {
	return s.process.command.Process.Signal(syscall.SIGCONT)
}

// Stop kills the process, even if it is paused.
func (s *SecondAPIServer) Stop() error { return s.process.Kill() }

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
