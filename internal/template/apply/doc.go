// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply applies NamespaceTemplates to Namespaces. A pass of the [Applier] has five stages: collect reads what
// the templates and the Namespace contain, write applies objects, awaitEffective asks whether they are effective,
// remove deletes objects, and [plan.Pass.Conclude] returns what the Namespace records. The rules are in package plan.
// [Records] has what only this process knows about Namespaces.
package apply
