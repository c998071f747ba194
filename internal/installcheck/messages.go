// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Names of the checks.
const (
	checkLeader    = "the leader renews its Lease"
	checkPolicies  = "new namespaces get the initializers of the set"
	checkLimits    = "a policy limits what the operator can write"
	checkSet       = "NamespaceInitializerSet \"" + internalv1alpha1.EffectiveSetName + "\" exists"
	checkCondition = "namespaces get the " + v1alpha1.ConditionInitializing + " condition"

	// The checks of an administrator.
	checkAdmissionLeader = "the leader of the controller admission renews its Lease"
	checkReachable       = "API servers reach the webhooks"
)

// Errors of the checks.
const (
	messageLeaderStopped = "the last leader has stopped, and no manager has acquired the Lease since"
	messageUnreachable   = "the API server cannot reach the webhooks: it admitted an invalid NamespaceTemplate in a dry " +
		"run; check the Pods, and NetworkPolicies and firewalls between API servers and port 9443 of the Pods"
	messageNoWebhooks = "they are not installed, so no write to an initializing namespace waits for the initialization"
)

func checkAccount(account string) string {
	return fmt.Sprintf("ServiceAccount %s has its permissions", account)
}

func messageLacks(missing []string) string {
	return fmt.Sprintf("it is not authorized to %s; apply the manifests again", strings.Join(missing, ", "))
}

func messageNoCertificate(webhook string) string {
	return fmt.Sprintf("webhook %s has no caBundle: no certificate has been issued yet", webhook)
}

func messageNoLease(namespace, lease string) string {
	return fmt.Sprintf("no manager has acquired Lease %q in namespace %q; a manager with --leader-elect=false does not "+
		"acquire it; for managers in the cluster, run: %s",
		lease, namespace, shell.Command("kubectl --namespace=%s get pods", namespace))
}

func messageLeaseExpired(holder string, renewed time.Time) string {
	return fmt.Sprintf("the leader %s has not renewed the Lease since %s", holder, renewed.UTC().Format(time.RFC3339))
}

func messageNoCondition(namespace string) string {
	return fmt.Sprintf("namespace %q does not have the condition", namespace)
}
