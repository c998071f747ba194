// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package earlywrites records who writes to initializing namespaces while the gate is in audit mode, so that
// administrators can grant permissions before they enforce the gate.
//
// Each replica of the manager has a record in memory, and writes it as Events in the system namespace, one for each
// identity. The counts of a replica are never reset, and the name of an Event contains the replica, so a sum over all
// Events is the number of writes. API servers delete Events that have not changed for an hour (--event-ttl); the
// record forgets identities at the same time.
//
// Names in the record are chosen by the writers, and any Pod that reaches the webhooks without a client certificate can
// add some, so their number and size are bounded: further ServiceAccounts of a namespace, and further users, are
// counted together.
package earlywrites
