// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/parts"
)

// The names of the operator's objects in config/default.
const (
	SystemNamespace  = "nslifecycle-system"
	SourceNamespace  = "nslifecycle-sources"
	ServiceAccount   = parts.ControllerManager
	AdmissionAccount = parts.Admission
)

const (
	startTimeout      = 5 * time.Minute
	serverStopTimeout = 90 * time.Second
	// tokenLifetime is long enough for any session with the demo.
	tokenLifetime = 24 * time.Hour
)

// ControlPlane is a running API server with its etcd.
type ControlPlane struct {
	// Admin is the configuration of a member of system:masters.
	Admin *rest.Config
	// Dir is a temporary directory, which Stop removes.
	Dir string

	environment *envtest.Environment
	assets      string
	// admission are the managers that StartAdmission has started.
	admission []*Manager
}

// Option changes how the control plane is started.
type Option func(*envtest.Environment)

// WithAPIServerFlag adds a flag to kube-apiserver, named without the leading dashes.
func WithAPIServerFlag(name string, values ...string) Option {
	return func(environment *envtest.Environment) {
		environment.ControlPlane.GetAPIServer().Configure().Set(name, values...)
	}
}

// WithMutatingPolicies enables or disables MutatingAdmissionPolicy v1. Only an API server that enables it by default
// has it.
func WithMutatingPolicies(isEnabled bool) Option {
	// The admission plugin would reject all requests if the type is not served. envtest disables ServiceAccount.
	plugins := []string{"ServiceAccount"}
	if !isEnabled {
		plugins = append(plugins, "MutatingAdmissionPolicy")
	}
	types := "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=%[1]t," +
		"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=%[1]t"
	return func(environment *envtest.Environment) {
		for name, value := range map[string]string{
			"disable-admission-plugins": strings.Join(plugins, ","), "runtime-config": fmt.Sprintf(types, isEnabled),
		} {
			WithAPIServerFlag(name, value)(environment)
		}
	}
}

// WithEtcdFlag adds a flag to etcd, named without the leading dashes.
func WithEtcdFlag(name string, values ...string) Option {
	return func(environment *envtest.Environment) { etcdOf(environment).Configure().Set(name, values...) }
}

// WithEtcdAddress sets the host and the port of etcd.
func WithEtcdAddress(address string) Option {
	return func(environment *envtest.Environment) {
		etcdOf(environment).URL = &url.URL{Scheme: "http", Host: address}
	}
}

func etcdOf(environment *envtest.Environment) *envtest.Etcd {
	if environment.ControlPlane.Etcd == nil {
		environment.ControlPlane.Etcd = &envtest.Etcd{}
	}
	return environment.ControlPlane.Etcd
}

// Start starts a control plane, which runs until Stop is called. It uses the binaries in
// KUBEBUILDER_ASSETS, or those that hack/control-plane.sh finds or builds. Even if the context is
// canceled, Start returns only when the processes are ready or have failed, so that no process is
// leaked.
func Start(ctx context.Context, options ...Option) (*ControlPlane, error) {
	assets, err := FindAssets(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nslifecycle-")
	if err != nil {
		return nil, fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		// Override the environment variable USE_EXISTING_CLUSTER, because tests must never change a
		// user's cluster.
		UseExistingCluster:       ptr.To(false),
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  serverStopTimeout,
	}
	// Only this machine reaches the API server. By default, its address is that of the default route, which
	// a machine without network does not have, and endpoints of the Service cannot be loopback addresses.
	environment.ControlPlane.GetAPIServer().Configure().
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none")
	for _, option := range options {
		option(environment)
	}
	// Each start occupies a processor for seconds, and suites start in parallel. So at most two start at the same time.
	unlock, err := lock(filepath.Join(Root(), "bin", "test", fmt.Sprintf(".start-%d", rand.IntN(2))))
	if err != nil {
		return nil, err
	}
	admin, err := environment.Start()
	unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("failed to start kube-apiserver and etcd from %s: %w", assets, err),
			environment.Stop(), os.RemoveAll(dir))
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), environment.Stop(), os.RemoveAll(dir))
	}
	return &ControlPlane{Admin: admin, Dir: dir, environment: environment, assets: assets}, nil
}

// Stop stops the control plane and removes its files.
func (c *ControlPlane) Stop() error {
	var errs []error
	for _, admission := range c.admission {
		errs = append(errs, admission.Stop())
	}
	return errors.Join(append(errs, c.environment.Stop(), os.RemoveAll(c.Dir))...)
}

// EtcdURL returns the address of etcd, which does not use TLS. Tests can write states to etcd that
// the API server rejects.
func (c *ControlPlane) EtcdURL() string {
	return c.environment.ControlPlane.Etcd.URL.String()
}

// User creates a client certificate and returns the configuration of the user.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.environment.AddUser(envtest.User{Name: name, Groups: groups}, rest.CopyConfig(c.Admin))
	if err != nil {
		return nil, fmt.Errorf("failed to add user %q: %w", name, err)
	}
	return user.Config(), nil
}

