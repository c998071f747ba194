// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// Make runs make in the root directory of the repository.
func Make(ctx context.Context, targets ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, targets...)...)
	command.Dir = controlplane.Root()
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "make %v: %s", targets, output)
}

// HelmPath returns the path of the Helm that make helm builds.
func HelmPath() string { return filepath.Join(controlplane.Root(), "bin", "helm") }

// RunAs runs a client, such as kubectl or Helm, as a user, with directories of its own. It returns the output, which
// the error contains, too.
func (c *Cluster) RunAs(ctx context.Context, user *User, input, path string, args ...string) (string, error) {
	GinkgoHelper()
	home := filepath.Join(c.Dir, "home")
	command := exec.CommandContext(ctx, path, args...)
	command.Stdin = strings.NewReader(input)
	command.Env = append(os.Environ(), "KUBECONFIG="+KubeconfigFile(user.Config), "KUBECACHEDIR="+home,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s", filepath.Base(path), args, err, output)
	}
	return string(output), err
}

// StartProcess starts a program, and stops it at the end of the spec or of the container.
func StartProcess(command *exec.Cmd) *gexec.Session {
	GinkgoHelper()
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return session
}

// DeploymentCommand returns a command that runs the manager with the arguments and the environment of the Pods of a
// Deployment. The last value of a flag takes precedence, so args can override its addresses, which might be in use.
func DeploymentCommand(deployment *appsv1.Deployment, binary string, config *rest.Config, args ...string) *exec.Cmd {
	GinkgoHelper()
	container := deployment.Spec.Template.Spec.Containers[0]
	command := exec.Command(binary, slices.Concat(container.Args, []string{
		"--health-probe-bind-address=0", "--kubeconfig=" + KubeconfigFile(config),
	}, args)...)
	command.Env = os.Environ()
	for _, variable := range container.Env {
		if limit := variable.ValueFrom.ResourceFieldRef; limit != nil {
			command.Env = append(command.Env, fmt.Sprintf("%s=%d", variable.Name, container.Resources.Limits.Memory().Value()))
			continue
		}
		Expect(variable.ValueFrom.FieldRef.FieldPath).To(Equal("metadata.namespace"))
		command.Env = append(command.Env, variable.Name+"="+deployment.Namespace)
	}
	return command
}

// Variant returns a copy of config/default in which the given directories, which are comments in its kustomization, are
// enabled.
func Variant(directories ...string) string {
	GinkgoHelper()
	config := CopyConfig(GinkgoT().TempDir())
	file := filepath.Join(config, "default", "kustomization.yaml")
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	text := string(content)
	for _, directory := range directories {
		Expect(text).To(ContainSubstring("\n# - ../" + directory + "\n"))
		text = strings.Replace(text, "\n# - ../"+directory+"\n", "\n- ../"+directory+"\n", 1)
	}
	Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return filepath.Dir(file)
}

// CopyConfig copies config to a directory, and returns the copy.
func CopyConfig(directory string) string {
	GinkgoHelper()
	config := filepath.Join(directory, "config")
	Expect(os.CopyFS(config, os.DirFS(filepath.Join(controlplane.Root(), "config")))).To(Succeed())
	// Kustomizations also refer to manifests outside.
	Expect(os.Symlink(filepath.Join(controlplane.Root(), "internal"), filepath.Join(directory, "internal"))).To(Succeed())
	return config
}
