// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import "errors"

// Errors of the template commands.
var (
	errTemplatesNotServed = errors.New("the API server does not serve NamespaceTemplates; install nslifecycle first")
	errNamespaceOrFile    = errors.New("either --namespace or --namespace-file is required")
	errStdinTwice         = errors.New("only one file can be read from stdin")
)

const (
	msgOneTemplate      = "exactly one NamespaceTemplate is required; " + msgSeeHelp
	msgTemplateOrFile   = "either the name of a NamespaceTemplate or --filename is required; " + msgSeeHelp
	msgTestPathRequired = "at least one file or directory is required; " + msgSeeHelp
	msgInvalidTemplate  = "invalid template name %q: %s"
	msgTemplateAndLabel = "--template and the label %s are mutually exclusive"
)

// Messages of the template list command.
const (
	msgNoTemplates        = "No NamespaceTemplates found."
	msgAccessUnknown      = "Access to some templates is unknown"
	msgParameterLabel     = "Set the label %s."
	msgParameterImmutable = "Immutable."
)

// Messages of the template render and test commands.
const (
	msgRenderNew   = "Namespace %q not found. The objects are those of a new namespace."
	msgTestSummary = "%s, %d failed.\n"
)

// Messages of the template diff command.
const (
	msgDiffNew        = "Template %s is new (revision %s)."
	msgDiffSame       = "Template %s has the same revision in the cluster: %s."
	msgDiffRevisions  = "Template %s: revision %s replaces %s."
	msgDiffExisting   = "Not included: %s to which the template does not extend, because existingNamespaces is false."
	msgDiffUnselected = "Not included: %s no longer selected, whose objects remain."
	msgDiffMore       = "%s not shown. Use --all to print all changes."
	msgMoreFields     = "and %s"
	msgNotTested      = "Some objects could not be tested with a dry run"
	msgCurrentInvalid = "The fields that change are unknown where no dry run is possible: %v"
)

// Messages of the template status command.
const (
	msgStatusTitle      = "NamespaceTemplate %s, revision %s, access %s, ServiceAccount %s"
	msgStatusUnknown    = "The operator has not observed the template yet."
	msgStatusNamespaces = "Namespaces: %d selected, %d ready, %d pending, %d failed, %d conflicted."
	msgStatusCurrent    = "New namespaces get revision %s until the rollout has completed."
	msgStatusOutdated   = "Without this revision: %s"
	msgStatusLate       = "Selected, but not created with the template, which is not applied to them because " +
		"existingNamespaces is false: %s"
)

// Messages of the template rollout commands. They follow those of kubectl rollout.
const (
	msgRolloutNoOperator     = "the operator has not started yet: NamespaceInitializerSet %q has no systemNamespace"
	msgRolloutOperator       = "failed to read the namespace of the operator: %w"
	msgRolloutList           = "failed to list the revisions of NamespaceTemplate %q: %w"
	msgRolloutNoHistory      = "No revisions of NamespaceTemplate %s found."
	msgRolloutRevisionNumber = "invalid revision %d; must be a positive number"
	msgRolloutChanged        = "NamespaceTemplate %q was changed by another client; nothing was rolled back"
	msgRolloutPaused         = "NamespaceTemplate %q is already paused"
	msgRolloutNotPaused      = "NamespaceTemplate %q is not paused"
	msgRolloutFailurePause   = "NamespaceTemplate %q is paused only because of failures; change it, or run: %s"

	msgRolloutUnobserved = "Waiting for the operator to observe the change of NamespaceTemplate %q..."
	msgRolloutWaiting    = "Waiting for the rollout of NamespaceTemplate %q to finish: %d of %d namespaces updated"
	msgRolloutDone       = "NamespaceTemplate %q successfully rolled out"
	msgRolloutBlocked    = "the rollout of NamespaceTemplate %q cannot continue (%s): %s"
	msgRolloutTimeout    = "timed out after %s waiting for the rollout of NamespaceTemplate %q"
	msgRolloutRetry      = "Failed to get NamespaceTemplate %q, retrying: %v"
	msgRolloutDeleted    = "NamespaceTemplate %q was deleted"
)
