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
	"github.com/nslifecycle/nslifecycle/internal/plugin/files"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

type backupOptions struct {
	*session
	backup.Options
	filename  string
	overwrite bool
}

func newBackupCommand(session *session) *cobra.Command {
	options := &backupOptions{session: session}
	command := &cobra.Command{
		Use:   "backup [NAME]",
		Short: "Write all objects of a namespace as YAML for kubectl apply",
		Long: `Write a Namespace and all objects in it as YAML for kubectl apply, in the same cluster or
another one.

The command removes status, owner references, finalizers, and fields that the API server
sets. Unless --all is given, it skips completed Jobs and Pods and objects that the cluster
recreates: objects that have a controller, such as the Pods of a ReplicaSet, EndpointSlices,
Events, Leases and the root CA. Unless --include-secrets is given, it skips Secrets. The
backup does not contain the data in volumes.

If some objects cannot be read, the backup contains the others, and the exit status is 1. The
command replaces an existing file only with --overwrite, and never by an incomplete backup.`,
		Example: `  # Back up a namespace without its Secrets
  kubectl nslifecycle backup shop -f shop.yaml

  # Restore it
  kubectl apply --server-side -f shop.yaml

  # Copy ConfigMaps and Secrets to another cluster
  kubectl nslifecycle backup shop --types=configmaps,secrets --include-secrets |
    kubectl --context=other apply -f -`,
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
	flags.StringVarP(&options.filename, "filename", "f", "-", "File for the backup, or - for stdout.")
	flags.BoolVar(&options.overwrite, "overwrite", false, "If true, replace an existing file.")
	flags.StringSliceVar(&options.Types, "types", nil, "If set, only back up these resource types, for example "+
		"configmaps,deployments.apps. The Namespace itself is not included.")
	flags.BoolVar(&options.All, "all", false,
		"If true, include completed Jobs and Pods and objects that the cluster recreates.")
	flags.BoolVar(&options.IncludeSecrets, "include-secrets", false, "If true, include Secrets with their data.")
	return command
}

func (o *backupOptions) run(ctx context.Context, name string) error {
	// Before the requests, which can take minutes.
	if o.filename != "-" && files.Exists(o.filename) && !o.overwrite {
		return fmt.Errorf("file %s already exists; use --overwrite to replace it", o.filename)
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	collected, err := backup.Collect(ctx, config, name, o.Options)
	if err != nil {
		return fmt.Errorf("failed to back up namespace %q: %w", name, err)
	}
	return o.finish(name, collected)
}

// finish writes the backup and reports what it does not contain. It does not replace a file, which might be the only
// complete backup, by an incomplete one.
func (o *backupOptions) finish(name string, collected *backup.Backup) error {
	isIncomplete := len(collected.Unread) > 0
	isKept := isIncomplete && o.filename != "-" && files.Exists(o.filename)
	if !isKept {
		if err := o.write(collected); err != nil {
			return err
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(collected.Skipped)) {
		printf(o.ErrOut, "%s", msgSkipped(reason, collected.Skipped[reason]))
	}
	for _, unread := range collected.Unread {
		o.warnf(msgNotBackedUp, unread)
	}
	switch {
	case isKept:
		return fmt.Errorf("the backup of namespace %q is incomplete; file %s was not replaced", name, o.filename)
	case isIncomplete:
		return fmt.Errorf("the backup of namespace %q is incomplete", name)
	}
	return nil
}

func (o *backupOptions) write(collected *backup.Backup) error {
	if o.filename == "-" {
		return backup.Write(o.Out, collected.Objects)
	}
	var text bytes.Buffer
	if err := backup.Write(&text, collected.Objects); err != nil {
		return err
	}
	if err := files.Replace(o.filename, text.Bytes()); err != nil {
		return err
	}
	printf(o.ErrOut, "%s written to %s.", printable.Count(len(collected.Objects), "object"), o.filename)
	return nil
}

func msgSkipped(reason backup.Reason, number int) string {
	switch {
	case reason != backup.ReasonSecret:
		return fmt.Sprintf("Skipped %s: %s. Use --all to include them.", printable.Count(number, "object"), reason)
	case number == 0:
		return "Skipped all Secrets; their number is unknown. Use --include-secrets to include them."
	}
	return fmt.Sprintf("Skipped %s. Use --include-secrets to include them.", printable.Count(number, "Secret"))
}
