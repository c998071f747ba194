// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestEmptyResource(t *testing.T) {
	for _, flags := range [][]string{{"--resource="}, {"--resource", ""}} {
		command := newFinalizeCommand(newSession(genericiooptions.NewTestIOStreamsDiscard()))
		command.SetArgs(append([]string{"shop", "--finalizer=example.com/hold"}, flags...))
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.Execute(); err == nil || !errors.Is(err, errResourceEmpty) {
			t.Errorf("%q: got %v", flags, err)
		}
	}
}
