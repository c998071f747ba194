// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package earlywrites

import (
	"maps"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Limits of the record of a replica. An identity has at most about 3 KB.
const (
	maxIdentities          = 128
	maxIdentitiesOfOneKind = 16 // of the ServiceAccounts of a namespace, or of all other users
	maxResources           = 8
	maxClients             = 4
	// maxUserBytes is more than the name of any ServiceAccount.
	maxUserBytes = 384
	maxNameBytes = 128

	// retention is the default of the flag --event-ttl of API servers.
	retention = time.Hour
)

// record contains the early writes of one replica.
type record struct {
	lock       sync.Mutex
	identities map[rbacv1.Subject]*entry
	// others counts the identities by the group of those that are counted together.
	others map[rbacv1.Subject]int
}

type entry struct {
	Identity
	others    rbacv1.Subject
	first     time.Time
	isChanged bool
}

func newRecord() *record {
	return &record{identities: map[rbacv1.Subject]*entry{}, others: map[rbacv1.Subject]int{}}
}

// add records a write, and returns the kind of the subject.
func (r *record) add(username string, resource schema.GroupResource, client string, now time.Time) string {
	subject, others := subjectOf(username)
	r.lock.Lock()
	defer r.lock.Unlock()
	found := r.get(subject, others, len(username) <= maxUserBytes, now)
	found.Writes++
	count(found.Resources, resource.String(), maxResources)
	count(found.Clients, client, maxClients)
	found.Last, found.isChanged = now, true
	return subject.Kind
}

// get returns the entry of a subject, or the one that counts several subjects if it does not fit.
func (r *record) get(subject, others rbacv1.Subject, isShort bool, now time.Time) *entry {
	if isShort {
		if found := r.identities[subject]; found != nil {
			return found
		}
		if r.others[others] < maxIdentitiesOfOneKind && len(r.identities) < maxIdentities {
			return r.create(subject, others, now)
		}
	}
	if r.identities[others] == nil && len(r.identities) >= maxIdentities {
		others = group(user.AllAuthenticated) // The only one that exceeds the maximum.
	}
	if found := r.identities[others]; found != nil {
		return found
	}
	return r.create(others, others, now)
}

func (r *record) create(subject, others rbacv1.Subject, now time.Time) *entry {
	created := &entry{others: others, first: now, Identity: Identity{
		Subject: subject, Resources: map[string]int{}, Clients: map[string]int{},
	}}
	r.identities[subject] = created
	r.others[others]++
	return created
}

// count increments a counter. At most limit names have one of their own.
func count(counts map[string]int, name string, limit int) {
	if _, ok := counts[name]; !ok && (len(counts) >= limit || len(name) > maxNameBytes) {
		name = Other
	}
	counts[name]++
}

// takeChanged returns copies of the entries that have changed since the last call, and forgets old ones.
func (r *record) takeChanged(now time.Time) []entry {
	r.lock.Lock()
	defer r.lock.Unlock()
	var changed []entry
	for subject, found := range r.identities {
		if found.isChanged {
			found.isChanged = false
			taken := *found
			taken.Resources, taken.Clients = maps.Clone(found.Resources), maps.Clone(found.Clients)
			changed = append(changed, taken)
		} else if now.Sub(found.Last) > retention {
			delete(r.identities, subject)
			if r.others[found.others]--; r.others[found.others] == 0 {
				delete(r.others, found.others)
			}
		}
	}
	return changed
}

// retry makes takeChanged return an entry again.
func (r *record) retry(subject rbacv1.Subject) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if found := r.identities[subject]; found != nil {
		found.isChanged = true
	}
}
