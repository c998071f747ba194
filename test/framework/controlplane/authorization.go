// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Authorization is a directory with the AuthorizationConfiguration of an API server. At first, it has no webhook:
// the API server starts before the manager, which issues the certificate.
type Authorization struct{ dir string }

// NewAuthorization writes the configuration to a directory.
func NewAuthorization(dir string) (*Authorization, error) {
	authorization := &Authorization{dir}
	configuration, err := authorization.withoutWebhook()
	if err != nil {
		return nil, err
	}
	return authorization, os.WriteFile(authorization.path(), []byte(configuration), 0o600)
}

// WithAuthorization makes an API server use the configuration, instead of RBAC only.
func WithAuthorization(authorization *Authorization) Option {
	return func(environment *envtest.Environment) {
		environment.ControlPlane.GetAPIServer().Configure().
			Disable("authorization-mode").Set("authorization-config", authorization.path())
	}
}

func (a *Authorization) path() string { return filepath.Join(a.dir, "authorization.yaml") }

func (a *Authorization) configuration() (string, error) {
	data, err := os.ReadFile(filepath.Join(Root(), "config", "authorization", "authorization.yaml"))
	if err != nil {
		return "", fmt.Errorf("failed to read the AuthorizationConfiguration: %w", err)
	}
	return string(data), nil
}

func (a *Authorization) withoutWebhook() (string, error) {
	configuration, err := a.configuration()
	before, _, _ := strings.Cut(configuration, "- type: Webhook\n")
	return before, err
}

// DisableAuthorization makes the API server ask no authorization webhook.
func (c *ControlPlane) DisableAuthorization(ctx context.Context, authorization *Authorization) error {
	configuration, err := authorization.withoutWebhook()
	if err != nil {
		return err
	}
	return c.setAuthorization(ctx, authorization, configuration)
}

// EnableAuthorization makes the API server ask the authorization webhook at a URL, as config/authorization describes.
// It returns when the API server uses the configuration after the changes.
func (c *ControlPlane) EnableAuthorization(
	ctx context.Context, authorization *Authorization, url string, changes ...*strings.Replacer,
) error {
	admin := filepath.Join(authorization.dir, "admin.kubeconfig")
	if err := WriteKubeconfig(admin, c.Admin); err != nil {
		return err
	}
	var stderr bytes.Buffer
	script := exec.CommandContext(ctx, filepath.Join(Root(), "config", "authorization", "kubeconfig.sh"), url)
	script.Env = append(os.Environ(), "KUBECONFIG="+admin, "KUBECTL="+c.KubectlPath())
	script.Stderr = &stderr
	kubeconfig, err := script.Output()
	if err != nil {
		return fmt.Errorf("failed to enable the authorization webhook: %w: %s", err, stderr.String())
	}
	// The API server reads the kubeconfig again only if the configuration has changed.
	file, err := os.CreateTemp(authorization.dir, "*.kubeconfig")
	if err != nil {
		return fmt.Errorf("failed to create a kubeconfig: %w", err)
	}
	_, err = file.Write(kubeconfig)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("failed to write a kubeconfig: %w", err)
	}
	configuration, err := authorization.configuration()
	if err != nil {
		return err
	}
	changes = append(changes, strings.NewReplacer("/etc/kubernetes/nslifecycle/authorization.kubeconfig", file.Name()))
	for _, change := range changes {
		configuration = change.Replace(configuration)
	}
	return c.setAuthorization(ctx, authorization, configuration)
}

func (c *ControlPlane) setAuthorization(ctx context.Context, authorization *Authorization, configuration string) error {
	if err := replaceFile(authorization.path(), []byte(configuration)); err != nil {
		return fmt.Errorf("failed to write the AuthorizationConfiguration: %w", err)
	}
	return waitForReload(ctx, c.Admin, configuration)
}

// waitForReload waits until an API server reports the hash of its configuration.
func waitForReload(ctx context.Context, admin *rest.Config, configuration string) error {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	want := fmt.Sprintf(`hash="sha256:%x"`, sha256.Sum256([]byte(configuration)))
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			return bytes.Contains(metrics, []byte(want)), err
		})
	if err != nil {
		return fmt.Errorf("failed to wait for the API server to read the AuthorizationConfiguration: %w", err)
	}
	return nil
}
