// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/plugin/forcefinalize"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// states are the valid values of the flag --state.
var states = []string{
	string(diagnosis.StateInitializing), string(diagnosis.StateInitialized), string(diagnosis.StateFailed),
	string(diagnosis.StateTerminating),
}

type listOptions struct {
	*session
	output   printer.Output
	selector string
	state    string
	mine     bool
	watch    bool
	names    []string

	relations *relationReader
	policies  *policyReader
	table     *printer.TablePrinter
	// summaries are the result of list, and resourceVersion is the version of the list.
	summaries       []namespaceSummary
	resourceVersion string
}

func newListCommand(session *session) *cobra.Command {
	options := &listOptions{session: session}
	command := &cobra.Command{
		Use:     "list [NAME...]",
		Aliases: []string{"ls"},
		Short:   "List namespaces with their state and what they wait for",
		Long: `List namespaces with their state (Initializing, Initialized, Failed or Terminating), the cause if
they are stuck, and what they wait for. The output formats wide, json and yaml also contain the
NamespaceTemplates that select each namespace, with their revisions and failures, and whether the
cluster enforces deletion protection.

The command reads Namespaces, which contain all other information, NamespaceTemplates, and the
policy for deletion protection if a namespace has its label.

With --mine, it lists the namespaces that you have created. Without permission to list namespaces,
these are the ones that "kubectl nslifecycle create" has created on this computer; it records their
names in your configuration directory, and the command gets each of them.`,
		Example: `  # List the namespaces that you have created
  kubectl nslifecycle list --mine

  # List the terminating namespaces, and watch for changes
  kubectl nslifecycle list --state=Terminating --watch

  # Print the names of the namespaces that are stuck
  kubectl nslifecycle list -o jsonpath='{range .items[?(@.blocked)]}{.metadata.name}{"\n"}{end}'`,
		ValidArgsFunction: session.completeManyNamespaces,
		RunE:              runWithContext(options.run),
	}
	options.output.AddTableFlags(command, printer.FormatWide, printer.FormatName)
	flags := command.Flags()
	flags.StringVarP(&options.selector, "selector", "l", "", "Selector (label query) to filter on, as in kubectl get.")
	flags.StringVar(&options.state, "state", "", fmt.Sprintf("If set, only list namespaces in this state. One of: (%s).",
		strings.Join(states, ", ")))
	flags.BoolVar(&options.mine, "mine", false, "If true, only list namespaces that you have created.")
	flags.BoolVarP(&options.watch, "watch", "w", false, "After listing the namespaces, watch for changes.")
	_ = command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *listOptions) run(ctx context.Context, names []string) error {
	o.names = names
	isState := func(state string) bool { return strings.EqualFold(state, o.state) }
	switch {
	case o.state != "" && !slices.ContainsFunc(states, isState):
		return fmt.Errorf("unknown state %q; must be one of %s", o.state, strings.Join(states, ", "))
	case len(o.names) > 0 && (o.mine || o.selector != ""):
		return errors.New("names cannot be combined with --mine or --selector")
	case o.watch && (o.mine || len(o.names) > 1):
		return errors.New("--watch cannot be combined with --mine or several names")
	}
	err := o.list(ctx)
	if len(o.summaries) == 0 && err == nil && !o.output.IsStructured() {
		fmt.Fprintln(o.ErrOut, "No namespaces found.")
	}
	o.table = o.output.NewTable(o.Out)
	if err := o.show(o.summaries); err != nil {
		return err
	}
	o.warnUnread()
	if o.watch && err == nil {
		err = o.watchChanges(ctx)
	}
	return errors.Join(ctx.Err(), err)
}

// show prints all namespaces of the list, or one namespace that has changed.
func (o *listOptions) show(summaries []namespaceSummary) error {
	switch {
	case o.output.IsName():
		for i := range summaries {
			fmt.Fprintf(o.Out, "namespace/%s\n", summaries[i].Metadata.Name)
		}
		return nil
	case o.output.IsStructured() && !o.watch:
		return o.output.Print(o.Out, "NamespaceSummaryList", printer.Items(summaries))
	case o.output.IsStructured():
		for i := range summaries {
			if err := o.output.Print(o.Out, "NamespaceSummary", summaries[i]); err != nil {
				return err
			}
		}
		return nil
	case len(summaries) == 0:
		return nil
	}
	return o.table.Print(summaryTable(summaries, time.Now(), o.output.IsWide()))
}

// maxWaitsFor is the maximum length of a cell of the column "Waiting For" unless the output format is
// wide.
const maxWaitsFor = 80

// detailsPattern matches what follows the sentence in the message of a condition that reports a lack
// of progress.
var detailsPattern = regexp.MustCompile(`(; objects: |; remedy: | \(as of ).*`)

