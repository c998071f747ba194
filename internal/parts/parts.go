// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parts names the ServiceAccounts of the parts of the operator. It is the only source of these names for
// policies and code that exempt or limit the operator: with one of several names, a part would be treated as another
// user.
package parts

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// The names of the ServiceAccounts in config/manager.
const (
	ControllerManager = "nslifecycle-controller-manager"
	Admission         = "nslifecycle-admission"
	// Finalization exists only in config/separate-finalization.
	Finalization = "nslifecycle-finalization"
)

// Accounts returns the names of the ServiceAccounts of all parts.
func Accounts() []string { return []string{ControllerManager, Admission, Finalization} }

// Users returns the user names of all parts, sorted. self is the user name of the calling part: outside the cluster,
// the operator can run as any user.
func Users(systemNamespace, self string) []string {
	users := []string{self}
	for _, account := range Accounts() {
		users = append(users, serviceaccount.MakeUsername(systemNamespace, account))
	}
	slices.Sort(users)
	return slices.Compact(users)
}
