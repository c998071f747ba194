// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// isLikelyController reports whether a user can be a controller that writes into every new Namespace: a
// ServiceAccount of another namespace that has not created this one. CI jobs and GitOps tools create the Namespaces
// that they fill.
func isLikelyController(user string, namespace *corev1.Namespace) bool {
	own, _, err := serviceaccount.SplitUsername(user)
	return err == nil && own != namespace.Name && user != namespace.Annotations[v1alpha1.AnnotationRequestedBy]
}

// regain is the time in which a budget regains a second.
const regain = 10

// budgets limit the time that the writes of likely controllers wait. A controller with one worker does nothing else
// while its write waits, neither for other initializing Namespaces nor for initialized ones. Each user can wait for
// the size of a budget at first, and then for a tenth of the time.
//
// There are few budgets, and their keys are short, also if peers invent users: a budget from which n seconds are
// missing is forgotten after 10*n seconds, the slots limit how many writes wait for n seconds, and names of
// ServiceAccounts have at most 253 characters.
type budgets struct {
	size time.Duration

	lock sync.Mutex
	// complete has the time at which the budget of a user is complete again.
	complete map[string]time.Time
}

// remaining returns how long a write can wait now. It returns 0 if this is less than a tenth of the size.
func (b *budgets) remaining(user string, now time.Time) time.Duration {
	b.lock.Lock()
	defer b.lock.Unlock()
	rest := b.size - max(b.complete[user].Sub(now), 0)/regain
	if rest < b.size/10 {
		return 0
	}
	return rest
}

// spend records that a write has waited until now.
func (b *budgets) spend(user string, waited time.Duration, now time.Time) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for other, complete := range b.complete {
		if !complete.After(now) {
			delete(b.complete, other)
		}
	}
	if b.complete == nil {
		b.complete = map[string]time.Time{}
	}
	missing := min(max(b.complete[user].Sub(now), 0)/regain+waited, b.size)
	b.complete[user] = now.Add(missing * regain)
}
