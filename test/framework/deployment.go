// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
)

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
