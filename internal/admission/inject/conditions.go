// Code generated from conditions.go.tpl by make manifests. DO NOT EDIT.

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

// mayInitialize is true for a user that may initialize the Namespace.
const mayInitialize = `authorizer.group('').resource('namespaces').name(oldObject.metadata.name).check('initialize').allowed()`

// changesConditions is true for an update whose conditions the webhook restores.
const changesConditions = `request.?subResource.orValue('') == 'status' &&
object.?status.?conditions != oldObject.?status.?conditions &&
((!oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() ||
 has(oldObject.metadata.deletionTimestamp)) &&
 (object.?status.?conditions.orValue([]).size() + oldObject.?status.?conditions.orValue([]).size() > 1000 ||
  object.?status.?conditions.orValue([]).filter(c, c.type in ['Initializing', 'Ready', 'Stalled'] || c.type.startsWith('nslifecycle.dev/') || c.type.endsWith('/Initialized')) !=
  oldObject.?status.?conditions.orValue([]).filter(c, c.type in ['Initializing', 'Ready', 'Stalled'] || c.type.startsWith('nslifecycle.dev/') || c.type.endsWith('/Initialized'))) ||
 object.?status.?conditions.orValue([]).size() <= 1000 &&
 object.?status.?conditions.orValue([]).filter(c, c.type in ['Initializing', 'Ready', 'Stalled'] || c.type.startsWith('nslifecycle.dev/') || c.type.endsWith('/Initialized')).size() == 0) &&
!authorizer.group('').resource('namespaces').name(oldObject.metadata.name).check('initialize').allowed()`

// omitsLocked is true for an update whose labels and annotations the webhook restores.
const omitsLocked = `!request.?options.?fieldManager.orValue('').startsWith('nslifecycle-template:') &&
[oldObject.metadata.?annotations[?'nslifecycle.dev/applied-templates'].orValue('')].exists(r,
  object.metadata.?labels != oldObject.metadata.?labels &&
  r.findAll('"lockedLabels":"[^"]+').map(s, s.split('":"')[1]).join(',').split(',').exists(k,
    oldObject.metadata.?labels[?k].hasValue() && !object.metadata.?labels[?k].hasValue()) ||
  object.metadata.?annotations != oldObject.metadata.?annotations &&
  r.findAll('"lockedAnnotations":"[^"]+').map(s, s.split('":"')[1]).join(',').split(',').exists(k,
    oldObject.metadata.?annotations[?k].hasValue() && !object.metadata.?annotations[?k].hasValue()))`

// hasReservedKeys is true for a Namespace with keys that inject removes.
const hasReservedKeys = `object.metadata.?labels.orValue({}).exists(k, k.startsWith('nslifecycle.dev/') && !(k in ['nslifecycle.dev/deletion-protection', 'nslifecycle.dev/template'])) ||
object.metadata.?annotations.orValue({}).exists(k, k.startsWith('nslifecycle.dev/'))`
