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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// maxParallelDiagnoses is the maximum number of namespaces that are diagnosed in parallel. Each
// diagnosis sends many requests.
const maxParallelDiagnoses = 4

type explainOptions struct {
	*session
	output           printer.Output
	all              bool
	progressDeadline time.Duration
}

func newExplainCommand(session *session) *cobra.Command {
	options := &explainOptions{session: session}
	command := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Explain why a namespace is stuck",
		Long: `Show the state of a namespace and, if it is stuck, explain why.

The command prints the findings as a tree, most likely cause first. Each finding contains
the affected objects, the evidence, the remedies, and what would be lost if the finalizer
were removed by force. A namespace that makes progress has no findings.

The command changes nothing. Without NAME, it explains the namespace of the current context.

Exit status: 0 healthy or progressing, 3 blocked, 1 error, or unknown because objects cannot be read.`,
		Example: `  # Explain why a namespace is stuck
  kubectl nslifecycle explain shop

  # Explain all namespaces that are not in the state Initialized
  kubectl nslifecycle explain --all

  # Print the most likely cause
  kubectl nslifecycle explain shop -o json | jq -r '.findings[0].cause'`,
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.output.AddFlag(command)
	flags := command.Flags()
	flags.BoolVarP(&options.all, "all", "A", false,
		"If true, explain all namespaces that are not in the state Initialized.")
	flags.DurationVar(&options.progressDeadline, "progress-deadline", diagnosis.DefaultProgressDeadline,
		"The length of time without progress after which a namespace is considered stuck.")
	return command
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	if o.all {
		if len(args) > 0 {
			return fmt.Errorf("name %q and --all are mutually exclusive", args[0])
		}
		return o.explainAll(ctx)
	}
	name, err := o.namespaceName(args)
	if err != nil {
		return err
	}
	collector, err := o.newCollector(o.progressDeadline)
	if err != nil {
		return err
	}
	result, err := o.diagnose(ctx, collector, name)
	if err != nil {
		return err
	}
	if err := o.print("Diagnosis", result, result); err != nil {
		return err
	}
	return diagnosisStatus(result)
}

// newCollector returns a collector that reports findings only for namespaces that make no progress
// within the progress deadline.
func (s *session) newCollector(progressDeadline time.Duration) (*collect.Collector, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	collector, err := collect.New(config)
	if err != nil {
		return nil, err
	}
	collector.ProgressDeadline = progressDeadline
	return collector, nil
}

// diagnose diagnoses a namespace. If the namespace does not exist, it returns a short error.
func (s *session) diagnose(
	ctx context.Context, collector *collect.Collector, name string,
) (*diagnosis.Diagnosis, error) {
	result, err := collector.Diagnose(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf(msgNamespaceNotFound, name)
	}
	if err != nil {
		return nil, err
	}
	s.connectRemedies(result)
	return result, nil
}

func (s *session) connectRemedies(result *diagnosis.Diagnosis) {
	for i := range result.Findings {
		for j := range result.Findings[i].Remedies {
			remedy := &result.Findings[i].Remedies[j]
			remedy.Command = s.withConnection(remedy.Command)
			if !shell.IsCommand(remedy.Command) {
				remedy.Text, remedy.Command = remedy.String(), ""
			}
		}
	}
}

// explainAll explains all namespaces that are not in the state Initialized.
func (o *explainOptions) explainAll(ctx context.Context) error {
	namespaces, err := o.listNamespaces(ctx, "")
	if err != nil {
		return err
	}
	var names []string
	for i := range namespaces {
		if computeSummary(&namespaces[i]).State != diagnosis.StateInitialized {
			names = append(names, namespaces[i].Name)
		}
	}
	collector, err := o.newCollector(o.progressDeadline)
	if err != nil {
		return err
	}
	all := make([]*diagnosis.Diagnosis, len(names))
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(ctx, maxParallelDiagnoses, len(names), func(i int) {
		all[i], errs[i] = collector.Diagnose(ctx, names[i])
		if apierrors.IsNotFound(errs[i]) {
			errs[i] = nil // The Namespace has been removed since it was listed.
		}
		if all[i] != nil {
			o.connectRemedies(all[i])
		}
	})
	all = slices.DeleteFunc(all, func(one *diagnosis.Diagnosis) bool { return one == nil })
	if len(all) == 0 && !o.output.IsStructured() {
		fmt.Fprintln(o.ErrOut, "All namespaces are initialized.")
	}
	if err := o.print("DiagnosisList", printer.Items(all), all...); err != nil {
		return err
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return diagnosisStatus(all...)
}

// print writes the document if the output is JSON or YAML, and the diagnoses as text otherwise.
func (o *explainOptions) print(kind string, document any, all ...*diagnosis.Diagnosis) error {
	if o.output.IsStructured() {
		return o.output.Print(o.Out, kind, document)
	}
	texts := make([]string, 0, len(all))
	for _, result := range all {
		texts = append(texts, printer.RenderDiagnosis(result, printer.NewScreen(o.Out)))
	}
	if _, err := io.WriteString(o.Out, strings.Join(texts, "\n")); err != nil {
		return err
	}
	for _, result := range all {
		o.warnUnread(result.Namespace, result.Unread)
	}
	return nil
}

func (s *session) warnUnread(namespace string, unread []string) {
	s.warnEach(fmt.Sprintf("The diagnosis of namespace %s is incomplete", namespace), unread)
}

// diagnosisStatus returns an error with the status ExitBlocked if at least one namespace is blocked, and
// with the status ExitError if the state of at least one namespace is unknown.
func diagnosisStatus(all ...*diagnosis.Diagnosis) error {
	hasState := func(state diagnosis.Result) bool {
		return slices.ContainsFunc(all, func(result *diagnosis.Diagnosis) bool { return result.Result == state })
	}
	switch {
	case hasState(diagnosis.Blocked):
		return &StatusError{Code: ExitBlocked}
	case hasState(diagnosis.Unknown):
		return &StatusError{Code: ExitError}
	}
	return nil
}
