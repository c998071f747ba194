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
	"github.com/nslifecycle/nslifecycle/internal/protection"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type deleteOptions struct {
	*session
	dryRun         dryRun
	isWaiting      bool
	ignoreNotFound bool
	timeout        time.Duration
	patience       time.Duration
}

func newDeleteCommand(session *session) *cobra.Command {
	options := &deleteOptions{session: session}
	command := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a namespace, see what remains of it, and what holds it",
		Long: "Delete a namespace and show what remains in it until it is gone. When nothing has moved for a\n" +
			"while, the cause is looked for and named. Of a namespace that is being deleted already it shows\n" +
			"the rest.\n\n" +
			"Ctrl-C ends the command and not the deletion, which nothing can take back.",
		Example: "  kubectl nslifecycle delete shop\n\n" +
			"  # In a script\n" +
			"  kubectl nslifecycle delete shop --timeout=5m",
		Args:              oneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.isWaiting, "wait", true, "Wait until the namespace is gone, and show what remains")
	flags.BoolVar(&options.ignoreNotFound, "ignore-not-found", false, "A namespace that does not exist is no error")
	flags.DurationVar(&options.timeout, "timeout", 0, "How long to wait; 0 for as long as it takes")
	flags.DurationVar(&options.patience, "progress-deadline", diagnosis.DefaultProgressDeadline,
		"How long nothing may move before the cause is looked for")
	return command
}

func (o *deleteOptions) run(ctx context.Context, name string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	if o.patience <= 0 {
		return fmt.Errorf("--progress-deadline=%s: it takes some time to see that nothing moves", o.patience)
	}
	// The operator does not initialize what a cluster cannot do without. It is the same list.
	if initialization.IsExempt(name, "") {
		return fmt.Errorf("namespace %q belongs to the cluster itself, which cannot do without it; it is not deleted", name)
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
	if !o.isWaiting || o.dryRun.strategy != dryRunNone {
		fmt.Fprintf(o.Out, "namespace %q deleted%s\n", name, o.dryRun.suffix())
		return nil
	}
	return o.wait(ctx, client, namespace)
}

// delete sends the DELETE for this very Namespace, unless that has been done before.
func (o *deleteOptions) delete(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	if namespace.DeletionTimestamp != nil {
		fmt.Fprintf(o.ErrOut, "Namespace %q is being deleted already, since %s.\n",
			namespace.Name, ageOf(*namespace.DeletionTimestamp, time.Now()))
		return nil
	}
	if o.dryRun.isClient() {
		return nil
	}
	err := client.Delete(ctx, namespace.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(namespace.UID)), DryRun: o.dryRun.forServer(),
	})
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("namespace %q was deleted and created again by somebody else in this moment; "+
			"the new one is not touched", namespace.Name)
	case apierrors.IsNotFound(err): // Somebody was faster; it is what was wanted.
		return nil
	case apierrors.IsForbidden(err) && protection.IsProtected(namespace) &&
		strings.Contains(err.Error(), v1alpha1.LabelDeletionProtection):
		return fmt.Errorf("namespace %q is protected from deletion by label %s, and was not deleted; "+
			"if it is to go with all its content, run first: %s",
			namespace.Name, v1alpha1.LabelDeletionProtection, protection.RemovalCommand(namespace.Name))
	}
	return err
}

// wait shows what remains until the Namespace is gone.
func (o *deleteOptions) wait(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	death, err := newDeath(o.session, namespace, o.patience)
	if err != nil {
		return err
	}
	waiting, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	err = death.wait(waiting, follow(waiting, client, namespace))
	name := namespace.Name
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(
			"interrupted: the deletion of namespace %q goes on in the cluster, and cannot be taken back; "+
				"`%s` shows it again", name, shell.Command(displayName+" delete %s", name))}
	case errors.Is(err, context.DeadlineExceeded):
		code := ExitError
		if death.isBlocked() {
			code = ExitBlocked
		}
		return &StatusError{Code: code, Err: fmt.Errorf("namespace %q was not gone within %s, and its deletion goes on; "+
			"`%s` shows what blocks it", name, o.timeout, explainCommand(name))}
	}
	return err
}