func summaryTable(summaries []namespaceSummary, now time.Time, isWide bool) *metav1.Table {
	table := printer.NewTable(
		"Name", "State", "Age", "+Since", "+Requested By", "+Protected", "Cause", "Waiting For",
		"+Also Waiting For", "+Templates")
	for i := range summaries {
		summary := &summaries[i]
		first, others, found := "", "", printer.OrNone(templatesText(summary.Templates))
		if summary.isUnread && len(summary.Templates) == 0 {
			found = "<unknown>"
		}
		if len(summary.WaitsFor) > 0 {
			first, others = summary.WaitsFor[0], strings.Join(summary.WaitsFor[1:], "; ")
		}
		if !isWide {
			first = printable.Words(detailsPattern.ReplaceAllString(first, ""), maxWaitsFor)
		}
		printer.AddRow(table,
			summary.Metadata.Name, string(summary.State),
			printer.Age(summary.Metadata.CreationTimestamp, now), printer.Age(summary.Since, now),
			printer.OrNone(summary.RequestedBy), protectionTexts[summary.DeletionProtection],
			printer.OrNone(summary.Cause), first, others, found)
	}
	return table
}

// protectionTexts are the cells of the column "Protected".
var protectionTexts = map[enforcement]string{
	"": "no", enforced: "yes", notEnforced: "not enforced", enforcementUnknown: "<unknown>",
}

// namespaceSummary is the state of a namespace.
type namespaceSummary struct {
	Metadata metav1.ObjectMeta        `json:"metadata"`
	State    diagnosis.NamespaceState `json:"state"`
	// Since is the time when the state began.
	Since metav1.Time `json:"since"`
	// IsBlocked reports whether the initialization failed or the operator reports that the namespace
	// is stuck.
	IsBlocked bool `json:"blocked"`
	// Cause is the most likely cause that the operator has found, or why a template fails.
	Cause string `json:"cause,omitempty"`
	// WaitsFor lists what the namespace is waiting for, most important first.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// PendingInitializers are in the order in which they run.
	PendingInitializers []string `json:"pendingInitializers,omitempty"`
	RequestedBy         string   `json:"requestedBy,omitempty"`
	// DeletionProtection is whether the label for deletion protection is enforced; empty without the label.
	DeletionProtection enforcement `json:"deletionProtection,omitempty"`
	// Templates are the templates that select the namespace or nearly do.
	Templates []templates.Relation `json:"templates,omitempty"`
	// isUnread is true if the templates cannot be read. Templates then contains the templates that the namespace records.
	isUnread bool
}

// addTemplates adds the templates that select the namespace or nearly do. An initialized namespace waits for the
// templates that fail.
func (s *namespaceSummary) addTemplates(relations []templates.Relation) {
	for i := range relations {
		relation := &relations[i]
		isSelected := relation.Match == nil || relation.Result != template.MatchNotSelected || relation.Revision != ""
		if !isSelected {
			continue
		}
		s.Templates = append(s.Templates, *relation)
		if s.State != diagnosis.StateInitialized {
			continue
		}
		if relation.Problem != "" {
			reason, _, _ := strings.Cut(relation.Problem, ":")
			s.Cause = cmp.Or(s.Cause, reason)
			s.WaitsFor = append(s.WaitsFor, fmt.Sprintf("template %s: %s", relation.Template, relation.Problem))
		}
		for _, failure := range relation.Failures {
			s.Cause = cmp.Or(s.Cause, failure.Reason)
			s.WaitsFor = append(s.WaitsFor, fmt.Sprintf("template %s, %s", relation.Template, failureText(failure)))
		}
	}
}

// templatesText returns the names of templates, and what is unusual about them.
func templatesText(relations []templates.Relation) string {
	texts := make([]string, 0, len(relations))
	for i := range relations {
		relation, note := &relations[i], ""
		switch {
		case relation.IsFailing():
			note = " (fails)"
		case relation.Match != nil && relation.Result != template.MatchSelected:
			note = " (" + matchTexts[relation.Result] + ")"
		case relation.IsOutdated:
			note = " (outdated)"
		case relation.IsUnknown:
			note = " (unknown)"
		}
		texts = append(texts, relation.Template+note)
	}
	return strings.Join(texts, ", ")
}

