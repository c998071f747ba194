// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// defaultCreateTimeout is the default of --timeout. Initializers normally take less time.
const defaultCreateTimeout = 5 * time.Minute

type createOptions struct {
	*session
	output      printer.Output
	labels      map[string]string
	annotations map[string]string
	template    string
	parameters  []string
	dryRun      dryRun
	wait        bool
	timeout     time.Duration
}

func newCreateCommand(session *session) *cobra.Command {
	options := &createOptions{session: session}
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a namespace, and optionally wait until it is initialized",
		Long: `Create a namespace.

With --wait, the command shows the progress of each initializer until the namespace is
initialized. It fails if the initialization fails, the namespace is deleted, or the timeout
expires, and at once if waiting cannot help, for example because a template lacks a permission.
If there are no initializers or nslifecycle is not installed, it does not wait.

With --template, the namespace chooses a NamespaceTemplate: its objects exist before the
namespace is initialized. To list the templates and their parameters, use "kubectl nslifecycle
template list".

Exit status: 0 success, 3 waiting cannot help, 1 error.`,
		Example: `  # Create a namespace and wait until it is initialized
  kubectl nslifecycle create shop --wait

  # Create a namespace with the objects of a NamespaceTemplate
  kubectl nslifecycle create shop --template=team -p size=l --wait

  # Create a namespace in a script and stop if it is not initialized after 2 minutes
  kubectl nslifecycle create shop --wait --timeout=2m || exit 1`,
		Args:              oneNamespace,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runWithContext(options.run),
	}
	options.output.AddFlag(command)
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.StringToStringVarP(&options.labels, "labels", "l", nil,
		"Labels of the namespace, for example key1=value1,key2=value2.")
	flags.StringToStringVar(&options.annotations, "annotations", nil,
		"Annotations of the namespace, for example key1=value1,key2=value2.")
	flags.StringVar(&options.template, "template", "", "Name of the NamespaceTemplate that the namespace chooses.")
	flags.StringArrayVarP(&options.parameters, "parameter", "p", nil,
		"Parameter of a NamespaceTemplate, as NAME=VALUE. The flag can be repeated.")
	_ = command.RegisterFlagCompletionFunc("template",
		func(command *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return session.completeTemplate(command, nil, text)
		})
	flags.BoolVar(&options.wait, "wait", false, "If true, wait for all initializers to complete, and show their progress.")
	flags.DurationVar(&options.timeout, "timeout", defaultCreateTimeout, helpTimeout)
	return command
}

