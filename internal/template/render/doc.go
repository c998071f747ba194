// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render computes the objects of a NamespaceTemplate for a Namespace. It is pure: it makes no API
// calls and reads neither clock nor random numbers, so equal inputs have equal results.
//
// Expressions are CEL, in "${" and "}", in the strings of a manifest but not in its keys. "$${" is a
// literal "${". Braces in strings and comments of an expression do not end it.
//
//   - An expression that is the whole string keeps its type. Optional values are unwrapped; one without a
//     value drops the key or the element of a list: "${optional.ofNonZeroValue(params.class)}".
//   - In a longer string, the values of expressions must be strings, numbers, bools or quantities.
//
// Variables:
//
//	ns           name, labels and annotations of the Namespace, without those of nslifecycle.dev
//	params       a string for each parameter, "" if it has no value, or a list of strings if it is a list
//	variables    the variables of the template; each can use those before it
//	requestedBy  the name of the user who created the Namespace, "" if it is not known
//	item         in an object with forEach, the element of the list
//
// Functions: the operators and conversions of CEL without time, the macros has, all, exists, existsOne, map,
// filter, transformList, transformMap and transformMapEntry, optional values, the string, list, set and
// quantity functions of Kubernetes, base64.encode, base64.decode, and subject(user), the RBAC subject for a
// user name. Macros whose expansion copies their operands and findAll are missing (optMap, sortBy), and regular
// expressions must be literals. The table functions is the complete list.
//
// The cost of a rendering is limited: a [meter] adds the cost of each call before the call, and of each iteration. One
// call of replace or format can otherwise allocate any amount of memory before CEL checks its own cost limit or the
// context. [Compile] evaluates each expression for an empty Namespace, and refuses those that are too expensive even
// there. Otherwise, the error concerns one Namespace.
//
// Expressions are spliced into the decoded manifest. Their values are never parsed, so they cannot change
// anything outside their position. [CheckManifest] validates each result.
package render
