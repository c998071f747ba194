// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	plane *controlplane.ControlPlane
	// admin is a member of system:masters.
	admin client.Client
	// kubeconfig is the path of a kubeconfig file for admin.
	kubeconfig string
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Install")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	// Build before the first spec, because the first build takes minutes.
	makeTarget(ctx, "helm", "build")
	cluster := framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	kubeconfig = filepath.Join(plane.Dir, "admin.kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, plane.Admin)).To(Succeed())
}, NodeTimeout(15*time.Minute))

// makeTarget runs make in the root directory of the repository. If the suite's control plane is
// running, make uses it.
func makeTarget(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return makeTargetIn(ctx, controlplane.Root(), args...)
}

func makeTargetIn(ctx context.Context, directory string, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
	command.Dir = directory
	if plane != nil {
		command.Args = append(command.Args, "KUBECTL="+plane.KubectlPath())
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	}
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "make %s: %s", strings.Join(args, " "), output)
	return string(output)
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := plane.Kubectl(ctx, plane.Admin, args...)
	Expect(err).NotTo(HaveOccurred())
	return output
}

// helm runs the pinned version of Helm with its own directories, so that it ignores the user's
// settings.
func helm(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "helm"), args...)
	home := filepath.Join(plane.Dir, "helm")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
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
	running, err := controlplane.RunManager(ctx, rest.CopyConfig(plane.Admin), func(options *manager.Options) {
		controllers, err := manager.ParseControllers("finalization")
		Expect(err).NotTo(HaveOccurred())
		options.Controllers = controllers
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
}