func computeSummary(namespace *corev1.Namespace) namespaceSummary {
	state := initialization.ParseState(namespace)
	summary := namespaceSummary{
		Metadata: metav1.ObjectMeta{
			Name: namespace.Name, UID: namespace.UID, Labels: namespace.Labels,
			CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp,
		},
		State:               diagnosis.StateOf(namespace),
		Since:               namespace.CreationTimestamp,
		PendingInitializers: state.Pending,
		RequestedBy:         namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	}
	switch summary.State {
	case diagnosis.StateTerminating:
		summary.Since = *namespace.DeletionTimestamp
		summary.WaitsFor, summary.IsBlocked = deletionWaitsFor(namespace)
	case diagnosis.StateInitializing, diagnosis.StateFailed:
		summary.WaitsFor, summary.IsBlocked = initializationWaitsFor(namespace, &state)
		if state.Failure != nil {
			summary.Cause = string(diagnosis.CauseInitializerFailing)
		}
	default:
		if at := initialization.InitializedAt(namespace); at != nil {
			summary.Since = *at
		}
	}
	if diagnosis.IsBlocked(namespace, summary.State) {
		summary.Cause = nsobject.FindCondition(namespace, diagnosis.BlockedCondition(summary.State)).Reason
	}
	return summary
}

// initializationWaitsFor returns what the initialization of a Namespace is waiting for: the first
// pending initializer and known problems, or the deletion if the initialization failed.
func initializationWaitsFor(
	namespace *corev1.Namespace, state *initialization.State,
) (texts []string, isBlocked bool) {
	if state.Failure != nil {
		return []string{"deletion, because the initialization failed: " + initialization.FailureText(state.Failure)}, true
	}
	position := len(state.All) - len(state.Pending) + 1
	texts = []string{fmt.Sprintf("%s (%d of %d)", state.Pending[0], position, len(state.All))}
	if blocked := findTrueCondition(namespace, v1alpha1.ConditionInitializationBlocked); blocked != nil {
		texts = append(texts, blocked.Message)
		isBlocked = true
	}
	if state.ResultProblem != "" {
		texts = append(texts, state.ResultProblem)
	}
	return texts, isBlocked
}

// deletionWaitsFor returns what the deletion of a Namespace is waiting for: the cause that the
// operator has found, followed by errors, finalizers and remaining objects.
func deletionWaitsFor(namespace *corev1.Namespace) (texts []string, isBlocked bool) {
	if blocked := findTrueCondition(namespace, v1alpha1.ConditionDeletionBlocked); blocked != nil {
		texts = append(texts, blocked.Message)
		isBlocked = true
	}
	texts = append(texts, deletionFailures(namespace)...)
	texts = append(texts, deletionHolders(namespace)...)
	if remaining := findTrueCondition(namespace, corev1.NamespaceContentRemaining); remaining != nil {
		texts = append(texts, describeMatches(remaining.Message, remainingPattern, func(resource, count string) string {
			return count + " " + strings.TrimSuffix(resource, ".")
		}))
	}
	if len(texts) == 0 && slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		texts = append(texts, "the namespace controller")
	}
	return texts, isBlocked
}

// deletionFailures returns the errors in the conditions of a Namespace.
func deletionFailures(namespace *corev1.Namespace) []string {
	var texts []string
	for _, failure := range diagnosis.FailureConditions {
		if condition := findTrueCondition(namespace, failure); condition != nil {
			texts = append(texts, condition.Message)
		}
	}
	return texts
}

// deletionHolders returns the finalizers of the Namespace and of the objects in it.
func deletionHolders(namespace *corev1.Namespace) []string {
	var texts []string
	if held := findTrueCondition(namespace, corev1.NamespaceFinalizersRemaining); held != nil {
		texts = append(texts, describeMatches(held.Message, finalizersPattern, func(finalizer, count string) string {
			if count == "1" {
				return fmt.Sprintf("finalizer %s on 1 object", finalizer)
			}
			return fmt.Sprintf("finalizer %s on %s objects", finalizer, count)
		}))
	}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes {
			texts = append(texts, forcefinalize.Removal{NamespaceFinalizer: string(finalizer)}.String())
		}
	}
	for _, finalizer := range namespace.Finalizers {
		texts = append(texts, forcefinalize.Removal{MetadataFinalizer: finalizer}.String())
	}
	return texts
}

// These patterns match parts of the messages of the NamespaceContentRemaining and
// NamespaceFinalizersRemaining conditions. The messages have not changed since Kubernetes 1.16.
var (
	remainingPattern  = regexp.MustCompile(`([^\s,]+) has (\d+) resource instances`)
	finalizersPattern = regexp.MustCompile(`([^\s,]+) in (\d+) resource instances`)
)

// describeMatches shortens the message of a condition. It returns a message in an unknown format unchanged.
func describeMatches(message string, pattern *regexp.Regexp, describe func(name, count string) string) string {
	matches := pattern.FindAllStringSubmatch(message, -1)
	if len(matches) == 0 {
		return message
	}
	parts := make([]string, 0, len(matches))
	for _, match := range matches {
		parts = append(parts, describe(match[1], match[2]))
	}
	return strings.Join(parts, ", ")
}

// findTrueCondition returns the condition of the given type, or nil if its status is not True.
func findTrueCondition(
	namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType,
) *corev1.NamespaceCondition {
	condition := nsobject.FindCondition(namespace, conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return nil
	}
	return condition
}
