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

// dryRun is the value of the flag --dry-run, as in kubectl.
type dryRun string

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunStrategies = []string{dryRunNone, dryRunClient, dryRunServer}

func (d *dryRun) addFlag(command *cobra.Command) {
	command.Flags().StringVar((*string)(d), "dry-run", dryRunNone, helpDryRun)
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions(dryRunStrategies, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) validate() error {
	if !slices.Contains(dryRunStrategies, string(d)) {
		return fmt.Errorf(msgDryRunValue, d, strings.Join(dryRunStrategies, ", "))
	}
	return nil
}

// requestOption returns the dryRun field of request options.
func (d dryRun) requestOption() []string {
	if d == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix returns what kubectl appends to the result of a dry run.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}
