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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	output           *printer.Output
	all              bool
	progressDeadline time.Duration
}

func newExplainCommand(session *session) *cobra.Command {
	options := &explainOptions{session: session, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML)}
	command := &cobra.Command{
		Use:               "explain [NAME]",
		Short:             shortExplain,
		Long:              longExplain,
		Example:           exampleExplain,
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.output.AddFlag(command)
	flags := command.Flags()
	flags.BoolVarP(&options.all, "all", "A", false, helpExplainAll)
	flags.DurationVar(&options.progressDeadline, "progress-deadline", diagnosis.DefaultProgressDeadline,
		helpExplainProgressDeadline)
	return command
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	if o.all {
		if len(args) > 0 {
			return fmt.Errorf(msgNameAndAll, args[0])
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

// connectRemedies adds the connection flags to the commands of a diagnosis.
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

// explainAll explains all namespaces that are initializing or terminating.
func (o *explainOptions) explainAll(ctx context.Context) error {
	names, err := o.inactiveNames(ctx)
	if err != nil {
		return err
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
		fmt.Fprintln(o.ErrOut, msgNoInactiveNamespaces)
	}
	if err := o.print("DiagnosisList", printer.Items(all), all...); err != nil {
		return err
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return diagnosisStatus(all...)
}

// inactiveNames returns the sorted names of all namespaces that are initializing or terminating.
func (o *explainOptions) inactiveNames(ctx context.Context) ([]string, error) {
	client, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf(msgListNamespaces, err)
	}
	var names []string
	for i := range list.Items {
		if computeSummary(&list.Items[i]).Stage != diagnosis.StageActive {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
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
	s.warnEach(fmt.Sprintf(msgIncompleteDiagnosis, namespace), unread)
}

// diagnosisStatus returns an error with the status ExitBlocked if at least one namespace is blocked, and
// with the status ExitError if the state of at least one namespace is unknown.
func diagnosisStatus(all ...*diagnosis.Diagnosis) error {
	hasState := func(state diagnosis.State) bool {
		return slices.ContainsFunc(all, func(result *diagnosis.Diagnosis) bool { return result.State == state })
	}
	switch {
	case hasState(diagnosis.Blocked):
		return &StatusError{Code: ExitBlocked}
	case hasState(diagnosis.Unknown):
		return &StatusError{Code: ExitError}
	}
	return nil
}
