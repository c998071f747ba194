// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nscache bounds what the manager keeps of each object, because users choose the size of labels, annotations,
// conditions and messages: a Namespace or an object of a tenant can have 1.5 MiB of them.
//
// A Namespace is kept whole if its size is at most maxSize. Otherwise the cache contains only the state of this project
// and a digest of the rest, so that watch events still show each change. The client of NewClient reads it from the API
// server, so decisions never depend on what was omitted. Lists contain the partial Namespace: IsPartial reports it.
//
// # What the manager keeps
//
//   - Namespaces: see above, plus the annotations that only holders of the verb "initialize" can change.
//   - Strings that many Namespaces contain: 4,096 of at most 128 bytes (sharedStrings).
//   - Metadata of CustomResourceDefinitions and APIServices: names, labels and versions (StripMetadata).
//   - Objects of templates: names, the label and the UID that the operator has written, and hashes. A UID that is too
//     long to be one is omitted (apply.ObjectCacheOptions).
//   - Sources of copies: names and versions; the copied data, at most 1 MiB each, which authors of templates choose.
//   - ServiceAccounts, ControllerRevisions, the certificate of the webhooks, Leases of API servers, configurations,
//     templates and policies: only administrators can write them.
//   - Failures of templates: ten per Namespace and template, with messages of 1 KiB.
//   - Restorations and absent objects: names and hashes, for at most 256 objects of each Namespace.
//   - Finalization and diagnosis: counts and the findings of each terminating or initializing Namespace.
//   - Events: notes of 1 KiB. Labels of metrics: names of templates and initializers, and fixed words.
package nscache
