// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Flags of the finalize command.
const (
	FlagNamespaceFinalizer = "namespace-finalizer"
	FlagMetadataFinalizer  = "metadata-finalizer"
	FlagFinalizer          = "finalizer"
	FlagOrphan             = "orphan"
	FlagAllowUnread        = "allow-unread"
	FlagIgnoreActiveOwner  = "ignore-active-owner"
)

const commandPrefix = "kubectl nslifecycle finalize"

func describeNamespaceFinalizer(name string) string { return "namespace finalizer " + name }

func describeMetadataFinalizer(name string) string {
	return "finalizer " + name + " of the Namespace"
}

// Errors that no flag overrides.

func errSystemNamespace(name string) error {
	return fmt.Errorf("namespace %q is a system namespace; its finalizers must not be removed by force", name)
}

func errRecreated(name string) error {
	return fmt.Errorf("namespace %q was recreated during the diagnosis; run the command again", name)
}

func errNotTerminating(name string) error {
	return fmt.Errorf("namespace %q is not being deleted; delete it first", name)
}

func errNoSuchFinalizer(namespace string, wanted Removal, holders []string) error {
	return fmt.Errorf("namespace %q does not have the %s; it has: %s",
		namespace, wanted, cmp.Or(strings.Join(holders, ", "), "no finalizers"))
}

func errNoObjectSelected(namespace, finalizer, resource string) error {
	return fmt.Errorf("no readable object in namespace %q matches --resource=%s and has the finalizer %s",
		namespace, resource, finalizer)
}

func errNoObjectWithFinalizer(namespace, finalizer string) error {
	return fmt.Errorf("no readable object in namespace %q has the finalizer %s; to remove a finalizer of the "+
		"Namespace itself, use --%s or --%s", namespace, finalizer, FlagMetadataFinalizer, FlagNamespaceFinalizer)
}

func errNoObjectTerminating(finalizer string, objects []RemainingObject) error {
	return fmt.Errorf("no object with the finalizer %s is being deleted (%s)", finalizer, ListObjects(objects))
}

func errBackupExists(name string) error {
	return fmt.Errorf("file %s already exists; use --backup to select another file", name)
}

func errIncompleteBackup(missing []string) error {
	return fmt.Errorf("the backup would be incomplete (%s); use --%s to accept this, or --no-backup to write no backup",
		printer.SummarizeErrors(missing), FlagAllowUnread)
}

// Objections to a plan.

func objectionOrphans(number int) string {
	return fmt.Sprintf("%s would be orphaned, because no controller would delete the content of the namespace; "+
		"use --%s to accept this",
		printable.Count(number, "object"), FlagOrphan)
}

func objectionUnread(unread []string) string {
	return fmt.Sprintf("some objects could not be read and might be missing from the plan and the backup (%s); "+
		"use --%s to accept this", printer.SummarizeErrors(unread), FlagAllowUnread)
}

func objectionActiveOwner(reason string) string {
	return fmt.Sprintf("%s; use --%s to remove the finalizer anyway", reason, FlagIgnoreActiveOwner)
}

func objectionDryRun(err error) string { return "the API server rejected the dry run: " + err.Error() }

func reasonNotBlocked(summary string) string {
	return fmt.Sprintf("the deletion is not known to be blocked (%s)", summary)
}

func reasonNoFinding(wanted *Removal) string {
	return fmt.Sprintf("there is no finding for the %s, so its owner might still be active", wanted)
}

func reasonOwnerNotGone(wanted *Removal, finding *diagnosis.Finding) string {
	return fmt.Sprintf("the owner of the %s is not proven to be absent (%s: %s)", wanted, finding.Cause, finding.Message)
}

// Differences between the plan and the current state.

const changeNamespaceModified = "the Namespace was modified"

func changeRecreated(at metav1.Time) string {
	return "the Namespace was recreated at " + at.UTC().Format(time.RFC3339)
}
func changeDeleted(object *RemainingObject) string  { return object.String() + " was deleted" }
func changeModified(object *RemainingObject) string { return object.String() + " was modified" }
func changeCreated(object *RemainingObject) string  { return object.String() + " was created" }
func changeUnreadable(text string) string           { return "some objects are no longer readable: " + text }

// Advice after a rejected write.
const (
	adviceWebhookFailing = "the API server cannot call the webhook: repair the problem that the message reports or, if " +
		"the webhook was uninstalled, delete its configuration, then try again"
	adviceAdmissionDenied = "an admission policy or webhook denies the change: meet its requirements or add an " +
		"exception, then try again"
	adviceForbidden = "you do not have this permission: ask a cluster administrator for it"
	adviceInvalid   = "the object is invalid: fix the fields named in the message, or the schema of the resource type, " +
		"then try again"
)

// Losses.
const (
	lossOrphans = "the orphaned objects remain in etcd after the namespace is deleted; " +
		"they become visible again when a namespace with the same name is created"
	lossUnknownFinalizer = "resources that the owner of the finalizer would have cleaned up are left behind, " +
		"inside or outside the cluster"
)

// orphanConsequences describes the consequences of orphaning objects, by resource type.
var orphanConsequences = map[string]string{
	"persistentvolumeclaims":      "their volumes and data remain and continue to incur costs",
	"pods":                        "their containers keep running on their nodes",
	"services":                    "their load balancers outside the cluster remain and continue to incur costs",
	"ingresses.networking.k8s.io": "their load balancers and DNS names outside the cluster remain",
	"secrets":                     "their data remains readable for users who can read Secrets in all namespaces",
	"rolebindings.rbac.authorization.k8s.io": "they become effective again in the next namespace with the same " +
		"name",
}

// Effects of candidates.
const (
	effectMetadataFinalizer  = "removes the finalizer from metadata.finalizers of the Namespace"
	effectNamespaceFinalizer = "removes the finalizer from spec.finalizers of the Namespace"
	effectEmptyNamespace     = "allows the API server to delete the namespace, which contains no readable objects"
)

func effectObjects(objects []RemainingObject) string {
	return "removes the finalizer from " + ListObjects(objects)
}

func effectAbandonContent(objects []RemainingObject) string {
	return "orphans the remaining objects (" + ListObjects(objects) + ")"
}

// Output.
const (
	headingPlan       = "Plan"
	headingCandidates = "Finalizers that can be removed by force, least harmful first"
	labelRemove       = "Remove"
	labelNotDeleted   = "Kept on objects that are not being deleted"
	labelResult       = "Result"
	labelLosses       = "Consequences"
	labelBackup       = "Backup"
	textNoCandidates  = "None: neither the Namespace nor the objects found in it have a finalizer."
)

func labelOrphans(number int) string { return fmt.Sprintf("Orphaned objects (%d)", number) }

// textResult describes the state of the Namespace and its targets after the removal.
func textResult(plan *Plan) string {
	switch {
	case len(plan.HeldBy) > 0 && len(plan.Targets) > 0:
		objects := "the object is deleted unless it has other finalizers"
		if len(plan.Targets) > 1 {
			objects = "the objects are deleted unless they have other finalizers"
		}
		return fmt.Sprintf("%s; the Namespace still has: %s", objects, strings.Join(plan.HeldBy, ", "))
	case len(plan.HeldBy) > 0:
		return "the Namespace still has: " + strings.Join(plan.HeldBy, ", ")
	}
	return "the Namespace has no finalizers and is deleted immediately"
}

func textBackup(plan *Plan) string {
	if plan.Backup == "" {
		return "none"
	}
	return fmt.Sprintf("%s (the Namespace and %s, including the data of Secrets)", plan.Backup,
		printable.Count(len(plan.Remaining), "object"))
}
