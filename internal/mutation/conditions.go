// Code generated from conditions.go.tpl by make manifests. DO NOT EDIT.

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

// mayInitialize is true for a user that may initialize the Namespace.
const mayInitialize = `authorizer.group('').resource('namespaces').name(oldObject.metadata.name).check('initialize').allowed()`

// hasReservedKeys is true for a Namespace with keys that inject removes.
const hasReservedKeys = `object.metadata.?labels.orValue({}).exists(k, k.startsWith('nslifecycle.dev/') &&
  !(k in ['nslifecycle.dev/deletion-protection', 'nslifecycle.dev/template'])) ||
object.metadata.?annotations.orValue({}).exists(k, k.startsWith('nslifecycle.dev/') &&
  !(k in ['nslifecycle.dev/expires-at', 'nslifecycle.dev/ttl']))`
