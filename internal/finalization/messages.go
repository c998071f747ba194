// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Condition messages. Those that the namespace controller of kube-controller-manager also writes must
// stay identical.
const (
	messageResourcesDiscovered = "All resources successfully discovered"
	messageParsed              = "All legacy kube types successfully parsed"
	messageContentDeleted      = "All content successfully deleted, may be waiting on finalization"
	messageContentRemoved      = "All content successfully removed"
	messageNoFinalizers        = "All content-preserving finalizers finished"

	messageDiscoveryFailed     = "Discovery failed for some groups, %d failing: %v"
	messageDeletionFailed      = "Failed to delete all resource types, %d remaining: %s"
	messageResourcesRemain     = "Some resources are remaining: %s"
	messageResourceInstances   = "%s.%s has %d resource instances"
	messageFinalizersRemain    = "Some content in the namespace has finalizers remaining: %s"
	messageFinalizerInstances  = "%s in %d resource instances"
	messageFinalizersOfSome    = " (counted in %d of %d resource instances)" // appended to upstream's message
	messageDeletionOrdered     = "Content is deleted in order: %s"
	messageDeletionInProgress  = "Content is being deleted"
	messageDeletionRefused     = "The operator does not delete the content of the namespace: %s"
	messageUnknownUnlisted     = "Remaining objects are unknown: failed to list %s"
	messageUnknownUndiscovered = "Remaining objects are unknown: failed to discover some resource types"
)

// The parts of messageDeletionOrdered.
const (
	waitForDeletion = "waiting for the deletion of %s before deleting %s"
	waitForList     = "failed to list %s, which must be deleted before %s"

	nextDefault      = "other resources"
	nextDependencies = "RBAC objects, ServiceAccounts, Secrets, ConfigMaps, NetworkPolicies and Leases"
)

const (
	refusalSystemNamespace = "namespace %q is required by the cluster"
	refusalOwnNamespace    = "namespace %q contains the running operator; to delete the namespace, run the operator " +
		"outside the cluster with `make run`, or enable the namespace controller of kube-controller-manager"

	invalidFinalizer      = "%q is not a valid namespace finalizer; use %q or a qualified name: %s"
	finalizerNeedsDomain  = "a domain prefix is required, such as example.com/agent"
	invalidGracePeriod    = "grace period %q is neither %q nor a duration such as \"5s\""
	messageReplaced       = "the namespace was deleted, created again, or finalized by another controller"
	errNoCoreResourceType = "discovery returned no deletable resource type in the core group"
)

// The reasons for the chosen grace period, in a log message.
const (
	graceFixed          = "set by --settling-time"
	graceNoLeases       = "kube-system contains no current Lease of an API server"
	graceLeasesUnknown  = "the Leases of the API servers could not be listed: %v"
	graceManyServers    = "there are %d API servers: %s"
	graceWebhookUnknown = "the admission webhooks could not be listed: %v"
	graceWebhooks       = "admission webhooks can delay requests: %d; the first is %s"
	graceOneServer      = "there is one API server: %s"
)

// The log messages of the Finalizer.
const (
	logStarted   = "Started finalization"
	logOvertaken = "Another controller finalized the namespace"
)

// maxNames is the maximum number of names in a message.
const maxNames = 3

// joinSome joins the first names and adds the number of the others.
func joinSome(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNames], ", ") + " and " + printable.Count(len(names)-maxNames, "other")
}
