// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

const (
	// userName is the user of manifests/user.yaml.
	userName = "user1@corp.example.com"
	// configurationsFile is relative to the root of the repository.
	configurationsFile = "hack/demo/manifests/configurations.yaml"
	// workTime is the delay of each initializer. Without the delay, a namespace would be initialized
	// before the tour can show its conditions.
	workTime = time.Second
)

// The initializers that manifests/configurations.yaml registers.
const (
	ownerName  = "owner.corp.example.com"
	policyName = "policy.corp.example.com"
)

// demo holds the running components.
type demo struct {
	out *narrator
	// log is the log file of the manager, or empty if it logs to stderr.
	log          string
	controlPlane *controlplane.ControlPlane
	manager      *controlplane.Manager
	admin, user  actor
	// output is the output of child processes.
	output io.Writer
	// search is the example search-index, or nil if it does not run.
	search *searchIndex
	// isComplete is true after the tour, or if there is no tour.
	isComplete bool

	// mayFinish is closed when the initializers are allowed to finish the first namespace. This
	// ensures that the write of the tour is early, even on a slow machine.
	mayFinish chan struct{}
	letFinish func()
	// stops are the clean-up functions, called in reverse order.
	stops []func() error
}

// actor is a user who runs kubectl.
type actor struct {
	// name is the name in the prompts that the tour prints.
	name       string
	config     *rest.Config
	kubeconfig string
}

func newDemo(out *narrator, log string) *demo {
	mayFinish := make(chan struct{})
	return &demo{
		out: out, log: log, output: io.Discard, mayFinish: mayFinish,
		letFinish: sync.OnceFunc(func() { close(mayFinish) }),
	}
}

// play starts the components, runs the tour and keeps running, depending on the options.
func (d *demo) play(ctx context.Context, opts options) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	if opts.searchIndex {
		if err := d.startSearchIndex(ctx); err != nil {
			return err
		}
	}
	if opts.noTour {
		if err := d.registerAll(ctx, d.run); err != nil {
			return err
		}
		d.letFinish()
	} else if err := d.tour(ctx); err != nil {
		return err
	}
	d.isComplete = true
	if opts.once {
		return nil
	}
	d.showNextSteps()
	return d.stayUp(ctx)
}

// stayUp returns when the context is canceled or the manager exits.
func (d *demo) stayUp(ctx context.Context) error {
	// If the terminal is closed, make might be the only process that receives the signal. An empty
	// write detects the closed terminal, and the narrator handles the error.
	heartbeat := time.NewTicker(time.Second)
	defer heartbeat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.manager.Done():
			return errors.Join(errors.New("the manager exited unexpectedly"), err)
		case <-heartbeat.C:
			d.out.output("")
		}
	}
}

// start starts the control plane, the operator and the initializers.
func (d *demo) start(ctx context.Context) error {
	d.out.say("Starting kube-apiserver and etcd ...")
	authorization, err := d.authorization()
	if err != nil {
		return err
	}
	controlPlane, err := controlplane.Start(ctx, controlplane.WithAuthorization(authorization))
	if err != nil {
		return err
	}
	d.controlPlane = controlPlane
	d.stops = append(d.stops, controlPlane.Stop)
	// The owner initializer binds users to the ClusterRole admin, which is aggregated.
	if err := controlPlane.AggregateClusterRoles(ctx); err != nil {
		return err
	}
	// Templates wait until the quotas are counted.
	if err := controlPlane.StartQuotas(ctx); err != nil {
		return err
	}

	d.out.say("Installing nslifecycle: kubectl apply -k config/default")
	if err := controlPlane.InstallHold(ctx, "default"); err != nil {
		return err
	}
	options, err := controlplane.HoldOptions()
	if err != nil {
		return err
	}
	d.out.say("Starting the manager as ServiceAccount %s", controlplane.ServiceAccount)
	if d.log != "" {
		d.out.say("  Log file: %s", d.log)
	}
	if d.manager, err = controlPlane.StartLeaders(ctx, func(o *manager.Options) { o.Hold = options }); err != nil {
		return err
	}
	d.stops = append(d.stops, d.manager.Stop)
	if err := controlPlane.WaitForHold(ctx, options.URL); err != nil {
		return fmt.Errorf("the API server cannot call the webhooks: %w", err)
	}
	d.out.say("Enabling the authorization webhook: config/authorization")
	if err := controlPlane.EnableAuthorization(ctx, authorization, options.URL); err != nil {
		return err
	}

	d.out.say("Starting two initializers, each with its own ServiceAccount")
	if err := d.startInitializer(ctx, ownerName, initializers.OwnerAccount, initializers.OwnerManifest,
		initializers.Owner); err != nil {
		return err
	}
	if err := d.startInitializer(ctx, policyName, initializers.PolicyAccount, initializers.PolicyManifest,
		initializers.Policy); err != nil {
		return err
	}
	return d.addActors(ctx)
}

