// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

// waitingFor is the prefix of the message of the Initializing condition while it is True.
const waitingFor = "waiting for "

var (
	watchCommand = []string{
		"get", "namespace", namespaceName, "--watch",
		`--output=jsonpath={.status.conditions[?(@.type=="` + v1alpha1.ConditionInitializing + `")].message}{"\n"}`,
	}
	conditionsCommand = []string{
		"get", "namespace", namespaceName,
		`--output=jsonpath={range .status.conditions[*]}{.status}{"\t"}{.reason}{"\t"}{.type}{"\n"}{end}`,
	}
)

// showEarlyWrite shows that a write to an initializing namespace waits. Meanwhile, it lets the
// initializers finish, and shows the condition's message.
func (d *demo) showEarlyWrite(ctx context.Context) error {
	d.out.heading("An early write waits")
	// Wait for the RoleBinding. Without it, the authorization webhook would hold the write, and also the check.
	if err := inTurn(ctx, func(ctx context.Context) error { return d.poll(ctx, d.hasOwner) },
		func(ctx context.Context) error {
			return d.poll(ctx, func(ctx context.Context) (bool, error) { return d.mayWriteTo(ctx, namespaceName) })
		}); err != nil {
		return fmt.Errorf("initializer %s did not grant user %s any permissions: %w", ownerName, userName, err)
	}
	d.out.say("The first initializer has made %s an administrator of the\n"+
		"namespace, so RBAC allows the write. However, the namespace is still initializing. The write\n"+
		"waits until both initializers have finished, which takes an extra second for each in this\n"+
		"demo. Meanwhile, a second kubectl shows the condition.", userName)
	if err := d.writeAndWatch(ctx); err != nil {
		return err
	}
	output, err := d.show(ctx, d.user, conditionsCommand...)
	if err != nil {
		return err
	}
	for _, condition := range []string{
		"False\t" + v1alpha1.ReasonInitialized + "\t" + v1alpha1.ConditionInitializing,
		"True\t" + v1alpha1.ReasonInitialized + "\t" + ownerName + v1alpha1.ConditionInitializedSuffix,
		"True\t" + v1alpha1.ReasonInitialized + "\t" + policyName + v1alpha1.ConditionInitializedSuffix,
	} {
		if !strings.Contains(output, condition) {
			return fmt.Errorf("the namespace does not have the condition %q", strings.ReplaceAll(condition, "\t", " "))
		}
	}
	return nil
}

// hasOwner reports whether the first initializer has created its RoleBinding.
func (d *demo) hasOwner(ctx context.Context) (bool, error) {
	_, err := d.run(ctx, d.admin, "get", "rolebinding", initializers.OwnerBindingName, "--namespace="+namespaceName)
	if err != nil && strings.Contains(err.Error(), "NotFound") {
		return false, nil
	}
	return err == nil, err
}

// writeAndWatch runs the early write and a concurrent watch of the condition's message.
func (d *demo) writeAndWatch(ctx context.Context) error {
	kubectlContext, stop := context.WithCancel(ctx)
	defer stop()
	watch := d.kubectl(kubectlContext, d.user, watchCommand...)
	messages, err := watch.StdoutPipe()
	if err != nil {
		return fmt.Errorf("failed to watch the condition: %w", err)
	}
	d.out.command(d.user.name, "kubectl "+shellLine(watchCommand...)+" &")
	if err := watch.Start(); err != nil {
		return fmt.Errorf("failed to watch the condition: %w", err)
	}
	defer func() {
		stop()
		// The process was killed, so its error is expected.
		_ = watch.Wait()
	}()

	d.out.command(d.user.name, "kubectl "+shellLine(writeCommand...))
	type result struct {
		output []byte
		err    error
	}
	written := make(chan result, 1)
	go func() {
		output, err := d.kubectl(kubectlContext, d.user, writeCommand...).CombinedOutput()
		written <- result{output, err}
	}()
	if err := d.poll(ctx, isHeld); err != nil {
		return fmt.Errorf("the write was not held: %w", err)
	}
	steps, err := d.relay(messages)
	if err == nil && steps < 2 {
		err = errors.New("the namespace was initialized before it waited for an initializer")
	}
	if err != nil {
		return err
	}
	write := <-written
	d.out.output(string(write.output))
	if write.err != nil {
		return fmt.Errorf("kubectl %s: %w", shellLine(writeCommand...), write.err)
	}
	return nil
}

// isHeld reports whether the manager, which runs in this process, holds a write.
func isHeld(context.Context) (bool, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return false, fmt.Errorf("failed to read the manager's metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() == "nslifecycle_hold_writes" {
			return family.GetMetric()[0].GetGauge().GetValue() > 0, nil
		}
	}
	return false, nil
}

// relay prints each new message until a message contains no pending initializers. It returns the
// number of printed messages.
func (d *demo) relay(messages io.Reader) (int, error) {
	count, last := 0, ""
	lines := bufio.NewScanner(messages)
	for lines.Scan() {
		// The watch returns every change of the namespace, so the same message can appear
		// repeatedly.
		message := lines.Text()
		if message == "" || message == last {
			continue
		}
		d.out.output(message)
		d.letFinish()
		count, last = count+1, message
		if !strings.HasPrefix(message, waitingFor) {
			return count, nil
		}
	}
	return count, errors.Join(errors.New("the watch of the condition ended before the initialization"), lines.Err())
}
