// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/plugin/forcefinalize"
	"github.com/nslifecycle/nslifecycle/internal/plugin/orphans"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/protection"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Commands that messages propose.

func explainCommand(name string) string { return shell.Command(displayName+" explain %s", name) }

func waitCommand(name string) string {
	return shell.Command("kubectl wait --for=condition=Initializing=False namespace/%s", name)
}

// Arguments and flags.

var (
	errNameEmpty                = errors.New("the name of the namespace must not be empty")
	errResourceEmpty            = errors.New("--resource must not be empty; omit it to select all objects")
	errResourceWithoutFinalizer = errors.New("--resource requires --finalizer")
)

func msgSeeHelp(command *cobra.Command) string {
	return fmt.Sprintf("see '%s --help' for usage", command.CommandPath())
}

func errNameRequired(command *cobra.Command) error {
	return fmt.Errorf("the name of a namespace is required; %s", msgSeeHelp(command))
}

func errTooManyNames(args []string) error {
	return fmt.Errorf("exactly one namespace is required, got %d (%s)", len(args), strings.Join(args, ", "))
}

func errNoArguments(command *cobra.Command, args []string) error {
	return fmt.Errorf("'%s' accepts no arguments, got %s", command.CommandPath(), strings.Join(args, ", "))
}

func errNameAndAll(name string) error {
	return fmt.Errorf("name %q and --all are mutually exclusive", name)
}

func errDryRun(value string, allowed []string) error {
	return fmt.Errorf("invalid --dry-run value %q; must be one of %s", value, strings.Join(allowed, ", "))
}

func errProgressDeadline(value time.Duration) error {
	return fmt.Errorf("--progress-deadline must be greater than 0, got %s", value)
}

func errUnknownStage(stage string, stages []string) error {
	return fmt.Errorf("unknown stage %q; must be one of %s", stage, strings.Join(stages, ", "))
}

// Clients.

func errNoCluster(err error) error {
	return fmt.Errorf("failed to load the client configuration: %w; see --kubeconfig and --context", err)
}

func errClient(err error) error { return fmt.Errorf("failed to create a client: %w", err) }

func errListNamespaces(err error) error { return fmt.Errorf("failed to list namespaces: %w", err) }

func errNamespaceNotFound(name string) error { return fmt.Errorf("namespace %q not found", name) }

func msgRetryGet(name string, err error) string {
	return fmt.Sprintf("Failed to get namespace %q, retrying: %v", name, err)
}

// Shared output.

const msgInterrupted = "Interrupted."

func msgMoreWarnings(number int) string {
	return fmt.Sprintf("%d more warnings like this; use -v=1 to print them all", number)
}

func msgAfter(elapsed, precision time.Duration) string {
	return "after " + elapsed.Round(precision).String()
}

func msgNotBackedUp(text string) string { return "Missing from the backup: " + text }

// Confirmation.

const msgConfirmPrompt = "To confirm, type the name of the namespace: "

func errConfirmFlag(name, confirmed string) error {
	return fmt.Errorf("--confirm=%s does not match the name of the namespace, %q", confirmed, name)
}

func errNoTerminalToConfirm(name string) error {
	return fmt.Errorf("no terminal for a prompt; use --confirm=%s to confirm", name)
}

func errConfirmName(name, typed string) error {
	return fmt.Errorf("%q does not match the name of the namespace, %q", typed, name)
}

// backup

func errBackupIncomplete(name string) error {
	return fmt.Errorf("the backup of namespace %q is incomplete", name)
}

func msgBackupWritten(number int, filename string) string {
	return fmt.Sprintf("%s written to %s.", printable.Count(number, "object"), filename)
}

func msgSkipped(reason backup.Reason, number int) string {
	switch {
	case reason != backup.ReasonSecret:
		return fmt.Sprintf("Skipped %s: %s. Use --all to include them.", printable.Count(number, "object"), reason)
	case number == 0:
		return "Skipped all Secrets, their number is unknown. Use --include-secrets to include them."
	}
	return fmt.Sprintf("Skipped %s. Use --include-secrets to include them.", printable.Count(number, "Secret"))
}

// create

// Phases of an initializer.
const (
	phaseDone    = "done"
	phaseRunning = "running"
	phaseWaiting = "waiting"
	phaseFailed  = "failed"
	phaseSkipped = "skipped"
)

func msgPendingInitializers(name string, number int) string {
	return fmt.Sprintf("The namespace is waiting for %s. To wait until it is initialized, run: %s",
		printable.Count(number, "initializer"), waitCommand(name))
}

func errInitializationFailed(name string, failure *metav1.Status) error {
	return fmt.Errorf("initialization of namespace %q failed: %s; the operator deletes the namespace",
		name, failureText(failure))
}

// failureText returns reason and message of a failed initialization.
func failureText(failure *metav1.Status) string {
	if failure.Message != "" && failure.Reason != "" {
		return fmt.Sprintf("%s: %s", failure.Reason, failure.Message)
	}
	return cmp.Or(failure.Message, string(failure.Reason), "no reason given")
}

