// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"fmt"
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
)

// Errors of the checks.
const msgLeaderStopped = "the last leader has stopped, and no manager has acquired the Lease since"

func msgNoLease(namespace string) string {
	return fmt.Sprintf("no manager in namespace %q has been elected as leader yet; run: %s",
		namespace, shell.Command("kubectl --namespace=%s get pods", namespace))
}

func msgLeaseExpired(holder string, renewed time.Time) string {
	return fmt.Sprintf("the leader %s has not renewed the Lease since %s", holder, renewed.UTC().Format(time.RFC3339))
}

func msgNoCondition(namespace string) string {
	return fmt.Sprintf("namespace %q does not have the condition", namespace)
}
