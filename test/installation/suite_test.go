// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// selector selects the installed objects.
const selector = "app.kubernetes.io/name=nslifecycle"

var (
	// cluster is nil in specs that only render manifests.
	cluster *framework.Cluster
	admin   *framework.User
	// kubeconfig is the path of a kubeconfig file of the administrator.
	kubeconfig string
	// types are the types of inventory in the cluster before an installation, and initial contains its objects.
	types   string
	initial []string
)

func TestInstallation(t *testing.T) {
	framework.RunSuite(t, "Installation")
}

var _ = SynchronizedBeforeSuite(func(ctx context.Context) {
	framework.Make(ctx, "helm", "build")
}, func() {}, NodeTimeout(15*time.Minute))

// startCluster starts the control plane of a container, on which nothing is installed. Each spec must restore this state.
func startCluster(ctx context.Context) {
	cluster = framework.StartControlPlane(ctx)
	admin, kubeconfig = cluster.Admin, framework.KubeconfigFile(cluster.Admin.Config)
	DeferCleanup(func() { cluster = nil })
	clusterScoped := strings.Fields(kubectl(ctx, "api-resources", "--namespaced=false", "--verbs=list", "--output=name"))
	types = strings.Join(append(slices.DeleteFunc(clusterScoped, func(name string) bool {
		return name == "namespaces" || name == "componentstatuses"
	}), "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "serviceaccounts", "secrets", "configmaps",
		"services"), ",")
	initial = inventory(Default, ctx)
}

// inventory returns the kinds, namespaces and names of all cluster-scoped objects, and of all objects that have, grant or are
// granted permissions, except Namespaces, which specs check by name.
func inventory(g Gomega, ctx context.Context) []string {
	output, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", types, "--all-namespaces", "--no-headers",
		"--output=custom-columns=:kind,:metadata.namespace,:metadata.name")
	g.Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return lines
}

// binary returns the path of the manager's binary.
func binary() string { return filepath.Join(controlplane.Root(), "bin", "manager") }

// startManager runs the manager until the spec ends.
func startManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	cluster.StartManager(ctx, changes...)
	DeferCleanup(cluster.StopManager)
}

// makeTarget runs make in the root directory of the repository. If the control plane is running, make
// uses it.
func makeTarget(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return makeTargetIn(ctx, controlplane.Root(), args...)
}

func makeTargetIn(ctx context.Context, directory string, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
	command.Dir = directory
	if cluster != nil {
		command.Args = append(command.Args, "KUBECTL="+cluster.KubectlPath())
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	}
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "make %s: %s", strings.Join(args, " "), output)
	return string(output)
}

// kustomize returns the objects in a kustomization.
func kustomize(ctx context.Context, directory string) []unstructured.Unstructured {
	GinkgoHelper()
	assets, err := controlplane.FindAssets(ctx)
	Expect(err).NotTo(HaveOccurred())
	output, err := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), "kustomize", directory).Output()
	Expect(err).NotTo(HaveOccurred())
	return parse(string(output))
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := cluster.Kubectl(ctx, cluster.Admin.Config, args...)
	Expect(err).NotTo(HaveOccurred())
	return output
}

// helm runs the pinned version of Helm with its own directories, so that it ignores the user's
// settings.
func helm(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "helm"), args...)
	home := filepath.Join(os.TempDir(), "nslifecycle-helm")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// chart and manifest return the paths of the files that users install.
func chart() string    { return filepath.Join(controlplane.Root(), "dist", "chart") }
func manifest() string { return filepath.Join(controlplane.Root(), "dist", "install.yaml") }

// template renders the chart for the namespace of config/default, as `helm install` does.
func template(ctx context.Context, args ...string) ([]unstructured.Unstructured, error) {
	output, err := helm(ctx, append([]string{
		"template", "nslifecycle", chart(), "--namespace=" + controlplane.SystemNamespace, "--kube-version=1.37",
	}, args...)...)
	if err != nil {
		return nil, err
	}
	return parse(output), nil
}

// parse returns the objects in a manifest.
func parse(manifest string) []unstructured.Unstructured {
	GinkgoHelper()
	var objects []unstructured.Unstructured
	for _, document := range strings.Split("\n"+manifest, "\n---\n") {
		var object unstructured.Unstructured
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects
}

// startFinalization runs the finalization controller as an administrator until the spec ends. It
// replaces the built-in namespace controller, which does not run in these tests.
func startFinalization(ctx context.Context) {
	GinkgoHelper()
	running, err := controlplane.RunManager(ctx, rest.CopyConfig(cluster.Admin.Config), func(options *manager.Options) {
		options.Controllers = manager.Controllers{manager.Finalization: true}
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
}
