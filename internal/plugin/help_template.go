// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

// Help of the template command.
const (
	shortTemplate = "List, render, test, compare and roll back NamespaceTemplates"
	longTemplate  = `List, render, test, compare and roll back NamespaceTemplates.

Only "rollout pause", "rollout resume" and "rollout undo" change the cluster.`

	helpTemplateFilename = "File with a NamespaceTemplate, or - for stdin, instead of the name of one in the cluster."
)

// Help of the template diff command.
const (
	shortTemplateDiff = "Show what a NamespaceTemplate would change in all namespaces"
	longTemplateDiff  = `Show what a NamespaceTemplate in a file would change in all namespaces that it selects.
With NAME, show what the operator must still change.

The command compares the rendered objects with what each namespace records, as the operator
does. Changes by other clients are not included. For the first namespaces of each kind of
change, or all with --all, it applies the objects as a server-side dry run with your own
permissions, and prints the fields that differ in the cluster. Where a dry run is not
possible, it prints the fields that differ between the two templates instead.

With --namespace, the command compares only this namespace.

Exit status: 0 success, 1 error, or the template fails in a namespace.`
	exampleTemplateDiff = `  # Show what a changed template would do
  kubectl nslifecycle template diff -f team.yaml

  # Show it for one namespace
  kubectl nslifecycle template diff -f team.yaml --namespace=shop

  # Print the names of the namespaces that would change
  kubectl nslifecycle template diff -f team.yaml -o json | jq -r '.items[].namespace'`

	helpDiffAll = "If true, print the changes of all namespaces."
)

// Help of the template list command.
const (
	shortTemplateList = "List the NamespaceTemplates that you can choose, with their parameters"
	longTemplateList  = `List NamespaceTemplates with their parameters, and whether you can choose them.

All users can choose a template with open access. A restricted template requires the verb
"use" on it.`
	exampleTemplateList = `  # List the templates
  kubectl nslifecycle template list

  # Print the names of the templates that you can choose
  kubectl nslifecycle template list -o json | jq -r '.items[] | select(.isUsable) | .name'`
)

// Help of the template render command.
const (
	shortTemplateRender = "Print the objects of a NamespaceTemplate for a namespace"
	longTemplateRender  = `Print the objects of a NamespaceTemplate for a namespace as YAML, in the order in which the
operator applies them. The data of copies is not printed.

With a file, the command needs no cluster: the namespace is a new one with the name in
--namespace, or the one in --namespace-file. With NAME, the template and the namespace are
those in the cluster; the namespace does not need to exist.`
	exampleTemplateRender = `  # Render a template in a file for a new namespace
  kubectl nslifecycle template render -f team.yaml --namespace=shop -p size=l \
    --requested-by=alice

  # Render a template in a file for a namespace in the cluster
  kubectl get namespace shop -o yaml |
    kubectl nslifecycle template render -f team.yaml --namespace-file=-`

	helpNamespaceFile   = "File with a Namespace, or - for stdin."
	helpRenderParameter = "Set a parameter, as NAME=VALUE. The flag can be repeated."
	helpRenderLabels    = "Add labels to the namespace, for example key1=value1,key2=value2."
	helpRequestedBy     = "Set the name of the user who creates the namespace."
)

// Help of the template rollout commands.
const (
	shortTemplateRollout = "Manage the rollout of a NamespaceTemplate"
	longTemplateRollout  = `Manage the rollout of a NamespaceTemplate, as "kubectl rollout" does for Deployments.

A change of the parameters, variables or objects of a template is a new revision. The operator
stores the revisions as ControllerRevisions in its namespace.`

	shortRolloutHistory = "Show the revisions of a NamespaceTemplate"
	longRolloutHistory  = `Show the stored revisions of a NamespaceTemplate, oldest first, or one of them as YAML.

"Latest" is the revision of the spec, and "Current" the one that new namespaces get.`
	exampleRolloutHistory = `  # Show the revisions of a template
  kubectl nslifecycle template rollout history team

  # Print the second revision
  kubectl nslifecycle template rollout history team --revision=2`

	shortRolloutPause = "Pause the rollout of a NamespaceTemplate"
	longRolloutPause  = `Pause the rollout of a NamespaceTemplate. Open namespaces keep their revision, and new
namespaces get the last revision that has reached all open namespaces.`
	exampleRolloutPause = `  # Pause the rollout of a template
  kubectl nslifecycle template rollout pause team`

	shortRolloutResume   = "Resume a paused rollout of a NamespaceTemplate"
	longRolloutResume    = `Resume a paused rollout of a NamespaceTemplate.`
	exampleRolloutResume = `  # Resume the rollout of a template
  kubectl nslifecycle template rollout resume team`

	shortRolloutStatus = "Show the status of the rollout of a NamespaceTemplate"
	longRolloutStatus  = `Wait until all selected namespaces have the revision of the spec, and show the progress. With
--watch=false, show the progress once.

Exit status: 0 the rollout has finished, 3 the template is invalid, or the rollout is paused
because of failures, 1 error or timeout. With --watch=false, the exit status of a rollout in
progress is 0.`
	exampleRolloutStatus = `  # Wait for the rollout of a template
  kubectl nslifecycle template rollout status team --timeout=10m`

	shortRolloutUndo = "Roll a NamespaceTemplate back to an earlier revision"
	longRolloutUndo  = `Write the parameters, variables and objects of an earlier revision into the spec of a
NamespaceTemplate. Other fields do not change.

The default revision is the one that new namespaces get, while a rollout is in progress, and
the previous one afterwards.`
	exampleRolloutUndo = `  # Undo the last change of a template
  kubectl nslifecycle template rollout undo team

  # Roll back to the second revision
  kubectl nslifecycle template rollout undo team --to-revision=2

  # Verify that you have the permissions
  kubectl nslifecycle template rollout undo team --dry-run=server`

	helpRolloutRevision   = "Print the revision with this number."
	helpRolloutToRevision = "The number of the revision to roll back to. 0 is the default."
	helpRolloutWatch      = "If true, wait until the rollout has finished."
)

// Help of the template status command.
const (
	shortTemplateStatus = "Show the state of a NamespaceTemplate"
	longTemplateStatus  = `Show the conditions of a NamespaceTemplate, its first failures, and the namespaces that do
not contain its revision.

Exit status: 0 the operator can apply the template, 3 the template is invalid or unauthorized
or has failures, 1 error.`
	exampleTemplateStatus = `  # Show the state of a template
  kubectl nslifecycle template status team

  # Print the namespaces that the operator must still update
  kubectl nslifecycle template status team -o json | jq -r '.outdated[]'`
)

// Help of the template test command.
const (
	shortTemplateTest = "Compare the objects of NamespaceTemplates with expected files"
	longTemplateTest  = `Render NamespaceTemplates and compare the results with files. The command needs no cluster.

A directory with the file template.yaml is a test suite. Each directory in it that contains
the file namespace.yaml is a test case. The namespace has the parameters and the name of its
creator as annotations. The expected result is in one of two files:

  expected.yaml  the objects, as "kubectl nslifecycle template render" prints them
  error.txt      the error, for example because of an invalid parameter

For a directory, the command runs all suites in it. For a file, it runs the test cases beside
it. A suite without test cases and a test case without an expected result fail. Only regular
files are read and written.`
	exampleTemplateTest = `  # Run all tests in a directory
  kubectl nslifecycle template test ./templates

  # Write the expected results
  kubectl nslifecycle template test ./templates --update`

	helpTestUpdate = "If true, write the results to the files instead of comparing them."
)
