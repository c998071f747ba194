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
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
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

Unless the namespace is terminating, the command also prints for each NamespaceTemplate whether
it selects the namespace or would without a typing error in a label, why it is not applied, the
revision that the namespace contains, failures and conflicts.

The command changes nothing. Without NAME, it explains the namespace of the current context.

Exit status: 0 healthy or progressing, 3 blocked or degraded, because a template fails, 1 error, or
unknown because objects cannot be read.`,
		Example: `  # Explain why a namespace is stuck
  kubectl nslifecycle explain shop

  # Explain all namespaces that are not Initialized, or in which a template fails
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
		"If true, explain all namespaces that are not in the state Initialized, or in which a template fails.")
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
	relations, err := o.readRelations(ctx)
	if err != nil {
		return err
	}
	result, err := o.explain(ctx, collector, relations, name)
	if err != nil {
		return namespaceError(err, name)
	}
	if err := o.print("Diagnosis", result, result); err != nil {
		return err
	}
	return diagnosisStatus(result.Diagnosis)
}

// explanation is the document that the explain command prints.
type explanation struct {
	*diagnosis.Diagnosis `json:",inline"`
	// Templates are how the templates relate to the namespace.
	Templates []templates.Relation `json:"templates,omitempty"`
	// WaitsFor is what the conditions of a terminating Namespace report, if the cause is unknown.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// UnusedSettings are sentences about parameters and a label with which the namespace chooses nothing.
	UnusedSettings []string `json:"unusedSettings,omitempty"`
}

// explain diagnoses a namespace and adds its templates.
func (o *explainOptions) explain(
	ctx context.Context, collector *collect.Collector, relations *relationReader, name string,
) (*explanation, error) {
	facts, err := collector.Collect(ctx, name)
	if err != nil {
		return nil, err
	}
	result := &explanation{Diagnosis: rules.Diagnose(facts), Templates: relations.of(facts.Namespace)}
	result.UnusedSettings = relations.unusedSettings(facts.Namespace, result.Templates)
	o.connectRemedies(result.Diagnosis)
	if result.State == diagnosis.StateTerminating && result.Result == diagnosis.Unknown {
		result.WaitsFor, _ = deletionWaitsFor(facts.Namespace)
	}
	if result.State != diagnosis.StateTerminating {
		result.Unread = append(result.Unread, relations.unread...)
	}
	switch {
	case result.Result != diagnosis.Healthy:
	case isFailing(result.Templates):
		result.Result, result.Summary = diagnosis.Degraded, msgDegraded
	case relations.isUnknown(result.Templates):
		result.Result, result.Summary = diagnosis.Unknown, msgUnknown
	}
	return result, nil
}

const (
	msgDegraded = "the namespace is initialized, but does not contain all objects of its templates"
	msgUnknown  = "the namespace is initialized, but it is not known whether it contains all objects of its templates"
)

// namespaceError returns a short error if a namespace does not exist.
func namespaceError(err error, name string) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf(msgNamespaceNotFound, name)
	}
	return err
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
	if err != nil {
		return nil, namespaceError(err, name)
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

// explainAll explains all namespaces that are not in the state Initialized, or in which a template fails.
func (o *explainOptions) explainAll(ctx context.Context) error {
	namespaces, err := o.listNamespaces(ctx, "")
	if err != nil {
		return err
	}
	relations, err := o.readRelations(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range namespaces {
		if diagnosis.StateOf(&namespaces[i]) != diagnosis.StateInitialized || relations.mayFail(&namespaces[i]) {
			names = append(names, namespaces[i].Name)
		}
	}
	collector, err := o.newCollector(o.progressDeadline)
	if err != nil {
		return err
	}
	all := make([]*explanation, len(names))
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(ctx, maxParallelDiagnoses, len(names), func(i int) {
		all[i], errs[i] = o.explain(ctx, collector, relations, names[i])
		if apierrors.IsNotFound(errs[i]) {
			errs[i] = nil // The Namespace has been removed since it was listed.
		}
	})
	all = slices.DeleteFunc(all, func(one *explanation) bool { return one == nil })
	if len(all) == 0 && !o.output.IsStructured() {
		fmt.Fprintln(o.ErrOut, "All namespaces are initialized.")
	}
	if err := o.print("DiagnosisList", printer.Items(all), all...); err != nil {
		return err
	}
	if len(all) == 0 {
		o.warnEach(msgTemplatesUnread, relations.unread)
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return explanationsStatus(relations, all)
}

// explanationsStatus is like diagnosisStatus. Without the templates, the state of other namespaces is unknown.
func explanationsStatus(relations *relationReader, all []*explanation) error {
	diagnoses := make([]*diagnosis.Diagnosis, 0, len(all)+1)
	for _, one := range all {
		diagnoses = append(diagnoses, one.Diagnosis)
	}
	if len(relations.unread) > 0 {
		diagnoses = append(diagnoses, &diagnosis.Diagnosis{Result: diagnosis.Unknown})
	}
	return diagnosisStatus(diagnoses...)
}

const msgTemplatesUnread = "The templates of the namespaces are unknown"

// print writes the document if the output is JSON or YAML, and the explanations as text otherwise.
func (o *explainOptions) print(kind string, document any, all ...*explanation) error {
	if o.output.IsStructured() {
		return o.output.Print(o.Out, kind, document)
	}
	texts := make([]string, 0, len(all))
	for _, result := range all {
		screen := printer.NewScreen(o.Out)
		text := printer.RenderDiagnosis(result.Diagnosis, screen)
		waitsFor := printer.Branch{Label: "Waiting for"}
		for _, one := range result.WaitsFor {
			waitsFor.Children = append(waitsFor.Children, printer.Branch{Text: one})
		}
		related := printer.Branch{Label: "Templates", Children: relationBranches(result.Templates, screen.Colors)}
		for _, unused := range result.UnusedSettings {
			related.Children = append(related.Children, printer.Branch{Text: unused, Paint: screen.Colors.Yellow})
		}
		for _, tree := range []printer.Branch{waitsFor, related} {
			if len(tree.Children) > 0 {
				text += "\n" + printer.RenderTree([]printer.Branch{tree}, screen.Columns)
			}
		}
		texts = append(texts, text)
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

// diagnosisStatus returns an error with the status ExitBlocked if at least one namespace is blocked or degraded, and
// with the status ExitError if the state of at least one namespace is unknown.
func diagnosisStatus(all ...*diagnosis.Diagnosis) error {
	hasState := func(state diagnosis.Result) bool {
		return slices.ContainsFunc(all, func(result *diagnosis.Diagnosis) bool { return result.Result == state })
	}
	switch {
	case hasState(diagnosis.Blocked), hasState(diagnosis.Degraded):
		return &StatusError{Code: ExitBlocked}
	case hasState(diagnosis.Unknown):
		return &StatusError{Code: ExitError}
	}
	return nil
}