// ServiceAccountConfig returns a configuration with a token of a ServiceAccount.
func (c *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	clientset, err := kubernetes.NewForConfig(c.Admin)
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds())),
		}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to create a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(c.Admin)
	config.BearerToken = token.Status.Token
	config.QPS = -1
	return config, nil
}

// Install applies config/default without the webhooks that hold writes and validate templates: the API server cannot
// reach a Service, so each early write, and each write of a template, would wait until the webhooks time out.
func (c *ControlPlane) Install(ctx context.Context) error {
	return c.InstallFrom(ctx, "default")
}

// InstallFrom is like Install for the given directory in config, such as default. It does not apply the webhooks that
// inject again if a manager has given them a URL: a webhook cannot have both a URL and a Service.
func (c *ControlPlane) InstallFrom(ctx context.Context, directory string) error {
	manifest, err := c.Kubectl(ctx, c.Admin, "kustomize", filepath.Join(Root(), "config", directory))
	if err != nil {
		return err
	}
	address, err := c.Kubectl(ctx, c.Admin, "get", "mutatingwebhookconfiguration", internalv1alpha1.InjectConfiguration,
		"--ignore-not-found", "--output=jsonpath={.webhooks[*].clientConfig.url}")
	if err != nil {
		return err
	}
	objects := slices.DeleteFunc(strings.Split(manifest, "---\n"), func(object string) bool {
		return strings.Contains(object, "WebhookConfiguration\nmetadata:\n") &&
			(address != "" || !strings.Contains(object, "name: "+internalv1alpha1.InjectConfiguration))
	})
	_, err = c.KubectlWithInput(ctx, c.Admin, strings.Join(objects, "---\n"), "apply", "-f", "-")
	return err
}

// InstallPolicies applies config/mutating and config/validating, as the manager does, for tests without a manager.
func (c *ControlPlane) InstallPolicies(ctx context.Context) error {
	admin, err := NewClient(c.Admin)
	if err != nil {
		return err
	}
	for _, policy := range slices.Concat(policies.Validating(false), policies.Mutating(), policies.InjectBinding()) {
		err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy), client.FieldOwner("test"),
			client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("failed to apply %s %q: %w", policy.GetKind(), policy.GetName(), err)
		}
	}
	return nil
}

// InstallHold applies the given directory in config, such as default, as described in the
// documentation.
func (c *ControlPlane) InstallHold(ctx context.Context, directory string) error {
	_, err := c.Kubectl(ctx, c.Admin, "apply", "-k", filepath.Join(Root(), "config", directory))
	return err
}

// Kubectl runs kubectl as the user of a configuration and returns its output. The
// error of a failed command contains its stderr.
func (c *ControlPlane) Kubectl(ctx context.Context, config *rest.Config, args ...string) (string, error) {
	return c.KubectlWithInput(ctx, config, "", args...)
}

// KubectlWithInput is like Kubectl with input on stdin.
func (c *ControlPlane) KubectlWithInput(
	ctx context.Context, config *rest.Config, input string, args ...string,
) (string, error) {
	kubeconfig, err := os.CreateTemp(c.Dir, "kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("failed to create a kubeconfig: %w", err)
	}
	defer os.Remove(kubeconfig.Name())
	if err := errors.Join(kubeconfig.Close(), WriteKubeconfig(kubeconfig.Name(), config)); err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	command := c.KubectlCommand(ctx, kubeconfig.Name(), args...)
	command.Stdin = strings.NewReader(input)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s",
			strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// KubectlCommand returns a kubectl command that has not been started, for callers that have a
// kubeconfig file and handle input and output themselves.
func (c *ControlPlane) KubectlCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.KubectlPath(),
		append([]string{"--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(c.Dir, "cache")}, args...)...)
}

// KubectlPath returns the path of the control plane's kubectl. If it does not exist, KubectlPath
// returns "kubectl", so that the kubectl in PATH is used.
func (c *ControlPlane) KubectlPath() string {
	path := filepath.Join(c.assets, "kubectl")
	if _, err := os.Stat(path); err != nil {
		return "kubectl"
	}
	return path
}

// WriteKubeconfig writes a configuration to a kubeconfig file that only its owner can
// read.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "nslifecycle"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.CurrentContext = name
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData,
	}
	user := &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		Impersonate: config.Impersonate.UserName, ImpersonateGroups: config.Impersonate.Groups,
	}
	kubeconfig.AuthInfos[name] = user
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("failed to write kubeconfig %s: %w", path, err)
	}
	return nil
}

// Root returns the root directory of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	if filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..", "..")
	}
	// With -trimpath, the file name is not absolute. Search the parents of the working directory.
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, statErr := os.Stat(filepath.Join(dir, "PROJECT")); statErr == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}

// FindAssets returns the directory that contains kube-apiserver and etcd. The flags of
// hack/control-plane.sh select additional binaries.
func FindAssets(ctx context.Context, flags ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(Root(), "hack", "control-plane.sh"), flags...)
	command.Stderr = os.Stderr
	// Send SIGTERM instead of SIGKILL, so that the script removes incomplete files.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("failed to get the binaries of the control plane: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}
