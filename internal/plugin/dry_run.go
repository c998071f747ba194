// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunStrategies = []string{dryRunNone, dryRunClient, dryRunServer}

// dryRun is the flag --dry-run of kubectl.
type dryRun struct{ strategy string }

func (d *dryRun) addFlag(command *cobra.Command) {
	command.Flags().StringVar(&d.strategy, "dry-run", dryRunNone, helpDryRun)
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions(dryRunStrategies, cobra.ShellCompDirectiveNoFileComp))
}

func (d *dryRun) validate() error {
	if !slices.Contains(dryRunStrategies, d.strategy) {
		return errDryRun(d.strategy, dryRunStrategies)
	}
	return nil
}

func (d *dryRun) isClient() bool { return d.strategy == dryRunClient }
func (d *dryRun) isServer() bool { return d.strategy == dryRunServer }

// requestOption returns the dryRun field of request options.
func (d *dryRun) requestOption() []string {
	if d.isServer() {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix returns what kubectl appends to the result of a dry run.
func (d *dryRun) suffix() string {
	switch d.strategy {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}
