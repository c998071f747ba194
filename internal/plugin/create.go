// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// defaultCreateTimeout is the default of --timeout. Initializers normally take less time.
const defaultCreateTimeout = 5 * time.Minute

type createOptions struct {
	*session
	output      *printer.Output
	labels      map[string]string
	annotations map[string]string
	template    string
	parameters  []string
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
	flags.StringVar(&options.template, "template", "", helpTemplate)
	flags.StringArrayVarP(&options.parameters, "parameter", "p", nil, helpParameter)
	_ = command.RegisterFlagCompletionFunc("template",
		func(command *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return session.completeTemplate(command, nil, text)
		})
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
	if err := o.chooseTemplate(namespace); err != nil {
		return err
	}
	if o.dryRun == dryRunClient {
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
	case o.dryRun == dryRunServer:
		return o.printCreated(created)
	case o.wait:
		return o.waitUntilReady(ctx, client, created)
	}
	if err := o.printCreated(created); err != nil {
		return err
	}
	if pending := initialization.ParseState(created).Pending; len(pending) > 0 {
		printf(o.ErrOut, msgPendingInitializers, printable.Count(len(pending), "initializer"), o.waitCommand(name))
	}
	return nil
}

// chooseTemplate sets the label and the annotations for --template and --parameter. The API server
// validates the values.
func (o *createOptions) chooseTemplate(namespace *corev1.Namespace) error {
	values, err := templates.ParseParameters(o.parameters)
	if err != nil {
		return err
	}
	for name, value := range values {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.PrefixParameter+name, value)
	}
	if o.template == "" {
		return nil
	}
	if _, ok := namespace.Labels[v1alpha1.LabelTemplate]; ok {
		return fmt.Errorf(msgTemplateAndLabel, v1alpha1.LabelTemplate)
	}
	if problems := validation.IsDNS1123Label(o.template); len(problems) > 0 {
		return fmt.Errorf(msgInvalidTemplate, o.template, strings.Join(problems, "; "))
	}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, v1alpha1.LabelTemplate, o.template)
	return nil
}

// printCreated prints the same result as kubectl create.
func (o *createOptions) printCreated(namespace *corev1.Namespace) error {
	if !o.output.IsStructured() {
		_, err := fmt.Fprintf(o.Out, "namespace/%s created%s\n", namespace.Name, o.dryRun.suffix())
		return err
	}
	return o.printNamespace(namespace)
}

func (o *createOptions) printNamespace(namespace *corev1.Namespace) error {
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return o.output.PrintObject(o.Out, namespace)
}

// waitUntilReady shows the progress of a new Namespace until the Namespace is ready.
func (o *createOptions) waitUntilReady(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) error {
	out := o.Out
	if o.output.IsStructured() {
		out = o.ErrOut // The object is written to stdout.
	}
	waiter := &createWaiter{session: o.session, display: printer.NewDisplay(out), name: created.Name, started: time.Now()}
	waiter.display.Printf("namespace/%s created", created.Name)
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	ready, err := waiter.wait(waitCtx, client, created)
	switch {
	case ctx.Err() != nil:
		return &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(msgCreateInterrupted, created.Name,
			o.waitCommand(created.Name))}
	case waitCtx.Err() != nil:
		pending := cmp.Or(strings.Join(waiter.state.Pending, ", "), "the operator")
		return fmt.Errorf(msgCreateTimeout, o.timeout, created.Name, pending, o.explainCommand(created.Name))
	case err != nil:
		return err
	case o.output.IsStructured():
		return o.printNamespace(ready)
	}
	return nil
}

// withTimeout is like context.WithTimeout, except that 0 means no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
