// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// explainedAtOnce is how many namespaces are looked at side by side: each takes many
// requests.
const explainedAtOnce = 4

type explainOptions struct {
	*session
	output   *output
	isAll    bool
	patience time.Duration
}

func newExplainCommand(session *session) *cobra.Command {
	options := &explainOptions{session: session, output: newOutput(outputJSON, outputYAML)}
	command := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Tell why a namespace does not get on, and what to do",
		Long: "Tell how a namespace is getting on and, if it is stuck, why: the findings as a tree, the most\n" +
			"likely cause first, each with the objects that are concerned, the evidence, what to do, and\n" +
			"what would be lost by force. A finding is called proven only if the facts leave no other\n" +
			"explanation. A namespace that is merely slow has no findings.\n\n" +
			"It changes nothing. Without NAME it explains the namespace of the current context.\n\n" +
			"Exit status: 0 healthy or getting on, 3 blocked, 1 error.",
		Example: "  # Why is it stuck?\n" +
			"  kubectl nslifecycle explain shop\n\n" +
			"  # Everything that is being deleted or initialized\n" +
			"  kubectl nslifecycle explain --all\n\n" +
			"  # The leading cause, for a script\n" +
			"  kubectl nslifecycle explain shop -o json | jq -r '.findings[0].cause'",
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.output.addFlag(command)
	flags := command.Flags()
	flags.BoolVarP(&options.isAll, "all", "A", false, "Every namespace that is being deleted or initialized")
	flags.DurationVar(&options.patience, "progress-deadline", diagnosis.DefaultProgressDeadline,
		"How long something may take before anybody is blamed for it")
	return command
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	if err := o.output.validate(); err != nil {
		return err
	}
	if o.isAll {
		if len(args) > 0 {
			return fmt.Errorf("either --all or namespace %q, not both", args[0])
		}
		return o.explainAll(ctx)
	}
	name, err := o.namespaceName(args)
	if err != nil {
		return err
	}
	gatherer, err := o.newGatherer(o.patience)
	if err != nil {
		return err
	}
	result, err := diagnose(ctx, gatherer, name)
	if err != nil {
		return err
	}
	if err := o.print("Diagnosis", result, result); err != nil {
		return err
	}
	return exitFor(result)
}

// newGatherer returns what reads the facts about namespaces. Nobody is blamed for what has
// not taken longer than the patience.
func (s *session) newGatherer(patience time.Duration) (*collect.Collector, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	gatherer, err := collect.New(config)
	if err != nil {
		return nil, err
	}
	gatherer.ProgressDeadline = patience
	return gatherer, nil
}

// diagnose finds out how one namespace is getting on.
func diagnose(ctx context.Context, gatherer *collect.Collector, name string) (*diagnosis.Diagnosis, error) {
	found, err := gatherer.Diagnose(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no namespace %q", name)
	}
	return found, err
}

// explainAll explains what is not just active. The worst of them gives the exit status.
func (o *explainOptions) explainAll(ctx context.Context) error {
	names, err := o.unsettledNames(ctx)
	if err != nil {
		return err
	}
	gatherer, err := o.newGatherer(o.patience)
	if err != nil {
		return err
	}
	all := make([]*diagnosis.Diagnosis, len(names))
	errs := make([]error, len(names))
	group := errgroup.Group{}
	group.SetLimit(explainedAtOnce)
	for i, name := range names {
		group.Go(func() error {
			all[i], errs[i] = diagnose(ctx, gatherer, name)
			return nil
		})
	}
	_ = group.Wait() // What went wrong stands in errs.
	all = slices.DeleteFunc(all, func(one *diagnosis.Diagnosis) bool { return one == nil })
	if len(all) == 0 && !o.output.isStructured() {
		fmt.Fprintln(o.ErrOut, "No namespace is being deleted or initialized.")
	}
	if err := o.print("DiagnosisList", map[string]any{"items": all}, all...); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return exitFor(all...)
}

// unsettledNames returns the namespaces that are being deleted or initialized, sorted.
func (o *explainOptions) unsettledNames(ctx context.Context) ([]string, error) {
	client, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	var names []string
	for i := range list.Items {
		if describeLife(&list.Items[i]).Stage != diagnosis.StageActive {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// print writes a value for programs, or the diagnoses for people. What could not be read
// goes to stderr.
func (o *explainOptions) print(kind string, value any, all ...*diagnosis.Diagnosis) error {
	if o.output.isStructured() {
		return o.output.print(o.Out, kind, value)
	}
	texts := make([]string, 0, len(all))
	for _, result := range all {
		texts = append(texts, renderDiagnosis(result, o.screen(o.Out)))
	}
	if _, err := io.WriteString(o.Out, strings.Join(texts, "\n")); err != nil {
		return err
	}
	for _, result := range all {
		o.warnUnread(result.Namespace, result.Unread)
	}
	return nil
}

// screen is what is known of a stream that text is written to.
func (s *session) screen(out io.Writer) screen {
	screen := screen{colours: s.palette(out), now: time.Now()}
	if isTerminal(out) {
		screen.columns = width(out)
	}
	return screen
}

func (s *session) warnUnread(namespace string, unread []string) {
	s.warnEach(fmt.Sprintf("Not read in namespace %s, and a cause may be hidden there", namespace), unread)
}

// explainCommand returns the command that explains a namespace.
func explainCommand(name string) string { return shell.Command(displayName+" explain %s", name) }

// exitFor is the exit status that tells whether anything is blocked.
func exitFor(all ...*diagnosis.Diagnosis) error {
	for _, result := range all {
		if result.State == diagnosis.Blocked {
			return exitWith(ExitBlocked)
		}
	}
	return nil
}
