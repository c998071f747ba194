// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs the conformance specs of Kubernetes in the cluster of KUBECONFIG, without and with
// nslifecycle, and compares the results:
//
//	go run ./test/conformance --state=without --output=bin/conformance
//	go run ./test/conformance --state=user --output=bin/conformance
//	go run ./test/conformance --compare --output=bin/conformance
//
// Unless the state is without, nslifecycle must be installed. The command then registers an initializer that takes one
// second for each namespace, acts as it, and applies a template for all namespaces. With the state admin, the specs are
// run by the user of KUBECONFIG, and with all others by a user who may do everything but initialize namespaces.
//
// Arguments are a command that is run instead, by the same user, for example suites of other projects:
//
//	go run ./test/conformance --state=user test/conformance/third-party.sh
//
// The comparison fails if a spec that passes without nslifecycle fails, or was not run, with it, and differences.yaml
// does not have the cause.
package main
