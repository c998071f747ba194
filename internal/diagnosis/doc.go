// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis tells why a namespace does not get on: with its end, or with its
// beginning.
//
// It has two halves. A Gatherer reads Facts from a cluster; whatever it may not or cannot
// read is a fact as well. Diagnose, a pure function, computes the findings from them. The
// operator's condition, Events and metrics and the kubectl plugin all show what Diagnose
// returns; the operator, which publishes it, omits objects of other namespaces.
//
// A finding is called Proven only where the facts leave no other explanation: an error
// that the API server has answered with, or an owner of which every trace is gone. All
// else is Likely. A namespace that is merely slow, or young, has no findings.
package diagnosis