// authorization returns the files with which the API server asks the authorization webhook.
func (d *demo) authorization() (*controlplane.Authorization, error) {
	dir, err := os.MkdirTemp("", "nslifecycle-authorization-")
	if err != nil {
		return nil, fmt.Errorf("failed to create a directory for the authorization: %w", err)
	}
	d.stops = append(d.stops, func() error { return os.RemoveAll(dir) })
	return controlplane.NewAuthorization(dir)
}

// stop stops all components. It stops the control plane last, so that no client request fails.
func (d *demo) stop() error {
	var errs []error
	for _, stop := range slices.Backward(d.stops) {
		errs = append(errs, stop())
	}
	d.stops = nil
	return errors.Join(errs...)
}

// startInitializer applies the manifest with the initializer's ServiceAccount, which has the same
// name as its namespace, and runs the initializer with a token of the ServiceAccount.
func (d *demo) startInitializer(
	ctx context.Context, name, account, manifest string, work initializers.Work,
) error {
	if _, err := d.controlPlane.KubectlWithInput(ctx, d.controlPlane.Admin, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	config, err := d.controlPlane.ServiceAccountConfig(ctx, account, account)
	if err != nil {
		return err
	}
	initializer, err := initializers.Start(ctx, config, name, d.slowly(work))
	if err != nil {
		return err
	}
	d.stops = append(d.stops, func() error {
		initializer.Stop()
		return nil
	})
	return nil
}

// slowly delays work, so that its progress is visible.
func (d *demo) slowly(work initializers.Work) initializers.Work {
	return func(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error {
		if err := work(ctx, client, namespace); err != nil {
			return err
		}
		select {
		case <-d.mayFinish:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(workTime):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// addActors creates kubeconfig files for an administrator and for an unprivileged user.
func (d *demo) addActors(ctx context.Context) error {
	user, err := d.controlPlane.User(userName)
	if err != nil {
		return err
	}
	d.admin = d.actor("admin", d.controlPlane.Admin)
	d.user = d.actor("user1", user)
	if err := errors.Join(controlplane.WriteKubeconfig(d.admin.kubeconfig, d.admin.config),
		controlplane.WriteKubeconfig(d.user.kubeconfig, d.user.config)); err != nil {
		return err
	}
	_, err = d.controlPlane.KubectlWithInput(ctx, d.admin.config, userManifest, "apply", "-f", "-")
	return err
}

func (d *demo) actor(name string, config *rest.Config) actor {
	return actor{name: name, config: config, kubeconfig: filepath.Join(d.controlPlane.Dir, name+".kubeconfig")}
}

// kubectl returns a command that runs kubectl as an actor, in the root of the repository.
func (d *demo) kubectl(ctx context.Context, who actor, args ...string) *exec.Cmd {
	command := d.controlPlane.KubectlCommand(ctx, who.kubeconfig, args...)
	command.Dir = controlplane.Root()
	return command
}

// run runs kubectl as an actor and returns its output, including stderr.
func (d *demo) run(ctx context.Context, who actor, args ...string) (string, error) {
	output, err := d.kubectl(ctx, who, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", shellLine(args...), err, strings.TrimSpace(string(output)))
	}
	return string(output), err
}

// show is like run, and also prints the command and its output.
func (d *demo) show(ctx context.Context, who actor, args ...string) (string, error) {
	d.out.command(who.name, "kubectl "+shellLine(args...))
	output, err := d.run(ctx, who, args...)
	d.out.output(output)
	return output, err
}

// showNextSteps prints how to use the cluster from another terminal.
func (d *demo) showNextSteps() {
	d.out.say(`
The demo keeps running until you press Ctrl-C. To use it from another terminal as an
administrator, or as %s:
`, userName)
	for _, who := range []actor{d.admin, d.user} {
		d.out.say("  export KUBECONFIG=%s", shellLine(who.kubeconfig))
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		d.out.say("\nkubectl is not in PATH. To use the demo's kubectl, run:\n\n  alias kubectl=%s",
			shellLine(d.controlPlane.KubectlPath()))
	}
	if d.search != nil {
		d.out.say("\nThe index server listens at %s. To list its indices:\n\n  curl %s/indices",
			d.search.url, d.search.url)
	}
	d.out.say(`
Commands to try as the user:

  kubectl create namespace %[1]s
  kubectl wait --for=condition=Ready namespace/%[1]s
  kubectl describe namespace %[1]s

Commands to try as the administrator, who has the "initialize" verb and can write at any time:

  kubectl get namespaceinitializerset effective --output=yaml
  kubectl edit namespaceinitializerconfiguration policy
  kubectl label namespace %[1]s nslifecycle.dev/initializing=true
  kubectl delete namespace %[1]s

No kubelet and no kube-controller-manager run here, so Pods are never started, the manager
finalizes namespaces, and quotas do not count what is deleted.`, nextName)
}
