// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin implements kubectl nslifecycle.
//
// Each command has a file with a constructor, which declares its flags and help, and a run method.
// The session contains what all commands share: streams, kubeconfig flags and clients.
//
// Rules for all commands:
//
//   - A command works without the operator and with as few permissions as possible. It prints to
//     stderr what it could not read, and never treats missing data as a result.
//   - Results are written to stdout, everything else to stderr.
//   - The exit status is one of the Exit constants.
//   - A command sends a request only when it needs the response. The plugin starts no manager or cache
//     of controller-runtime, so that it is as fast as kubectl.
package plugin
