// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

// mayInitialize is true for a user that may initialize the Namespace.
const mayInitialize = `{{include "mayInitialize" "namespace" "oldObject.metadata.name"}}`

// changesConditions is true for an update whose conditions the webhook restores.
const changesConditions = `{{include "changesConditions"}}`

// omitsLocked is true for an update whose labels and annotations the webhook restores.
const omitsLocked = `{{include "omitsLocked"}}`

// hasReservedKeys is true for a Namespace with keys that inject removes.
const hasReservedKeys = `{{include "hasReservedKeys"}}`
