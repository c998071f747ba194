// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package earlywrites

import (
	"encoding/json"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// Reason is the reason of the Events.
	Reason = "EarlyWrites"
	// annotation contains an Identity in JSON.
	annotation = v1alpha1.Prefix + "early-writes"
)

// Other is the name of the resources and clients that exceed the limits of the record.
const Other = "other"

// Identity is a user with early writes, or all users that do not fit into the record.
type Identity struct {
	// Subject is the user or ServiceAccount, or a group that includes the users that do not fit into the record.
	Subject rbacv1.Subject `json:"subject"`
	// Writes is the number of early writes, and Resources and Clients are their numbers by resource and by field manager.
	// The field manager is empty if the client does not set it.
	Writes    int            `json:"writes"`
	Resources map[string]int `json:"resources"`
	Clients   map[string]int `json:"clients"`
	// Last is the time of the last write.
	Last time.Time `json:"last"`
}

// Sum returns the identities in Events, with the sums of all replicas. Other Events are ignored, also those that other
// clients have created with the same reason and without an identity.
func Sum(events []eventsv1.Event) map[rbacv1.Subject]*Identity {
	sums := map[rbacv1.Subject]*Identity{}
	for i := range events {
		if events[i].Reason != Reason {
			continue
		}
		var identity Identity
		err := json.Unmarshal([]byte(events[i].Annotations[annotation]), &identity)
		if err != nil || identity.Subject.Name == "" || identity.Writes <= 0 {
			continue
		}
		sum := sums[identity.Subject]
		if sum == nil {
			sums[identity.Subject] = &identity
			continue
		}
		sum.Writes += identity.Writes
		sum.Resources, sum.Clients = add(sum.Resources, identity.Resources), add(sum.Clients, identity.Clients)
		if identity.Last.After(sum.Last) {
			sum.Last = identity.Last
		}
	}
	return sums
}

func add(sum, counts map[string]int) map[string]int {
	if sum == nil {
		return counts
	}
	for name, count := range counts {
		sum[name] += count
	}
	return sum
}

// subjectOf returns the subject of role bindings for a user, and the group of those that are counted together.
func subjectOf(username string) (subject, others rbacv1.Subject) {
	if namespace, name, err := serviceaccount.SplitUsername(username); err == nil {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name},
			group(serviceaccount.MakeNamespaceGroupName(namespace))
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}, group(user.AllAuthenticated)
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}
