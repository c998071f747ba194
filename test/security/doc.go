// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security attacks this project on a real API server with RBAC, as an ordinary user, a
// tenant, an initializer, or a hostile server that extends the API. Each spec is an attack that
// must fail, or shows a limit that is documented in SECURITY.md. To list the specs:
//
//	go test ./test/security -ginkgo.dry-run -ginkgo.v
//
// The files token_*_test.go use the tokens of the operator's ServiceAccounts on an object of each type
// (testdata/fixtures.yaml) in namespaces of all states, with requests that are not dry runs.
// testdata/purposes.yaml contains what each permission is needed for. The specs fail if SECURITY.md does
// not contain exactly their table, if a permission has no purpose, or if an object is lost or changed by
// anything other than a successful attempt. To write the table:
//
//	NSLIFECYCLE_TEST_WRITE_TABLE=true make test-security ARGS=-ginkgo.focus='token.of.a.ServiceAccount'
package security
