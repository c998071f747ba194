// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security attacks this project as an ordinary user, a tenant or an initializer would,
// or with a hostile server that extends the API, on a real API server with RBAC on. Each spec is an
// attack that must fail, or shows a limit that SECURITY.md states. To list them:
//
//	go test ./test/security -ginkgo.dry-run -ginkgo.v
package security
