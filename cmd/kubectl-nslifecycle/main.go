// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-nslifecycle is the kubectl plugin: kubectl runs it as
// `kubectl nslifecycle`.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/plugin"
)

func main() {
	os.Exit(plugin.Main(os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
