// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security attacks this project as an ordinary user, a tenant or an initializer would,
// on a real API server with RBAC on. Each spec is one attack that must fail. docs/security-tests.md
// lists them.
package security
