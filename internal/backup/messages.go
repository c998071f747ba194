// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import "fmt"

// Reason explains why objects are not in a backup.
type Reason string

// Reasons.
const (
	// ReasonControlled applies to objects that a controller recreates, such as the Pods of a
	// ReplicaSet.
	ReasonControlled Reason = "recreated by their controllers"
	// ReasonGenerated applies to objects that the cluster creates automatically.
	ReasonGenerated Reason = "created by the cluster"
	// ReasonCompleted applies to Jobs and Pods that have completed.
	ReasonCompleted Reason = "completed Jobs and Pods"
	// ReasonSecret applies to Secrets, which are included only on request.
	ReasonSecret Reason = "Secrets"
)

// Entries of Backup.Unread.
const (
	msgUnreadNamespace   = "the Namespace object: %v"
	msgUnreadRecreated   = "objects that might have been deleted: the namespace was recreated"
	msgUnreadTerminating = "objects that might have been deleted: the namespace is being deleted"
)

func errUnknownType(name string) error {
	return fmt.Errorf("the API server has no namespaced resource type %q; kubectl api-resources lists all types", name)
}
