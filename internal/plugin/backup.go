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
	filename string
}

func newBackupCommand(session *session) *cobra.Command {
	options := &backupOptions{session: session}
	command := &cobra.Command{
		Use:               "backup [NAME]",
		Short:             shortBackup,
		Long:              longBackup,
		Example:           exampleBackup,
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
	flags.StringVarP(&options.filename, "filename", "f", "-", helpBackupFilename)
	flags.StringSliceVar(&options.Types, "types", nil, helpBackupTypes)
	flags.BoolVar(&options.All, "all", false, helpBackupAll)
	flags.BoolVar(&options.IncludeSecrets, "include-secrets", false, helpIncludeSecrets)
	return command
}

func (o *backupOptions) run(ctx context.Context, name string) error {
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
		return fmt.Errorf(msgBackupNotReplaced, name, o.filename)
	case isIncomplete:
		return fmt.Errorf(msgBackupIncomplete, name)
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
	printf(o.ErrOut, msgBackupWritten, printable.Count(len(collected.Objects), "object"), o.filename)
	return nil
}
