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
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// defaultCreateTimeout is longer than initializers normally take.
const defaultCreateTimeout = 5 * time.Minute

type createOptions struct {
	*session
	output      *printer.Output
	labels      map[string]string
	annotations map[string]string
	dryRun      dryRun
	wait        bool
	timeout     time.Duration
}

func newCreateCommand(session *session) *cobra.Command {
	options := &createOptions{session: session, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML)}
	command := &cobra.Command{
		Use:               "create NAME",
		Short:             shortCreate,
		Long:              longCreate,
		Example:           exampleCreate,
		Args:              oneNamespace,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.output.AddFlag(command)
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.StringToStringVarP(&options.labels, "labels", "l", nil, helpLabels)
	flags.StringToStringVar(&options.annotations, "annotations", nil, helpAnnotations)
	flags.BoolVar(&options.wait, "wait", false, helpCreateWait)
	flags.DurationVar(&options.timeout, "timeout", defaultCreateTimeout, helpTimeout)
	return command
}

func (o *createOptions) run(ctx context.Context, name string) error {
	if err := errors.Join(o.output.Validate(), o.dryRun.validate()); err != nil {
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
		DryRun: o.dryRun.requestOption(), FieldManager: commandName,
	})
	if err != nil {
		return err
	}
	switch {
	case o.dryRun.isServer():
		return o.printCreated(created)
	case o.wait:
		return o.waitUntilReady(ctx, client, created)
	}
	if err := o.printCreated(created); err != nil {
		return err
	}
	if pending := initialization.ParseState(created).Pending; len(pending) > 0 {
		fmt.Fprintln(o.ErrOut, msgPendingInitializers(name, len(pending)))
	}
	return nil
}

// printCreated prints the result of kubectl create.
func (o *createOptions) printCreated(namespace *corev1.Namespace) error {
	if !o.output.IsStructured() {
		_, err := fmt.Fprintf(o.Out, "namespace/%s created%s\n", namespace.Name, o.dryRun.suffix())
		return err
	}
	return o.printNamespace(namespace)
}

func (o *createOptions) printNamespace(namespace *corev1.Namespace) error {
	namespace = namespace.DeepCopy()
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return o.output.PrintObject(o.Out, namespace)
}

// waitUntilReady shows the progress of a new Namespace until it is ready.
func (o *createOptions) waitUntilReady(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) error {
	out := o.Out
	if o.output.IsStructured() {
		out = o.ErrOut // The object goes to stdout.
	}
	waiter := &createWaiter{session: o.session, display: printer.NewDisplay(out), name: created.Name, started: time.Now()}
	waiter.display.Printf("namespace/%s created", created.Name)
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	ready, err := waiter.wait(waitCtx, client, created)
	switch {
	case ctx.Err() != nil:
		return &StatusError{Code: ExitInterrupted, Err: errCreateInterrupted(created.Name)}
	case waitCtx.Err() != nil:
		return errCreateTimeout(created.Name, o.timeout, waiter.pending())
	case err != nil:
		return err
	case o.output.IsStructured():
		return o.printNamespace(ready)
	}
	return nil
}

// withTimeout is context.WithTimeout, but 0 means no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
