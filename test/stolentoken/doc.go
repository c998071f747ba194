// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stolentoken tests what an attacker can do with the token of a ServiceAccount of the operator, in each variant
// of the installation. The parts:
//
//   - fixtures: an object of each type that the API server serves, in namespaces of all states
//   - permissions: what RBAC grants to the ServiceAccount
//   - attempts: each permission is used on the objects, in requests that are not dry runs
//   - changes: what the attempts to create, update and patch change
//   - report: the successful attempts, as the table in SECURITY.md
//
// testdata/purposes.yaml contains what each permission is needed for. The specs fail if SECURITY.md does not contain
// exactly this table, if a permission has no purpose, or if an object is lost or changed by anything other than a
// successful attempt. `make security-table` writes the table.
package stolentoken
