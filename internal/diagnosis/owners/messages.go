// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Effects of removing a finalizer by force.
const (
	LossVolume = "A volume can be detached or deleted while it is in use; data can be lost"

	lossForeground = "Remaining dependents are deleted later by the garbage collector, or not at all"
	lossOrphan     = "Dependents refer to an owner that does not exist, and are therefore garbage-collected"
	lossJob        = "The Job can count this Pod incorrectly; in a terminating namespace, nothing is lost"
	lossDevice     = "A device can be allocated again while it is in use"
)

// Evidence.
const (
	textLease                 = "Lease %s/%s was renewed %s ago, at %s, by %q"
	textServiceAccountMissing = "ClusterRoleBinding %q refers to ServiceAccount %s, which may write %s but does not exist"
	textFieldManagers         = "managedFields: the finalizer was added by %s"
	textLastChange            = "managedFields: %s changed an object at %s, after the deletion was requested"
	textSubject               = "%s %q %s; whether it is running is unknown"
	reasonRegistered          = "is a subject of initializer %s"
	reasonBinding             = "has the initialize verb through ClusterRoleBinding %q"
)

// Reasons why a workload is inferred to be the owner.
const (
	basisKnown        = "its labels and its name or image are those of %s"
	basisManagerName  = "its name or a container name is %s, the field manager that added the finalizer"
	basisManagerImage = "its image is named %s, like the field manager that added the finalizer"
	basisPermission   = "its ServiceAccount %s may write %s through ClusterRoleBinding %q"
	basisRelease      = "it was installed with the CustomResourceDefinition, by %s"
)

func textWorkload(workload *diagnosis.Workload) string {
	return fmt.Sprintf("%s %s/%s has %d of %d pods ready", workload.Source, workload.Namespace, workload.Name,
		workload.Ready, workload.Desired)
}

func textServiceAccount(account types.NamespacedName, reason string, status Status, pods int) string {
	text := fmt.Sprintf("ServiceAccount %s %s", account, reason)
	switch status {
	case StatusRunning:
		return text + " and has " + printable.Count(pods, "running pod")
	case StatusMissing:
		return text + " but does not exist"
	case StatusNotRunning:
		return text + " but has no running pod"
	}
	return text + "; whether it is running is unknown"
}
