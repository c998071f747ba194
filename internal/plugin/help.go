// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
)

// Help of the root command.
const (
	shortRoot = "Create, explain, delete and repair namespaces"
	longRoot  = `Create, explain, delete and repair namespaces.

All commands work on any cluster, with or without the nslifecycle operator, except those of
"template" that read NamespaceTemplates.

Exit status: 0 success or healthy, 1 error, 3 blocked, 130 interrupted.`
	shortVersion = "Print the version of the plugin"
)

// Help of the backup command.
const (
	shortBackup = "Write all objects of a namespace as YAML for kubectl apply"
	longBackup  = `Write a Namespace and all objects in it as YAML for kubectl apply, in the same cluster or
another one.

The command removes status, owner references, finalizers, and fields that the API server
sets. Unless --all is given, it skips completed Jobs and Pods and objects that the cluster
recreates: objects that have a controller, such as the Pods of a ReplicaSet, EndpointSlices,
Events, Leases and the root CA. Unless --include-secrets is given, it skips Secrets. The
backup does not contain the data in volumes.

If some objects cannot be read, the backup contains the others, and the exit status is 1. An
incomplete backup does not replace an existing file.`
	exampleBackup = `  # Back up a namespace without its Secrets
  kubectl nslifecycle backup shop -f shop.yaml

  # Restore it
  kubectl apply --server-side -f shop.yaml

  # Copy ConfigMaps and Secrets to another cluster
  kubectl nslifecycle backup shop --types=configmaps,secrets --include-secrets |
    kubectl --context=other apply -f -`

	helpBackupFilename = "File for the backup, or - for stdout."
	helpBackupTypes    = "If set, only back up these resource types, for example configmaps,deployments.apps. " +
		"The Namespace itself is not included."
	helpBackupAll      = "If true, include completed Jobs and Pods and objects that the cluster recreates."
	helpIncludeSecrets = "If true, include Secrets with their data."
)

// Help of the create command.
const (
	shortCreate = "Create a namespace, and optionally wait until it is initialized"
	longCreate  = `Create a namespace.

With --wait, the command shows the progress of each initializer until the namespace is
ready. It fails if the initialization fails, the namespace is deleted, or the timeout
expires. If there are no initializers or nslifecycle is not installed, the namespace is ready
immediately.

With --template, the namespace chooses a NamespaceTemplate: its objects exist before the
namespace is ready. To list the templates and their parameters, use "kubectl nslifecycle
template list".`
	exampleCreate = `  # Create a namespace and wait until it is ready
  kubectl nslifecycle create shop --wait

  # Create a namespace with the objects of a NamespaceTemplate
  kubectl nslifecycle create shop --template=team -p size=l --wait

  # Create a namespace in a script and stop if it is not ready after 2 minutes
  kubectl nslifecycle create shop --wait --timeout=2m || exit 1`

	helpLabels      = "Labels of the namespace, for example key1=value1,key2=value2."
	helpAnnotations = "Annotations of the namespace, for example key1=value1,key2=value2."
	helpTemplate    = "Name of the NamespaceTemplate that the namespace chooses."
	helpParameter   = "Parameter of a NamespaceTemplate, as NAME=VALUE. The flag can be repeated."
	helpCreateWait  = "If true, wait for all initializers to complete, and show their progress."
	helpTimeout     = "The length of time to wait before giving up. Zero means no timeout."
)

// Help of the delete command.
const (
	shortDelete = "Delete a namespace and show what blocks the deletion"
	longDelete  = `Delete a namespace and show the remaining objects until the namespace is deleted. If the
deletion has already started, the command only shows its progress.

If the deletion makes no progress within --progress-deadline, the command diagnoses the
namespace and prints the causes.

Ctrl-C stops the command but not the deletion, which cannot be undone.`
	exampleDelete = `  # Delete a namespace and show the remaining objects
  kubectl nslifecycle delete shop

  # Delete a namespace in a script
  kubectl nslifecycle delete shop --timeout=5m`

	helpDeleteWait             = "If true, wait for the deletion of the namespace, and show the remaining objects."
	helpIgnoreNotFound         = "If true, treat \"namespace not found\" as a successful delete."
	helpDeleteProgressDeadline = "The length of time without progress after which the namespace is diagnosed."
)

// Help of the explain command.
const (
	shortExplain = "Explain why a namespace is stuck"
	longExplain  = `Show the state of a namespace and, if it is stuck, explain why.

The command prints the findings as a tree, most likely cause first. Each finding contains
the affected objects, the evidence, the remedies, and what would be lost if the finalizer
were removed by force. A namespace that makes progress has no findings.

The command changes nothing. Without NAME, it explains the namespace of the current context.

Exit status: 0 healthy or progressing, 3 blocked, 1 error, or unknown because objects cannot be read.`
	exampleExplain = `  # Explain why a namespace is stuck
  kubectl nslifecycle explain shop

  # Explain all namespaces that are initializing or terminating
  kubectl nslifecycle explain --all

  # Print the most likely cause
  kubectl nslifecycle explain shop -o json | jq -r '.findings[0].cause'`

	helpExplainAll              = "If true, explain all namespaces that are initializing or terminating."
	helpExplainProgressDeadline = "The length of time without progress after which a namespace is considered stuck."
)

