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
)
