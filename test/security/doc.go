// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security attacks this project on a real API server with RBAC, as an ordinary user, a
// tenant, an initializer, or a hostile server that extends the API. Each spec is an attack that
// must fail, or shows a limit that is documented in SECURITY.md. To list the specs:
//
//	go test ./test/security -ginkgo.dry-run -ginkgo.v
package security
