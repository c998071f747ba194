// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package execute sends the requests of a plan. [Executor.Execute] executes its operations, in which plan.Next decides
// what follows from each response, and [Writer] impersonates the ServiceAccounts of templates.
package execute