// Help of the finalize command.
const (
	shortFinalize = "Forcibly remove a finalizer from a stuck namespace"
	longFinalize  = `Forcibly remove a finalizer that blocks the deletion of a namespace.

Use this command only as a last resort: resources that the owner of the finalizer would have
cleaned up remain. First try the remedies of "kubectl nslifecycle explain".

Without --namespace-finalizer, --metadata-finalizer or --finalizer, the command prints the
findings and all finalizers that can be removed. With one of these flags, it prints the
plan, the consequences and the objects that would be orphaned, and tests the removal with a
server-side dry run.

The command changes nothing unless --dry-run=false is given. With --dry-run=false, it writes
a backup of all remaining objects, including Secrets, and asks you to confirm the removal
with the name of the namespace. Then it verifies that nothing has changed since the plan was
printed, and removes only the selected finalizer.

The command refuses the removal if some objects cannot be read, if the owner of the
finalizer might still be active, or if objects would be orphaned. Each refusal names the flag
that overrides it, if any.`
	exampleFinalize = `  # Show the finalizers that can be removed
  kubectl nslifecycle finalize shop

  # Show the consequences of removing a finalizer from all objects
  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup

  # Remove a finalizer from all objects of one resource type
  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup \
    --resource=widgets.example.com --ignore-active-owner --dry-run=false

  # Remove a namespace finalizer whose owner has been uninstalled, in a script
  kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent \
    --ignore-active-owner --dry-run=false --confirm=shop`

	helpNamespaceFinalizer = "The namespace finalizer to remove, an entry of spec.finalizers of the Namespace."
	helpMetadataFinalizer  = "The finalizer to remove from metadata.finalizers of the Namespace."
	helpFinalizer          = "The finalizer to remove from metadata.finalizers of objects in the namespace."
	helpResource           = "With --finalizer, only change these resource types or objects (TYPE or TYPE/NAME), " +
		"for example pods or widgets.example.com/a."
	helpFinalizeDryRun = `Must be "server" or "none". If server, only print and test the plan. If none or false, apply it.`
	helpConfirm        = "The name of the namespace, to confirm the removal without a prompt."
	helpBackup         = "File for the backup. It must not exist yet. Defaults to NAME-backup-TIME.yaml."
	helpNoBackup       = "If true, write no backup."
	helpOrphan         = "If true, allow the removal to orphan the remaining objects."
	helpAllowUnread    = "If true, continue even if some objects cannot be read and might be missing from the backup."

	helpIgnoreActiveOwner = "If true, continue even if the owner of the finalizer might still be active."
)

// Help of the list command.
const (
	shortList = "List namespaces with their stage and what they wait for"
	longList  = `List namespaces with their stage (Initializing, Active or Terminating) and what they wait
for.

The command sends only one request, because the Namespace objects contain all of this
information.`
	exampleList = `  # List the terminating namespaces
  kubectl nslifecycle list --stage=Terminating -o wide

  # Print the names of the namespaces that are stuck
  kubectl nslifecycle list -o json | jq -r '.items[] | select(.isBlocked) | .metadata.name'`

	helpSelector  = "Selector (label query) to filter on, as in kubectl get."
	helpNoHeaders = "If true, do not print headers."
)

// Help of the orphans command.
const (
	shortOrphans = "Find objects whose namespace does not exist"
	longOrphans  = `Find objects of all namespaced resource types whose namespace does not exist. With
--namespace, only search this namespace.

Orphans can remain in etcd after the finalizers of a Namespace have been removed by force.
They become visible again when a namespace with the same name is created.

The command changes nothing unless --delete is given. It cannot delete orphans that have
finalizers. To delete them, create the namespace, wait until the finalizers are removed, and
delete the namespace again.`
	exampleOrphans = `  # Find orphans
  kubectl nslifecycle orphans

  # Delete orphans without a prompt
  kubectl nslifecycle orphans --delete --yes`

	helpOrphansDelete = "If true, delete the orphans."
	helpYes           = "If true, delete without a prompt."
)

// Help of the use command.
const (
	shortUse = "Show or set the namespace of the current context"
	longUse  = `Show or set the namespace of the current context, or of the context in --context.

With -, the command restores the previous namespace of the context. After a change, it warns
if the namespace does not exist. Without NAME, it sends no request.`
	exampleUse = `  # Show the current namespace
  kubectl nslifecycle use

  # Set the namespace
  kubectl nslifecycle use shop

  # Restore the previous namespace
  kubectl nslifecycle use -`
)

// Help of flags that several commands have.
const (
	helpVerbosity = "Number for the log level verbosity (0 to 10)."
	helpDryRun    = `Must be "none", "server", or "client". If client, only print the object without sending it. ` +
		"If server, submit the request without persisting the resource."
)

func helpStage(stages []string) string {
	return fmt.Sprintf("If set, only list namespaces in this stage. One of: (%s).", strings.Join(stages, ", "))
}