func errDeletedDuringInitialization(name string) error {
	return fmt.Errorf("namespace %q was deleted during its initialization", name)
}

func errRecreatedDuringInitialization(name string) error {
	return fmt.Errorf("namespace %q was deleted and recreated during its initialization", name)
}

func errCreateInterrupted(name string) error {
	return fmt.Errorf("interrupted; namespace %q is still initializing; to wait for it, run: %s", name, waitCommand(name))
}

func errCreateTimeout(name string, timeout time.Duration, pending string) error {
	return fmt.Errorf("timed out after %s waiting for namespace %q, pending: %s; to see why, run: %s",
		timeout, name, pending, explainCommand(name))
}

// delete

const labelTry = "Try:"

func errSystemNamespace(name string) error {
	return fmt.Errorf("namespace %q is a system namespace and must not be deleted", name)
}

func errRecreated(name string) error {
	return fmt.Errorf("namespace %q was recreated by another client; the new namespace was not deleted", name)
}

func errProtected(name string) error {
	return fmt.Errorf("namespace %q was not deleted, because label %s protects it; to delete it with all its content, "+
		"first run: %s", name, v1alpha1.LabelDeletionProtection, protection.RemovalCommand(name))
}

func errDeleteInterrupted(name string) error {
	return fmt.Errorf("interrupted; the deletion of namespace %q continues; to watch it, run: %s",
		name, shell.Command(displayName+" delete %s", name))
}

func errDeleteTimeout(name string, timeout time.Duration) error {
	return fmt.Errorf("timed out after %s waiting for the deletion of namespace %q, which continues; "+
		"to see what blocks it, run: %s", timeout, name, explainCommand(name))
}

func msgAlreadyTerminating(namespace *corev1.Namespace, now time.Time) string {
	return fmt.Sprintf("Namespace %q has already been terminating for %s.",
		namespace.Name, printer.Age(*namespace.DeletionTimestamp, now))
}

func msgDeleting(name string, elapsed time.Duration) string {
	return fmt.Sprintf("Deleting namespace %s  %s", name, elapsed.Round(time.Second))
}

func msgRemaining(current, highest int) string {
	return fmt.Sprintf("%d of %d remaining", current, highest)
}

func msgObjectsRemaining(current, highest int) string {
	return fmt.Sprintf("%d of %d objects remaining", current, highest)
}

func msgOtherTypes(number int) string {
	return fmt.Sprintf("and %s of other types", printable.Count(number, "object"))
}

func msgWaitingFor(text string) string { return "waiting for " + text }

func msgNotCounted(name string, unread []string) string {
	return fmt.Sprintf("Failed to count some objects in namespace %q: %s", name, printer.SummarizeErrors(unread))
}

func msgNoProgress(elapsed time.Duration) string {
	return fmt.Sprintf("No progress for %s.", elapsed.Round(time.Second))
}

func msgNoCauseFound(summary string) string { return "No cause found: " + summary }

func msgDiagnosisFailed(err error) string {
	return fmt.Sprintf("failed to diagnose the namespace: %v", err)
}

func msgMoreFindings(number int) string { return "and " + printable.Count(number, "more finding") }

func msgDetails(name string) string { return "For details, run: " + explainCommand(name) }

func msgRecreated(name string) string {
	return fmt.Sprintf("Another client has created a new namespace %q.", name)
}

// explain

const msgNoInactiveNamespaces = "No namespaces are initializing or terminating."

func msgIncompleteDiagnosis(namespace string) string {
	return fmt.Sprintf("The diagnosis of namespace %s is incomplete", namespace)
}

// finalize

const msgDryRun = "Nothing was changed (dry run). Use --dry-run=false to apply the plan."

func msgMoreObjects(namespace string) string {
	return fmt.Sprintf("Namespace %s may contain more objects", namespace)
}

func msgDryRunUnsupported(err error) string {
	return fmt.Sprintf("The API server could not test the removal: %v", err)
}

func msgFinalizeBackup(filename string, number int) string {
	return fmt.Sprintf("Backup of %s, including the data of Secrets, written to %s. To restore them, run: %s",
		printable.Count(number, "object"), filename, shell.Command("kubectl apply --server-side -f %s", filename))
}

func msgFinalizeQuestion(plan *forcefinalize.Plan) string {
	question := fmt.Sprintf("This removes %s.", plan.Removal)
	if len(plan.Orphans) > 0 {
		question += fmt.Sprintf(" It orphans %s.", printable.Count(len(plan.Orphans), "object"))
	}
	return question
}

func msgRemoved(plan *forcefinalize.Plan) string { return fmt.Sprintf("Removed %s.", plan.Removal) }

func msgRemovedFrom(plan *forcefinalize.Plan, number int) string {
	return fmt.Sprintf("Removed %s from %s.", plan.Removal, printable.Count(number, "object"))
}

func msgUnanswered(plan *forcefinalize.Plan) string {
	return fmt.Sprintf("The API server did not respond. The last request to remove %s may have succeeded. "+
		"To see the current state, run: %s", plan.Removal, explainCommand(plan.Namespace))
}

