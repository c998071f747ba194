// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// repeatable is the value of a flag with a comma-separated list. The first use of the flag replaces the default, and
// every further use extends the list, as in kube-controller-manager. Patches of a Deployment can therefore be combined:
// each of them adds a flag.
type repeatable struct {
	list  string
	isSet bool
}

func (r *repeatable) String() string { return r.list }

func (r *repeatable) Set(list string) error {
	if r.isSet {
		list = r.list + "," + list
	}
	r.list, r.isSet = list, true
	return nil
}
