// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
