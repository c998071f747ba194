// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// defaultCreateTimeout is long for an initializer that works, and short for somebody who
// waits for one that nobody runs.
const defaultCreateTimeout = 5 * time.Minute

type createOptions struct {
	*session
	output      *output
	labels      map[string]string
	annotations map[string]string
	dryRun      dryRun
	isWaiting   bool
	timeout     time.Duration
}

func newCreateCommand(session *session) *cobra.Command {
	options := &createOptions{session: session, output: newOutput(outputJSON, outputYAML)}
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a namespace, and wait until its initializers are done",
		Long: "Create a namespace. With --wait it shows how far each initializer is until the namespace can be\n" +
			"used. A failed initialization, a deletion meanwhile, and a time-out are errors. Where no\n" +
			"initializers are registered, or nslifecycle is not installed, the namespace is ready at once.",
		Example: "  kubectl nslifecycle create shop --wait\n\n" +
			"  # In a script: the namespace can be used, or the script ends\n" +
			"  kubectl nslifecycle create shop --wait --timeout=2m || exit 1",
		Args:              oneNamespace,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.output.addFlag(command)
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.StringToStringVarP(&options.labels, "labels", "l", nil, "Labels of the namespace: key=value,...")
	flags.StringToStringVar(&options.annotations, "annotations", nil, "Annotations of the namespace: key=value,...")
	flags.BoolVar(&options.isWaiting, "wait", false, "Wait until all initializers are done, and show their progress")
	flags.DurationVar(&options.timeout, "timeout", defaultCreateTimeout, "How long to wait; 0 for as long as it takes")
	return command
}

func (o *createOptions) run(ctx context.Context, name string) error {
	if err := errors.Join(o.output.validate(), o.dryRun.validate()); err != nil {
		return err
	}
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: o.labels, Annotations: o.annotations},
	}
	if o.dryRun.isClient() {
		return o.printCreated(namespace)
	}
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	created, err := client.Create(ctx, namespace, metav1.CreateOptions{
		DryRun: o.dryRun.forServer(), FieldManager: commandName,
	})
	if err != nil {
		return err
	}
	switch {
	case o.dryRun.isServer():
		return o.printCreated(created)
	case o.isWaiting:
		return o.wait(ctx, client, created)
	}
	if err := o.printCreated(created); err != nil {
		return err
	}
	if pending := initialization.ParseState(created).Pending; len(pending) > 0 {
		fmt.Fprintf(o.ErrOut, "It waits for %s. To wait until it is initialized, run: %s\n",
			count(len(pending), "initializer"), waitCommand(name))
	}
	return nil
}

// printCreated prints what was created, as kubectl create does.
func (o *createOptions) printCreated(namespace *corev1.Namespace) error {
	if !o.output.isStructured() {
		_, err := fmt.Fprintf(o.Out, "namespace/%s created%s\n", namespace.Name, o.dryRun.suffix())
		return err
	}
	return o.printNamespace(namespace)
}

func (o *createOptions) printNamespace(namespace *corev1.Namespace) error {
	namespace = namespace.DeepCopy()
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return o.output.printObject(o.Out, namespace)
}

// wait shows the progress of a new Namespace until it can be used.
func (o *createOptions) wait(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) error {
	out := o.Out
	if o.output.isStructured() {
		out = o.ErrOut // stdout is for the object
	}
	birth := &birth{session: o.session, display: newDisplay(out), name: created.Name, started: time.Now()}
	birth.display.printf("namespace/%s created", created.Name)
	waiting, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	ready, err := birth.wait(waiting, client, created)
	switch {
	case ctx.Err() != nil:
		return &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(
			"interrupted: namespace %q is still being initialized; "+
				"`%s` waits for it", created.Name, waitCommand(created.Name))}
	case waiting.Err() != nil:
		return fmt.Errorf("namespace %q was not ready within %s: it waits for %s; `%s` shows why",
			created.Name, o.timeout, birth.pending(), explainCommand(created.Name))
	case err != nil:
		return err
	case o.output.isStructured():
		return o.printNamespace(ready)
	}
	return nil
}

// waitCommand returns the command that waits until a namespace is initialized.
func waitCommand(name string) string {
	return shell.Command("kubectl wait --for=condition=Initializing=False namespace/%s", name)
}

// withTimeout is context.WithTimeout, where 0 means none.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
