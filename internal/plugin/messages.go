// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/plugin/forcefinalize"
	"github.com/nslifecycle/nslifecycle/internal/plugin/orphans"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Commands that messages propose.

func (s *session) explainCommand(name string) string {
	return s.withConnection(shell.Command(displayName+" explain %s", name))
}

func (s *session) waitCommand(name string) string {
	return s.withConnection(shell.Command(
		"kubectl wait --for=condition=Initializing=False namespace/%s --timeout=5m", name))
}

// waitForDeletionCommand returns a command that, unlike another delete, does not delete a new namespace with the
// same name.
func (s *session) waitForDeletionCommand(name string) string {
	return s.withConnection(shell.Command("kubectl wait --for=delete namespace/%s --timeout=5m", name))
}

// Errors for invalid arguments and flags.
var (
	errNameEmpty                = errors.New("the name of the namespace must not be empty")
	errResourceEmpty            = errors.New("--resource must not be empty; omit it to select all objects")
	errResourceWithoutFinalizer = errors.New("--resource requires --finalizer")
)

const (
	msgSeeHelp          = "see '%s --help' for usage"
	msgNameRequired     = "the name of a namespace is required; " + msgSeeHelp
	msgTooManyNames     = "exactly one namespace is required, got %d (%s)"
	msgNoArguments      = "'%s' accepts no arguments, got %s"
	msgNameAndAll       = "name %q and --all are mutually exclusive"
	msgDryRunValue      = "invalid --dry-run value %q; must be one of %s"
	msgProgressDeadline = "--progress-deadline must be greater than 0, got %s"
	msgUnknownStage     = "unknown stage %q; must be one of %s"
)

// Messages of several commands.
const (
	msgNoCluster         = "failed to load the client configuration: %w; see --kubeconfig and --context"
	msgClient            = "failed to create a client: %w"
	msgListNamespaces    = "failed to list namespaces: %w"
	msgNamespaceNotFound = "namespace %q not found"
	msgRetryGet          = "Failed to get namespace %q, retrying: %v"
	msgInterrupted       = "Interrupted."
	msgMoreWarnings      = "%d more warnings like this; use -v=1 to print them all"
	msgMissingPermission = "%s cannot be read: user %q has no permission to %s them"
	msgAfter             = "after %s"
	msgNotBackedUp       = "Missing from the backup: %s"
)

// Messages of a confirmation.
const (
	msgConfirmPrompt       = "To confirm, type the name of the namespace: "
	msgConfirmFlag         = "--confirm=%s does not match the name of the namespace, %q"
	msgNoTerminalToConfirm = "cannot prompt without a terminal; use --confirm=%s to confirm"
	msgConfirmName         = "%q does not match the name of the namespace, %q"
)

// Messages of the backup command.
const (
	msgBackupIncomplete  = "the backup of namespace %q is incomplete"
	msgBackupNotReplaced = "the backup of namespace %q is incomplete; file %s was not replaced"
	msgBackupWritten     = "%s written to %s."
)

func msgSkipped(reason backup.Reason, number int) string {
	switch {
	case reason != backup.ReasonSecret:
		return fmt.Sprintf("Skipped %s: %s. Use --all to include them.", printable.Count(number, "object"), reason)
	case number == 0:
		return "Skipped all Secrets; their number is unknown. Use --include-secrets to include them."
	}
	return fmt.Sprintf("Skipped %s. Use --include-secrets to include them.", printable.Count(number, "Secret"))
}

// Phases of an initializer.
const (
	phaseDone    = "done"
	phaseRunning = "running"
	phaseWaiting = "waiting"
	phaseFailed  = "failed"
	phaseSkipped = "skipped"
)

// Messages of the create command.
const (
	msgPendingInitializers = "The namespace is waiting for %s. To wait until it is initialized, run: %s"

	msgInitializationFailed = "initialization of namespace %q failed: %s; the operator deletes the namespace unless it " +
		"is protected"
	msgDeletedDuringInitialization   = "namespace %q was deleted during its initialization"
	msgRecreatedDuringInitialization = "namespace %q was deleted and recreated during its initialization"
	msgCreateInterrupted             = "interrupted; namespace %q is still initializing; to wait for it, run: %s"
	msgCreateTimeout                 = "timed out after %s waiting for the initialization of namespace %q; " +
		"pending: %s; to see why, run: %s"
)

// failureText returns the reason and the message of a failed initialization.
func failureText(failure *metav1.Status) string {
	if failure.Message != "" && failure.Reason != "" {
		return fmt.Sprintf("%s: %s", failure.Reason, failure.Message)
	}
	return cmp.Or(failure.Message, string(failure.Reason), "no reason given")
}

