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
revision that the namespace contains, failures, conflicts, and objects that templates no longer
contain, but that remain. It also prints when the operator will
delete the namespace.

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
		RunE:              runWithContext(options.run),
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
	if o.all && len(args) > 0 {
		return fmt.Errorf("name %q and --all are mutually exclusive", args[0])
	}
	explainer := &explainer{session: o.session, options: o}
	err := explainer.run(ctx, args)
	if err := o.print(explainer, err == nil); err != nil {
		return err
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	return explainer.status()
}

// explainer explains namespaces.
type explainer struct {
	*session
	options   *explainOptions
	relations *relationReader
	// explanations are the result.
	explanations []*explanation
}

func (e *explainer) run(ctx context.Context, args []string) error {
	names, isAll := args, e.options.all
	if !isAll {
		name, err := e.namespaceName(args)
		if err != nil {
			return err
		}
		names = []string{name}
	}
	collector, err := e.newCollector(e.options.progressDeadline)
	if err != nil {
		return err
	}
	if e.relations, err = e.readRelations(ctx); err != nil {
		return err
	}
	if isAll {
		if names, err = e.unfinished(ctx); err != nil {
			return err
		}
	}
	all := make([]*explanation, len(names))
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(ctx, maxParallelDiagnoses, len(names), func(i int) {
		all[i], errs[i] = e.explain(ctx, collector, names[i])
		if isAll && apierrors.IsNotFound(errs[i]) {
			errs[i] = nil // The Namespace has been removed since it was listed.
		}
	})
	e.explanations = slices.DeleteFunc(all, func(one *explanation) bool { return one == nil })
	return errors.Join(errs...)
}

// unfinished returns the names of all namespaces that are not in the state Initialized, or in which a template fails.
func (e *explainer) unfinished(ctx context.Context) ([]string, error) {
	namespaces, err := e.listNamespaces(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		if diagnosis.StateOf(namespace) != diagnosis.StateInitialized || e.relations.mayFail(namespace) {
			names = append(names, namespace.Name)
		}
	}
	return names, nil
}

// explanation is the document that the explain command prints.
type explanation struct {
	*diagnosis.Diagnosis `json:",inline"`
	// Templates are how the templates relate to the namespace.
	Templates []templates.Relation `json:"templates,omitempty"`
	// WaitsFor is what the conditions of a terminating Namespace report, if the cause is unknown.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Deletion are sentences about when and why the operator will delete the namespace, and what does not protect it.
	Deletion []string `json:"deletion,omitempty"`
	// UnusedSettings are sentences about parameters and a label with which the namespace chooses nothing.
	UnusedSettings []string `json:"unusedSettings,omitempty"`
	// Retained are the objects that no template contains any more, and that the operator does not delete. With several
	// namespaces, they are not searched for.
	Retained []templates.RetainedObject `json:"retained,omitempty"`
}

// explain diagnoses a namespace and adds its templates.
func (e *explainer) explain(ctx context.Context, collector *collect.Collector, name string) (*explanation, error) {
	facts, err := collector.Collect(ctx, name)
	if err != nil {
		return nil, err
	}
	relations := e.relations
	related := relations.of(facts.Namespace)
	facts.TemplateFailures = failureTexts(related)
	result := &explanation{Diagnosis: rules.Diagnose(facts), Templates: related}
	result.UnusedSettings = relations.unusedSettings(facts.Namespace, result.Templates)
	e.connectRemedies(result.Diagnosis)
	if result.State == diagnosis.StateTerminating && result.Result == diagnosis.Unknown {
		result.WaitsFor, _ = deletionWaitsFor(facts.Namespace)
	}
	if result.State != diagnosis.StateTerminating {
		policies := &policyReader{session: e.session}
		result.Deletion = append(timeoutTexts(facts, relations, result.Templates), policies.texts(ctx, facts.Namespace)...)
		result.Unread = slices.Concat(result.Unread, relations.unread, policies.unread)
	}
	if result.State == diagnosis.StateInitialized && relations.isServed && !e.options.all {
		var unread []string
		result.Retained, unread = e.retainedObjects(ctx, "", *facts.Namespace)
		result.Unread = append(result.Unread, unread...)
	}
	switch {
	case result.Result != diagnosis.Healthy:
	case isFailing(result.Templates):
		result.Result, result.Summary = diagnosis.Degraded, messageDegraded
	case relations.isUnknown(result.Templates):
		result.Result, result.Summary = diagnosis.Unknown, messageUnknown
	}
	return result, nil
}

