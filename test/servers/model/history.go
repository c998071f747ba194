// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

const (
	// depth is the number of versions of the Namespace that a history contains. No cache is more than depth-1
	// versions stale.
	depth = 5
	// maxServers is the maximum number of API servers.
	maxServers = 3
)

// history contains the last versions of the Namespace in etcd, and the version in the cache of each API
// server. A cache observes one version after the other, at any speed. Clients can have read any of the
// versions.
type history struct {
	versions [depth]finNamespace
	// last is the index of the current version.
	last uint8
	// cached contains the index of the version in the cache of each API server.
	cached [maxServers]uint8
}

// current returns the version in etcd.
func (h history) current() finNamespace { return h.versions[h.last] }

// seenBy returns the version in the cache of an API server.
func (h history) seenBy(server uint8) finNamespace { return h.versions[h.cached[server]] }

// add returns the history after a write. A write that changes nothing creates no version.
func (h history) add(version finNamespace) history {
	if version == h.current() {
		return h
	}
	if h.last+1 == depth {
		copy(h.versions[:], h.versions[1:])
		h.last--
		for server, index := range h.cached {
			h.cached[server] = max(index, 1) - 1
		}
	}
	h.last++
	h.versions[h.last] = version
	return h
}

// refresh returns the history after the cache of an API server has observed the next version.
func (h history) refresh(server uint8) history {
	h.cached[server] = min(h.cached[server]+1, h.last)
	return h
}

// distinct returns the versions that clients can have read, without duplicates.
func (h history) distinct() []finNamespace {
	versions := make([]finNamespace, 0, depth)
	for i := range h.last + 1 {
		isNew := true
		for _, version := range versions {
			isNew = isNew && version != h.versions[i]
		}
		if isNew {
			versions = append(versions, h.versions[i])
		}
	}
	return versions
}
