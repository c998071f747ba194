// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is `kubectl nslifecycle`: what people type who create, delete, look for
// and repair namespaces.
//
// Each command is a file with a constructor, which declares flags and help, an options
// struct, whose run method does the work, and pure functions that make text from objects.
// What all commands share hangs on the session: streams, kubeconfig flags, clients, colours.
//
// Rules for every command:
//
//   - It works without the operator, and with as few rights as can be. What could not be
//     read is said on stderr, and never passes for an answer.
//   - Results go to stdout, everything else to stderr. What is written to a pipe has no
//     colours and nothing that is overwritten.
//   - The exit status is one of the Exit constants.
//   - Nothing is read from a server before a command needs it: the plugin starts as fast as
//     kubectl does, and so controller-runtime is not imported.
package plugin