const (
	messageDegraded = "the namespace is initialized, but its objects are not all as its templates specify"
	messageUnknown  = "the namespace is initialized, but it is not known whether it contains all objects of its templates"
)

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

// diagnose diagnoses a namespace.
func (s *session) diagnose(
	ctx context.Context, collector *collect.Collector, name string,
) (*diagnosis.Diagnosis, error) {
	result, err := collector.Diagnose(ctx, name)
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

// status is like diagnosisStatus. Without the templates, the state of other namespaces is unknown.
func (e *explainer) status() error {
	var diagnoses []*diagnosis.Diagnosis
	for _, one := range e.explanations {
		diagnoses = append(diagnoses, one.Diagnosis)
	}
	if e.options.all && len(e.relations.unread) > 0 {
		diagnoses = append(diagnoses, &diagnosis.Diagnosis{Result: diagnosis.Unknown})
	}
	return diagnosisStatus(diagnoses...)
}

const messageTemplatesUnread = "The templates of the namespaces are unknown"

// print writes the explanations as a document or as text. The document of one namespace is not a list.
func (o *explainOptions) print(explainer *explainer, isComplete bool) error {
	all := explainer.explanations
	switch {
	case o.output.IsStructured() && o.all:
		return o.output.Print(o.Out, "DiagnosisList", printer.Items(all))
	case len(all) > 0 && o.output.IsStructured():
		return o.output.Print(o.Out, "Diagnosis", all[0])
	}
	texts := make([]string, 0, len(all))
	for _, result := range all {
		texts = append(texts, explanationText(result, printer.NewPalette(o.Out)))
	}
	if _, err := io.WriteString(o.Out, strings.Join(texts, "\n")); err != nil {
		return err
	}
	for _, result := range all {
		o.warnUnread(result.Namespace, result.Unread)
	}
	if len(all) == 0 && isComplete {
		fmt.Fprintln(o.ErrOut, "All namespaces are initialized.")
		o.warnEach(messageTemplatesUnread, explainer.relations.unread)
	}
	return nil
}

func explanationText(result *explanation, colors printer.Palette) string {
	text := printer.RenderDiagnosis(result.Diagnosis, colors, time.Now())
	related := printer.Branch{Label: "Templates", Children: relationBranches(result.Templates)}
	for _, unused := range result.UnusedSettings {
		related.Children = append(related.Children, printer.Branch{Text: unused})
	}
	for _, one := range result.Retained {
		related.Children = append(related.Children, printer.Branch{
			Label: "Not deleted", Text: fmt.Sprintf("%s, which template %s no longer contains", one, one.Template),
		})
	}
	for _, tree := range []printer.Branch{
		textBranch("Waiting for", result.WaitsFor), textBranch("Deletion", result.Deletion), related,
	} {
		if len(tree.Children) > 0 {
			text += "\n" + printer.RenderTree([]printer.Branch{tree})
		}
	}
	return text
}

func textBranch(label string, texts []string) printer.Branch {
	branch := printer.Branch{Label: label}
	for _, text := range texts {
		branch.Children = append(branch.Children, printer.Branch{Text: text})
	}
	return branch
}

func (s *session) warnUnread(namespace string, unread []string) {
	s.warnEach(fmt.Sprintf("The diagnosis of namespace %s is incomplete", namespace), unread)
}

// diagnosisStatus returns an error with the status ExitBlocked if at least one namespace is blocked or degraded, and
// with the status ExitError if the state of at least one namespace is unknown.
func diagnosisStatus(all ...*diagnosis.Diagnosis) error {
	isAny := func(health diagnosis.Health) bool {
		return slices.ContainsFunc(all, func(result *diagnosis.Diagnosis) bool { return result.Result == health })
	}
	switch {
	case isAny(diagnosis.Blocked), isAny(diagnosis.Degraded):
		return &StatusError{Code: ExitBlocked}
	case isAny(diagnosis.Unknown):
		return &StatusError{Code: ExitError}
	}
	return nil
}
