// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

type deleteOptions struct {
	*session
	dryRun           dryRun
	wait             bool
	ignoreNotFound   bool
	timeout          time.Duration
	progressDeadline time.Duration
}

func newDeleteCommand(session *session) *cobra.Command {
	options := &deleteOptions{session: session}
	command := &cobra.Command{
		Use:               "delete NAME",
		Short:             shortDelete,
		Long:              longDelete,
		Example:           exampleDelete,
		Args:              oneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.wait, "wait", true, helpDeleteWait)
	flags.BoolVar(&options.ignoreNotFound, "ignore-not-found", false, helpIgnoreNotFound)
	flags.DurationVar(&options.timeout, "timeout", 0, helpTimeout)
	flags.DurationVar(&options.progressDeadline, "progress-deadline", diagnosis.DefaultProgressDeadline,
		helpDeleteProgressDeadline)
	return command
}

func (o *deleteOptions) run(ctx context.Context, name string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	if o.progressDeadline <= 0 {
		return fmt.Errorf(msgProgressDeadline, o.progressDeadline)
	}
	// The system namespaces are the namespaces that the operator never initializes.
	if initialization.IsExempt(name, "") {
		return fmt.Errorf(msgSystemNamespace, name)
	}
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.ignoreNotFound:
		return nil
	case err != nil:
		return err
	}
	if err := o.delete(ctx, client, namespace); err != nil {
		return err
	}
	if !o.wait || o.dryRun != dryRunNone {
		fmt.Fprintf(o.Out, "namespace %q deleted%s\n", name, o.dryRun.suffix())
		return nil
	}
	return o.waitUntilDeleted(ctx, client, namespace)
}

// delete deletes the Namespace if it still has the same UID and is not being deleted.
func (o *deleteOptions) delete(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	if namespace.DeletionTimestamp != nil {
		printf(o.ErrOut, msgAlreadyTerminating, namespace.Name, printer.Age(*namespace.DeletionTimestamp, time.Now()))
		return nil
	}
	if o.dryRun == dryRunClient {
		return nil
	}
	err := client.Delete(ctx, namespace.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(namespace.UID)), DryRun: o.dryRun.requestOption(),
	})
	switch {
	case apierrors.IsForbidden(err) && protection.IsProtected(namespace) &&
		strings.Contains(err.Error(), v1alpha1.LabelDeletionProtection):
		return fmt.Errorf(msgProtected, namespace.Name, v1alpha1.LabelDeletionProtection,
			o.withConnection(protection.RemovalCommand(namespace.Name)))
	case nswrite.IsConflict(err):
		return fmt.Errorf(msgRecreated, namespace.Name)
	case nswrite.IsNotFound(err): // Another client has deleted the Namespace.
		return nil
	}
	return err
}

// waitUntilDeleted shows the remaining objects until the Namespace is deleted.
func (o *deleteOptions) waitUntilDeleted(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	waiter, err := newDeleteWaiter(o.session, namespace, o.progressDeadline)
	if err != nil {
		return err
	}
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	err = waiter.wait(waitCtx, watchNamespace(waitCtx, client, namespace))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(msgDeleteInterrupted, namespace.Name,
			o.waitForDeletionCommand(namespace.Name))}
	case errors.Is(err, context.DeadlineExceeded):
		code := ExitError
		if waiter.isBlocked() {
			code = ExitBlocked
		}
		return &StatusError{Code: code, Err: fmt.Errorf(msgDeleteTimeout, o.timeout, namespace.Name,
			o.explainCommand(namespace.Name))}
	}
	return err
}