func (o *createOptions) run(ctx context.Context, args []string) error {
	name := args[0]
	if err := o.dryRun.validate(); err != nil {
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
	if o.dryRun == dryRunServer {
		return o.printCreated(created)
	}
	if err := o.recordCreation(ctx, created); err != nil {
		o.warnf("%s: %v", messageNotRecorded, err)
	}
	if o.wait {
		return o.waitAndPrint(ctx, client, created)
	}
	if err := o.printCreated(created); err != nil {
		return err
	}
	if pending := initialization.ParseState(created).Pending; len(pending) > 0 {
		printf(o.ErrOut, "The namespace is waiting for %s. To wait until it is initialized, run: %s",
			printable.Count(len(pending), "initializer"), o.waitCommand(name))
	}
	return nil
}

const messageNotRecorded = `"list --mine" might not list the namespace`

// recordCreation records a new namespace for "list --mine".
func (o *createOptions) recordCreation(ctx context.Context, created *corev1.Namespace) error {
	// The API server sets the annotation only if there are initializers or templates.
	user, ok := created.Annotations[v1alpha1.AnnotationRequestedBy]
	if !ok {
		var err error
		if user, err = o.userName(ctx); err != nil {
			return err
		}
	}
	list, err := o.createdList(user)
	if err != nil {
		return err
	}
	return list.add(created)
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
		return fmt.Errorf("--template and the label %s are mutually exclusive", v1alpha1.LabelTemplate)
	}
	if problems := validation.IsDNS1123Label(o.template); len(problems) > 0 {
		return fmt.Errorf("invalid template name %q: %s", o.template, strings.Join(problems, "; "))
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

// waitAndPrint waits until a new Namespace is initialized. If the output is structured, it prints the Namespace.
func (o *createOptions) waitAndPrint(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) error {
	out := o.Out
	if o.output.IsStructured() {
		out = o.ErrOut // The object is written to stdout.
	}
	fmt.Fprintf(out, "namespace/%s created\n", created.Name)
	initialized, err := o.waitUntilInitialized(ctx, out, client, created, o.timeout)
	if err == nil && o.output.IsStructured() {
		return o.printNamespace(initialized)
	}
	return err
}

// waitUntilInitialized shows the progress of a Namespace until it is initialized, and returns it.
func (s *session) waitUntilInitialized(
	ctx context.Context, out io.Writer, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
	timeout time.Duration,
) (*corev1.Namespace, error) {
	name := namespace.Name
	waiter := &createWaiter{session: s, display: &printer.Display{Out: out}, name: name, started: time.Now()}
	waitCtx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	initialized, err := waiter.wait(waitCtx, client, namespace)
	switch {
	case ctx.Err() != nil:
		err = &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(
			"interrupted; namespace %q is still initializing; to wait for it, run: %s", name, s.waitCommand(name))}
	case waitCtx.Err() != nil:
		pending := cmp.Or(strings.Join(waiter.state.Pending, ", "), "the operator")
		err = fmt.Errorf("timed out after %s waiting for the initialization of namespace %q; pending: %s; to see why, "+
			"run: %s", timeout, name, pending, s.explainCommand(name))
	}
	return initialized, err
}

// withTimeout is like context.WithTimeout, except that 0 means no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// operatorTimeout is how long the command waits for the operator to add initializers to a new
// Namespace that has none. On API servers without MutatingAdmissionPolicy, the operator adds them
// after the creation. The wait ends early when the operator sets the condition Ready.
const operatorTimeout = 3 * time.Second

// lastingProblem is how long a template cannot be applied before the command fails. API servers and the operator
// recognize permissions and labels of the same release after some time.
const lastingProblem = 3 * time.Second

const (
	messageInitializationFailed = "initialization of namespace %q failed: %s; the operator deletes the namespace unless " +
		"it has the label " + v1alpha1.LabelDeletionProtection
	messageTemplateFailed = "namespace %q cannot be initialized: %s: %s; to continue, %s; " +
		"to delete it, run: %s"
	messageDeletedDuringInitialization = "namespace %q was deleted during its initialization"
)

// createWaiter waits until a Namespace is initialized and shows the progress of its initializers.
type createWaiter struct {
	*session
	display *printer.Display
	name    string
	started time.Time
	// state is the latest known state.
	state  initialization.State
	outage outage
}

// wait waits until the Namespace is initialized and returns it. It returns an error if the initialization fails or the
// Namespace is deleted.
func (w *createWaiter) wait(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) (*corev1.Namespace, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var timeout <-chan time.Time
	if w.isOperatorInstalled() {
		timer := time.NewTimer(operatorTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	events := watchNamespace(ctx, client, created)
	current, isListFinal := created, timeout == nil
	var lasting <-chan time.Time
	for {
		if done, err := w.update(current, isListFinal); done || err != nil {
			return current, err
		}
		switch failed := w.templateFailure(current); {
		case failed == nil:
			lasting = nil
		case lasting == nil:
			lasting = time.After(lastingProblem)
		}
		select {
		case <-lasting:
			return nil, &StatusError{Code: ExitBlocked, Err: w.templateFailure(current)}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout:
			isListFinal = true
		case event, ok := <-events:
			switch {
			case !ok:
				return nil, ctx.Err()
			case event.isDeleted:
				return nil, w.deletedError(event)
			case event.err != nil:
				w.outage.warn(w.session, w.name, event.err)
			default:
				w.outage = outage{}
				current = event.namespace
			}
		}
	}
}

// templateFailure returns why a template cannot be applied to a Namespace if waiting cannot help, or nil.
func (w *createWaiter) templateFailure(namespace *corev1.Namespace) error {
	if len(w.state.Pending) == 0 || w.state.Pending[0] != v1alpha1.TemplatesInitializer {
		return nil
	}
	condition := nsobject.FindCondition(namespace, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)
	if condition == nil || condition.Status != corev1.ConditionFalse {
		return nil
	}
	remedy := template.Problem{Reason: condition.Reason, Message: condition.Message}.Remedy()
	if remedy == "" {
		return nil
	}
	return fmt.Errorf(messageTemplateFailed, w.name, condition.Reason, printable.Escape(condition.Message), remedy,
		w.deleteCommand(w.name))
}

// update shows the state of a Namespace and reports whether the Namespace is initialized. If the operator
// might still add initializers, a Namespace without initializers is not. The state is read from the annotations, which
// change without the operator.
func (w *createWaiter) update(namespace *corev1.Namespace, isListFinal bool) (isInitialized bool, err error) {
	w.state = initialization.ParseState(namespace)
	w.display.Show(progressLines(computeProgress(namespace, &w.state)))
	switch {
	case w.state.Failure != nil:
		return false, fmt.Errorf(messageInitializationFailed, w.name, initialization.FailureText(w.state.Failure))
	case namespace.DeletionTimestamp != nil:
		return false, fmt.Errorf(messageDeletedDuringInitialization, w.name)
	case len(w.state.Pending) > 0:
		return false, nil
	case len(w.state.All) == 0 && !isListFinal && nsobject.FindCondition(namespace, v1alpha1.ConditionReady) == nil:
		return false, nil
	}
	elapsed := time.Since(w.started).Round(10 * time.Millisecond)
	fmt.Fprintf(w.display.Out, "namespace/%s initialized after %s\n", w.name, elapsed)
	return true, nil
}

// deletedError returns an error that explains why a Namespace was deleted before it was initialized.
func (w *createWaiter) deletedError(event namespaceEvent) error {
	if event.namespace != nil {
		w.state = initialization.ParseState(event.namespace)
	}
	switch {
	case w.state.Failure != nil:
		return fmt.Errorf(messageInitializationFailed, w.name, initialization.FailureText(w.state.Failure))
	case event.isReplaced:
		return fmt.Errorf("namespace %q was deleted and recreated during its initialization", w.name)
	}
	return fmt.Errorf(messageDeletedDuringInitialization, w.name)
}

// isOperatorInstalled reports whether the API server serves the API of nslifecycle.
func (w *createWaiter) isOperatorInstalled() bool {
	client, _, err := w.contentClients()
	if err == nil {
		_, err = client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	}
	return err == nil
}

// maxProgressMessage is the maximum length of an initializer's message.
const maxProgressMessage = 300

type initializerProgress struct {
	name  string
	phase string
	// message contains the reason and the message of the initializer's condition, if the
	// initializer has set one.
	message string
}

// Phases of an initializer.
const (
	phaseDone    = "done"
	phaseRunning = "running"
	phaseWaiting = "waiting"
	phaseFailed  = "failed"
	phaseSkipped = "skipped"
)

// computeProgress returns the progress of each initializer, in the order in which they run.
func computeProgress(namespace *corev1.Namespace, state *initialization.State) []initializerProgress {
	all := make([]initializerProgress, 0, len(state.All))
	skipped := initialization.SkippedInitializers(namespace, *state)
	for _, name := range state.All {
		one := initializerProgress{name: printable.Escape(name), phase: phaseDone}
		switch index := slices.Index(state.Pending, name); {
		case index == 0 && state.Failure != nil:
			one.phase = phaseFailed
		case index == 0:
			one.phase = phaseRunning
		case index > 0:
			one.phase = phaseWaiting
		case slices.Contains(skipped, name):
			one.phase = phaseSkipped
		}
		if one.phase == phaseRunning || one.phase == phaseFailed || one.phase == phaseSkipped {
			one.message = initializerMessage(namespace, name)
		}
		all = append(all, one)
	}
	return all
}

// initializerMessage returns the reason and the message of an initializer's condition. It returns
// "" if the operator has set the condition.
func initializerMessage(namespace *corev1.Namespace, name string) string {
	conditionType := corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
	condition := nsobject.FindCondition(namespace, conditionType)
	if condition == nil || condition.Reason == v1alpha1.ReasonPending || condition.Reason == v1alpha1.ReasonInitialized {
		return ""
	}
	if condition.Message == "" {
		return condition.Reason
	}
	// The phase already states that the initializer was skipped.
	return fmt.Sprintf("%s: %s", condition.Reason, strings.TrimPrefix(condition.Message, phaseSkipped+": "))
}

func progressLines(all []initializerProgress) []string {
	longest := 0
	for _, one := range all {
		longest = max(longest, len(one.name))
	}
	lines := make([]string, 0, len(all))
	for _, one := range all {
		line := fmt.Sprintf("  %-*s  %s", longest, one.name, one.phase)
		if one.message != "" {
			line = printer.Wrap(line + "  " + printable.Words(one.message, maxProgressMessage))
		}
		lines = append(lines, line)
	}
	return lines
}
