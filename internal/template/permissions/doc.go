// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package permissions computes the permissions that a NamespaceTemplate requires, and the RBAC objects that
// grant them. It sends no requests.
//
// The operator sends PATCH requests for server-side apply, and DELETE requests. The name is in the URL of both, so RBAC
// can restrict also `create` by name. If an expression computes a name, the permission is required for every name.
package permissions
