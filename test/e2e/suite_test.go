// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	systemNamespace = controlplane.SystemNamespace
	deploymentName  = "nslifecycle-controller-manager"
	// defaultImage is the image of config/default.
	defaultImage = "ghcr.io/nslifecycle/nslifecycle:latest"
	// accounts is the namespace of the ServiceAccounts that act as users.
	accounts = "nslifecycle-e2e-accounts"
)

var (
	// restConfig is the administrator's configuration from KUBECONFIG.
	restConfig *rest.Config
	admin      client.Client
	// image is used by the manager and all other Pods, because no other image is guaranteed to be
	// available.
	image = cmp.Or(os.Getenv("IMG"), defaultImage)
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	// Pods start slowly.
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()

	var err error
	restConfig, err = config.GetConfig()
	Expect(err).NotTo(HaveOccurred(), "these specs need a cluster: see `make test-e2e`")
	restConfig = controlplane.Unlimited(restConfig)
	admin, err = controlplane.NewClient(restConfig)
	Expect(err).NotTo(HaveOccurred())

	var namespaces corev1.NamespaceList
	Expect(admin.List(ctx, &namespaces)).To(Succeed())
	for _, namespace := range namespaces.Items {
		Expect(namespace.Name).NotTo(Equal(systemNamespace),
			"nslifecycle is installed in this cluster, and these specs would remove it: use another cluster, or remove nslifecycle first")
	}

	DeferCleanup(uninstall, NodeTimeout(5*time.Minute))
	if image == defaultImage {
		kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "default"))
	} else {
		makeTarget(ctx, "deploy", "IMG="+image)
	}
	kubectl(ctx, "--namespace="+systemNamespace, "rollout", "status", "deployment/"+deploymentName, "--timeout=3m")
	kubectl(ctx, "create", "namespace", accounts)
}, NodeTimeout(10*time.Minute))

// uninstall removes everything that the suite created, and checks the remaining namespaces.
func uninstall(ctx context.Context) {
	if CurrentSpecReport().Failed() || GinkgoT().Failed() {
		output, err := run(ctx, kubectlCommand(), "--namespace="+systemNamespace, "logs", "--prefix", "--tail=200",
			"--selector=control-plane=controller-manager")
		AddReportEntry("log of the managers", output, fmt.Sprint(err))
	}
	kubectl(ctx, "delete", "namespaces", "--selector="+e2eLabel, "--wait=false")
	kubectl(ctx, "delete", "--ignore-not-found", "namespace", accounts)
	Eventually(func() string {
		return kubectl(ctx, "get", "namespaces", "--selector="+e2eLabel, "--output=name")
	}).WithContext(ctx).Should(BeEmpty())
	makeTarget(ctx, "undeploy", "UNDEPLOY_TIMEOUT=20s")

	var namespaces corev1.NamespaceList
	Expect(admin.List(ctx, &namespaces)).To(Succeed())
	for _, namespace := range namespaces.Items {
		Expect(namespace.Name).NotTo(Equal(systemNamespace))
		Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), namespace.Name)
	}
}

func kubectlCommand() string { return cmp.Or(os.Getenv("KUBECTL"), "kubectl") }

// run runs a command and returns its stdout. The error contains its stderr.
func run(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = controlplane.Root()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := run(ctx, kubectlCommand(), args...)
	Expect(err).NotTo(HaveOccurred())
	return output
}

// plugin runs the kubectl plugin that was built from this checkout.
func plugin(ctx context.Context, args ...string) (string, error) {
	return run(ctx, filepath.Join(controlplane.Root(), "bin", "kubectl-nslifecycle"), args...)
}

func makeTarget(ctx context.Context, args ...string) {
	GinkgoHelper()
	_, err := run(ctx, "make", append([]string{"--no-print-directory", "KUBECTL=" + kubectlCommand()}, args...)...)
	Expect(err).NotTo(HaveOccurred())
}

// applyText applies a manifest.
func applyText(ctx context.Context, manifest string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
	kubectl(ctx, "apply", "-f", file)
}

// serviceAccount returns a configuration with a bearer token of an existing ServiceAccount, like
// that of a Pod.
func serviceAccount(ctx context.Context, namespace, name string) *rest.Config {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(restConfig)
	Expect(err).NotTo(HaveOccurred())
	token, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	asAccount := rest.AnonymousClientConfig(restConfig)
	asAccount.BearerToken = token.Status.Token
	return controlplane.Unlimited(asAccount)
}

// user creates a ServiceAccount that can only create and get namespaces.
func user(ctx context.Context, name string) *rest.Config {
	GinkgoHelper()
	kubectl(ctx, "--namespace="+accounts, "create", "serviceaccount", name)
	kubectl(ctx, "create", "clusterrole", "nslifecycle-e2e-"+name, "--verb=create,get", "--resource=namespaces")
	kubectl(ctx, "create", "clusterrolebinding", "nslifecycle-e2e-"+name, "--clusterrole=nslifecycle-e2e-"+name,
		"--serviceaccount="+accounts+":"+name)
	DeferCleanup(func(ctx context.Context) {
		kubectl(ctx, "delete", "clusterrole,clusterrolebinding", "nslifecycle-e2e-"+name)
	})
	return serviceAccount(ctx, accounts, name)
}
