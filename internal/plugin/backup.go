// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nslifecycle/nslifecycle/internal/backup"
)

type backupOptions struct {
	*session
	backup.Options
	filename string
}

func newBackupCommand(session *session) *cobra.Command {
	options := &backupOptions{session: session}
	command := &cobra.Command{
		Use:   "backup [NAME]",
		Short: "Write every object of a namespace as YAML that kubectl apply takes",
		Long: "Write every object of a namespace, and the Namespace itself, as YAML that kubectl apply takes,\n" +
			"here or in another cluster, client-side or server-side, in one go.\n\n" +
			"The objects are cleaned: what the server has set is not in them, nor are status, owners and\n" +
			"finalizers. What others make anew is left out unless --all is given: Pods of a ReplicaSet, the\n" +
			"EndpointSlices of a Service, Jobs and Pods that have ended, Events, Leases, the root CA. Secrets\n" +
			"are left out unless --include-secrets is given. What is in volumes is in no backup.\n\n" +
			"Where something cannot be read, the rest is written all the same, and the exit status is 1.",
		Example: "  # Keep a namespace, without its Secrets\n" +
			"  kubectl nslifecycle backup shop -f shop.yaml\n\n" +
			"  # Bring it back\n" +
			"  kubectl apply --server-side -f shop.yaml\n\n" +
			"  # Only its configuration, with what is secret in it, into another cluster\n" +
			"  kubectl nslifecycle backup shop --types=configmaps,secrets --include-secrets |\n" +
			"    kubectl --context=other apply -f -",
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			name, err := session.namespaceName(args)
			if err != nil {
				return err
			}
			return options.run(command.Context(), name)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&options.filename, "filename", "f", "-", "File to write, - for stdout")
	flags.StringSliceVar(&options.Types, "types", nil, "Only these types, such as configmaps,deployments.apps")
	flags.BoolVar(&options.All, "all", false, "Also what others make anew, without its owners")
	flags.BoolVar(&options.IncludeSecrets, "include-secrets", false, "Also Secrets, in plain text")
	return command
}

func (o *backupOptions) run(ctx context.Context, name string) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	taken, err := backup.Collect(ctx, config, name, o.Options)
	if err != nil {
		return fmt.Errorf("backing up namespace %q: %w", name, err)
	}
	if err := o.write(taken); err != nil {
		return err
	}
	o.tellLeftOut(taken)
	for _, unread := range taken.Unread {
		o.warnf("Not in the backup, since it could not be read: %s", unread)
	}
	if len(taken.Unread) > 0 {
		return fmt.Errorf("the backup of namespace %q is not complete", name)
	}
	return nil
}

func (o *backupOptions) write(taken *backup.Backup) error {
	if o.filename == "-" {
		return backup.Write(o.Out, taken.Objects)
	}
	var text bytes.Buffer
	if err := backup.Write(&text, taken.Objects); err != nil {
		return err
	}
	if err := writeFile(o.filename, text.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(o.ErrOut, "%s written to %s.\n", count(len(taken.Objects), "object"), o.filename)
	return nil
}

// tellLeftOut says on stderr what is not in the backup.
func (o *backupOptions) tellLeftOut(taken *backup.Backup) {
	for _, reason := range slices.Sorted(maps.Keys(taken.LeftOut)) {
		number := taken.LeftOut[reason]
		switch {
		case reason != backup.ReasonSecret:
			fmt.Fprintf(o.ErrOut, "Left out: %s that %s (--all keeps them).\n", count(number, "object"), reason)
		case number == 0:
			fmt.Fprintln(o.ErrOut, "Left out: Secrets; how many there are cannot be told.")
		default:
			fmt.Fprintf(o.ErrOut, "Left out: %s (--include-secrets keeps them).\n", count(number, "Secret"))
		}
	}
}