// Messages of the delete command.
const (
	labelTry = "Try:"

	msgSystemNamespace   = "namespace %q is a system namespace and must not be deleted"
	msgProtected         = "namespace %q was not deleted: the label %s protects it; to allow its deletion, run: %s"
	msgRecreated         = "namespace %q was recreated by another client; the new namespace was not deleted"
	msgDeleteInterrupted = "interrupted; namespace %q is still being deleted; to wait for the deletion, run: %s"
	msgDeleteTimeout     = "timed out after %s waiting for the deletion of namespace %q, which is still in progress; " +
		"to see what blocks it, run: %s"

	msgDeleteUnreadable = "the deletion of namespace %q has started, but its progress is unknown, because the namespace " +
		"can no longer be read: %w"

	msgAlreadyTerminating = "Namespace %q has already been terminating for %s."
	msgDeleting           = "Deleting namespace %s  %s"
	msgRemaining          = "%d of %d remaining"
	msgObjectsRemaining   = "%d of %d objects remaining"
	msgOtherTypes         = "and %s of other types"
	msgWaitingFor         = "waiting for %s"
	msgNotCounted         = "Failed to count some objects in namespace %q: %s"
	msgNoProgress         = "No progress for %s."
	msgNoCauseFound       = "No cause found: %s"
	msgDiagnosisFailed    = "failed to diagnose the namespace: %v"
	msgDetails            = "For details, run: %s"
	msgReplaced           = "Another client has created a new namespace %q.\n"
)

// Messages of the explain command.
const (
	msgNoInactiveNamespaces = "No namespaces are initializing or terminating."
	msgIncompleteDiagnosis  = "The diagnosis of namespace %s is incomplete"
)

// Messages of the finalize command.
const (
	msgDryRun            = "Nothing was changed (dry run). Use --dry-run=false to apply the plan."
	msgMoreObjects       = "Namespace %s might contain more objects"
	msgDryRunUnsupported = "The API server could not test the removal: %v"
	msgFinalizeBackup    = "Backup of %s, including the data of Secrets, written to %s. To restore them, run: %s"
	msgRemoved           = "Removed %s."
	msgRemovedFrom       = "Removed %s from %s."
	msgUnanswered        = "The API server did not respond. The last request to remove the %s might have succeeded. " +
		"To see the current state, run: %s"
	msgStopped          = "stopped, %s left unchanged: %w"
	msgNamespaceDeleted = "Namespace %s was deleted."
	msgStillTerminating = "Namespace %s is still terminating. To see why, run: %s"
	msgOrphaned         = "Orphaned: %s. To find them, run: %s"
	msgWillBeOrphaned   = "Orphaned when the namespace is deleted: %s. Delete them first, or find them later with: %s"
	msgCheckExternal    = "Check for remaining resources outside the cluster: %s"
)

func msgFinalizeQuestion(plan *forcefinalize.Plan) string {
	question := fmt.Sprintf("This removes the %s.", plan.Removal)
	if len(plan.Orphans) > 0 {
		question += fmt.Sprintf(" It orphans %s.", printable.Count(len(plan.Orphans), "object"))
	}
	return question
}

// Messages of the list command.
const (
	msgNoNamespaces         = "No namespaces found."
	msgWaitsForDeletion     = "deletion, because the initialization failed: %s"
	msgWaitsForInitializer  = "%s (%d of %d)"
	msgFinalizerOn          = "finalizer %s on %s"
	textNamespaceController = "the namespace controller"
)

// The prefix + marks columns of a wide table.
var summaryColumns = []string{
	"Name", "Stage", "Age", "+Since", "+Requested By", "+Protected", "+Expires", "Waiting For", "+Also Waiting For",
}

// Messages of the orphans command.
const (
	msgMoreOrphans       = "There might be more orphans"
	msgNoOrphans         = "No orphans found."
	msgNoReadableOrphans = "No orphans found in the objects that could be read."
	msgDeleteOrphans     = "Delete %s in %s that do not exist?"
	msgNothingDeleted    = "Nothing was deleted."
	msgOrphansHeld       = "Finalizers block the deletion of %s. API servers before 1.37, and admission policies such " +
		"as the gate of nslifecycle, reject their removal while the namespace does not exist. Create the namespace, wait " +
		"until the owners of the finalizers have removed them, and delete the namespace again."
	msgOrphansRejected = "%s in %s cannot be deleted: the namespace does not exist, and the API server rejects the " +
		"requests because an admission policy or webhook, such as the gate of nslifecycle, has a namespaceSelector; " +
		"to delete the objects, create the namespace and delete it again: %s"
)

var orphanColumns = []string{"Namespace", "Type", "Name", "Age", "Finalizers", "+UID"}

var (
	errNoTerminalToAsk  = errors.New("cannot prompt without a terminal; use --yes to delete without a prompt")
	errIncompleteSearch = errors.New("the search is incomplete, because some objects could not be read")
)

func countOrphans(found []orphans.Orphan) (objects, namespaces string) {
	return printable.Count(len(found), "object"), printable.Count(orphans.CountNamespaces(found), "namespace")
}

// Messages of the use command.
const (
	msgNoCurrentContext    = "the kubeconfig has no current context; use --context, or set one with: %s"
	msgNoContext           = "the kubeconfig has no context %q; to list the contexts, run: %s"
	msgInvalidName         = "invalid namespace name %q: %s"
	msgNoPreviousNamespace = "no previous namespace of context %q is known; to select one, run: %s"
	msgNamespaceSet        = "Context %q uses namespace %q.\n"
	msgHistoryNotSaved     = "Failed to save the previous namespace for '%s use -': %v"
	msgExistenceUnknown    = "Failed to check whether namespace %q exists: %v"
	msgDoesNotExist        = "Namespace %q does not exist. To create it, run: %s"
	msgTerminating         = "Namespace %q is being deleted."
)
