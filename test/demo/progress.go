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

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
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

// showProgress lets the initializers finish, and shows the condition's message while kubectl wait
// is running.
func (d *demo) showProgress(ctx context.Context) error {
	d.out.heading("The initializers finish")
	d.out.say("The user runs the command from the error message. In this demo, each initializer takes\n" +
		"an extra second. Meanwhile, a second kubectl shows the condition.")
	if err := d.waitAndWatch(ctx); err != nil {
		return err
	}
	output, err := d.show(ctx, d.user, conditionsCommand...)
	if err != nil {
		return err
	}
	for _, condition := range []string{
		"False\t" + v1alpha1.ReasonCompleted + "\t" + v1alpha1.ConditionInitializing,
		"True\t" + v1alpha1.ReasonCompleted + "\t" + ownerName + v1alpha1.ConditionInitializedSuffix,
		"True\t" + v1alpha1.ReasonCompleted + "\t" + policyName + v1alpha1.ConditionInitializedSuffix,
	} {
		if !strings.Contains(output, condition) {
			return fmt.Errorf("the namespace does not have the condition %q", strings.ReplaceAll(condition, "\t", " "))
		}
	}
	return nil
}

// waitAndWatch runs kubectl wait and a concurrent watch of the condition's message.
func (d *demo) waitAndWatch(ctx context.Context) error {
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

	d.out.command(d.user.name, "kubectl "+shellLine(waitCommand...))
	type result struct {
		output []byte
		err    error
	}
	waited := make(chan result, 1)
	go func() {
		output, err := d.kubectl(kubectlContext, d.user, waitCommand...).CombinedOutput()
		waited <- result{output, err}
	}()
	steps, err := d.relay(messages)
	if err == nil && steps < 2 {
		err = errors.New("the namespace was initialized before it waited for an initializer")
	}
	if err != nil {
		return err
	}
	wait := <-waited
	d.out.output(string(wait.output))
	if wait.err != nil {
		return fmt.Errorf("kubectl %s: %w", shellLine(waitCommand...), wait.err)
	}
	return nil
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