func errStopped(number int, err error) error {
	return fmt.Errorf("stopped, %s not changed: %w", printable.Count(number, "object"), err)
}

func msgNamespaceDeleted(name string) string { return fmt.Sprintf("Namespace %s was deleted.", name) }

func msgStillTerminating(name string) string {
	return fmt.Sprintf("Namespace %s is still terminating. To see why, run: %s", name, explainCommand(name))
}

func msgOrphaned(objects []forcefinalize.RemainingObject, isDeleted bool) string {
	const find = displayName + " orphans"
	if isDeleted {
		return fmt.Sprintf("Orphaned: %s. To find them, run: %s", forcefinalize.ListObjects(objects), find)
	}
	return fmt.Sprintf("Orphaned when the namespace is deleted: %s. Delete them before that, or find them later: %s",
		forcefinalize.ListObjects(objects), find)
}

func msgCheckExternal(losses []string) string {
	return "Check for remaining resources outside the cluster: " + strings.Join(losses, " ")
}

// list

const (
	msgNoNamespaces         = "No namespaces found."
	textNamespaceController = "the namespace controller"
)

// The prefix + marks columns of a wide table.
var summaryColumns = []string{
	"Name", "Stage", "Age", "+Since", "+Requested By", "+Protected", "+Expires", "Waiting For", "+Also Waiting For",
}

func msgWaitsForDeletion(failure *metav1.Status) string {
	return "deletion, because the initialization failed: " + failureText(failure)
}

func msgWaitsForInitializer(name string, position, total int) string {
	return fmt.Sprintf("%s (%d of %d)", name, position, total)
}

func msgNamespaceFinalizer(name corev1.FinalizerName) string {
	return fmt.Sprintf("namespace finalizer %s", name)
}

func msgMetadataFinalizer(name string) string {
	return fmt.Sprintf("finalizer %s of the Namespace", name)
}

func msgFinalizerOn(name, count string) string { return fmt.Sprintf("finalizer %s on %s", name, count) }

// orphans

const (
	msgMoreOrphans       = "There may be more orphans"
	msgNoOrphans         = "No orphans found."
	msgNoReadableOrphans = "No orphans found in the objects that could be read."
	msgNothingDeleted    = "Nothing was deleted."
)

var orphanColumns = []string{"Namespace", "Type", "Name", "Age", "Finalizers", "+UID"}

var (
	errNoTerminalToAsk  = errors.New("no terminal for a prompt; use --yes to delete without one")
	errIncompleteSearch = errors.New("the search is incomplete, because some objects could not be read")
)

func msgDeleteOrphans(found []orphans.Orphan) string {
	return fmt.Sprintf("Delete %s in %s that do not exist?",
		printable.Count(len(found), "object"), printable.Count(orphans.CountNamespaces(found), "namespace"))
}

func msgOrphansHeld(number int) string {
	return fmt.Sprintf("Finalizers block the deletion of %s, and cannot be removed while the namespace does not exist. "+
		"Create the namespace, wait until the owners of the finalizers have removed them, and delete it again: "+
		"kubectl create namespace NAME", printable.Count(number, "object"))
}

func errOrphansRejected(rejected []orphans.Orphan) error {
	return fmt.Errorf("%s in %s cannot be deleted, because an admission policy or webhook has a namespaceSelector, "+
		"as the gate of nslifecycle does, and the namespace does not exist; create the namespace and delete it again, which "+
		"deletes the objects in it: %s",
		printable.Count(len(rejected), "object"), printable.Count(orphans.CountNamespaces(rejected), "namespace"),
		shell.Command("kubectl create namespace %s && kubectl delete namespace %[1]s", rejected[0].Namespace))
}

// use

var errNoCurrentContext = errors.New(
	"the kubeconfig has no current context; use --context, or set one with: kubectl config use-context NAME")

func errNoContext(name string) error {
	return fmt.Errorf("the kubeconfig has no context %q; to list the contexts, run: kubectl config get-contexts", name)
}

func errInvalidName(name string, problems []string) error {
	return fmt.Errorf("invalid namespace name %q: %s", name, strings.Join(problems, "; "))
}

func errNoPreviousNamespace(context string) error {
	return fmt.Errorf("no previous namespace of context %q is known; to select one, run: %s use NAME",
		context, displayName)
}

func msgNamespaceSet(context, name string) string {
	return fmt.Sprintf("Context %q uses namespace %q.", context, name)
}

func msgHistoryNotSaved(err error) string {
	return fmt.Sprintf("Failed to save the previous namespace for '%s use -': %v", displayName, err)
}

func msgExistenceUnknown(name string, err error) string {
	return fmt.Sprintf("Failed to check that namespace %q exists: %v", name, err)
}

func msgDoesNotExist(name string) string {
	return fmt.Sprintf("Namespace %q does not exist. To create it, run: %s", name,
		shell.Command(displayName+" create %s", name))
}

func msgTerminating(name string) string { return fmt.Sprintf("Namespace %q is being deleted.", name) }
