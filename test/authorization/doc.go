// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization tests the authorization webhook with an API server that uses config/authorization.
package authorization
