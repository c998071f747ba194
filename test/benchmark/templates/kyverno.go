// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const (
	kyvernoNamespace = "kyverno"
	// kyvernoManifest is the file in the directory of the binaries with Kyverno's installation.
	kyvernoManifest = "install.yaml"
)

// kyvernoControllers are the controllers that a GeneratingPolicy needs: the name of the binary by
// the name of its Deployment. The webhooks of the first create requests, which the second executes.
var kyvernoControllers = []struct{ deployment, binary string }{
	{"kyverno-admission-controller", "kyverno"},
	{"kyverno-background-controller", "background-controller"},
}

// kyverno runs Kyverno with the flags, the environment and the permissions of its installation.
type kyverno struct {
	// dir contains the binaries and the manifest.
	dir string
	// flags are added to the flags of each controller that has them.
	flags []string
	// containers contains the containers of the controllers, by the name of the Deployment.
	containers map[string]corev1.Container
}

func (k *kyverno) install(ctx context.Context, c *cluster) error {
	manifest, err := os.ReadFile(filepath.Join(k.dir, kyvernoManifest))
	if err != nil {
		return fmt.Errorf("failed to read the installation of Kyverno (make kyverno): %w", err)
	}
	k.containers = map[string]corev1.Container{}
	var objects []string
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var deployment appsv1.Deployment
		if !strings.Contains(document, "\nkind: Deployment\n") {
			objects = append(objects, document)
			continue
		}
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
			return fmt.Errorf("failed to read a Deployment of Kyverno: %w", err)
		}
		k.containers[deployment.Name] = deployment.Spec.Template.Spec.Containers[0]
	}
	if _, err := c.KubectlWithInput(ctx, c.Admin, strings.Join(objects, "\n---\n"),
		"apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	if err := c.create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: objectName, Labels: map[string]string{
			"rbac.kyverno.io/aggregate-to-background-controller": "true",
		}},
		Rules: makeRules(verbs...),
	}); err != nil {
		return err
	}
	return c.AggregateClusterRoles(ctx)
}

// start starts the controllers. Their ports are changed because they run on one machine.
func (k *kyverno) start(ctx context.Context, c *cluster) ([]*service, error) {
	var services []*service
	for _, controller := range kyvernoControllers {
		s, err := k.startController(ctx, c, controller.deployment, controller.binary)
		if err != nil {
			for _, running := range services {
				err = errors.Join(err, running.stop())
			}
			return nil, err
		}
		services = append(services, s)
	}
	return services, nil
}

func (k *kyverno) startController(ctx context.Context, c *cluster, deployment, binary string) (*service, error) {
	container, ok := k.containers[deployment]
	if !ok {
		return nil, fmt.Errorf("the installation of Kyverno contains no Deployment %s", deployment)
	}
	kubeconfig, err := c.writeKubeconfig(ctx, kyvernoNamespace, deployment)
	if err != nil {
		return nil, err
	}
	var ports [2]string
	for i := range ports {
		address, err := controlplane.FreeAddress()
		if err != nil {
			return nil, err
		}
		ports[i] = address[strings.LastIndexByte(address, ':')+1:]
	}
	args := append(container.Args, "--kubeconfig="+kubeconfig, "--metricsPort="+ports[0],
		"--controllerRuntimeMetricsAddress=0")
	if deployment == kyvernoControllers[0].deployment {
		// The API server calls the webhooks at this address instead of the Service.
		args = append(args, "--serverIP=127.0.0.1:"+ports[1], "--webhookServerPort="+ports[1])
	}
	for _, flag := range k.flags {
		if !strings.HasPrefix(flag, "--genWorkers=") || deployment != kyvernoControllers[0].deployment {
			args = append(args, flag)
		}
	}
	environment := []string{"KYVERNO_NAMESPACE=" + kyvernoNamespace, "KYVERNO_POD_NAME=" + deployment + "-0"}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			environment = append(environment, variable.Name+"="+variable.Value)
		}
	}
	started := 0
	return startService(ctx, func(ctx context.Context) (*harness.Process, error) {
		started++
		log := filepath.Join(c.Dir, fmt.Sprintf("%s-%d.log", deployment, started))
		return harness.StartProcessWithEnvironment(ctx, environment, deployment, log, filepath.Join(k.dir, binary), args...)
	})
}

// apply waits for Kyverno's own webhooks, which validate policies, and for those of the policy.
func (k *kyverno) apply(ctx context.Context, c *cluster, pods int, _ v1alpha1.ReadinessMode) error {
	policy, err := makePolicy(pods)
	if err != nil {
		return err
	}
	if err := poll(ctx, "the policy", func(ctx context.Context) (bool, error) {
		err := c.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy),
			client.FieldOwner("bench"), client.ForceOwnership)
		return err == nil, err
	}); err != nil {
		return err
	}
	return poll(ctx, "the webhook of the policy", func(ctx context.Context) (bool, error) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(policy.GroupVersionKind())
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(policy), current); err != nil {
			return false, err
		}
		isReady, _, err := unstructured.NestedBool(current.Object, "status", "conditionStatus", "ready")
		return isReady, err
	})
}
