// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRuns = []string{dryRunNone, dryRunClient, dryRunServer}

// dryRun is flag --dry-run, as kubectl has it.
type dryRun struct{ strategy string }

func (d *dryRun) addFlag(command *cobra.Command) {
	command.Flags().StringVar(&d.strategy, "dry-run", dryRunNone,
		"With client nothing is sent, with server nothing is kept: one of "+strings.Join(dryRuns, ", "))
	_ = command.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
}

func (d *dryRun) validate() error {
	if !slices.Contains(dryRuns, d.strategy) {
		return fmt.Errorf("unknown --dry-run=%s; use one of %s", d.strategy, strings.Join(dryRuns, ", "))
	}
	return nil
}

func (d *dryRun) isClient() bool { return d.strategy == dryRunClient }
func (d *dryRun) isServer() bool { return d.strategy == dryRunServer }

// forServer is what goes into the options of a request.
func (d *dryRun) forServer() []string {
	if d.isServer() {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix is what kubectl appends to what it says that it did.
func (d *dryRun) suffix() string {
	switch d.strategy {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}
