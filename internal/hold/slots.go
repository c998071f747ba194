// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import "sync"

// Limits bound the number of writes that one replica holds at the same time. Each held write
// occupies a seat of its priority level in API Priority and Fairness, and other requests of that
// level may have to wait.
type Limits struct {
	// PerUser is the maximum number of held writes of one user.
	PerUser int
	// Total is the maximum number of held writes.
	Total int
}

// slots counts held writes.
type slots struct {
	limits Limits

	lock   sync.Mutex
	byUser map[string]int
	total  int
}

// acquire takes a slot for a user. It returns false if a limit is reached.
func (s *slots) acquire(user string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.total >= s.limits.Total || s.byUser[user] >= s.limits.PerUser {
		return false
	}
	if s.byUser == nil {
		s.byUser = map[string]int{}
	}
	s.byUser[user]++
	s.total++
	return true
}

func (s *slots) release(user string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.total--
	if s.byUser[user]--; s.byUser[user] == 0 {
		delete(s.byUser, user)
	}
}
