// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/plugin/orphans"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type orphansOptions struct {
	*session
	output    *printer.Output
	noHeaders bool
	delete    bool
	yes       bool
}

func newOrphansCommand(session *session) *cobra.Command {
	options := &orphansOptions{
		session: session, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML, printer.FormatWide),
	}
	command := &cobra.Command{
		Use:               "orphans",
		Short:             shortOrphans,
		Long:              longOrphans,
		Example:           exampleOrphans,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	options.output.AddFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.noHeaders, "no-headers", false, helpNoHeaders)
	flags.BoolVar(&options.delete, "delete", false, helpOrphansDelete)
	flags.BoolVar(&options.yes, "yes", false, helpYes)
	return command
}

func (o *orphansOptions) run(ctx context.Context) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	if o.delete && !o.yes && !printer.IsTerminal(o.In) {
		return errNoTerminalToAsk
	}
	discoverer, client, err := o.contentClients()
	if err != nil {
		return err
	}
	finder := &orphans.Finder{Discoverer: discoverer, Client: client, Namespace: *o.flags.Namespace}
	found, err := finder.Find(ctx)
	if err != nil {
		return err
	}
	if err := o.print(found); err != nil {
		return err
	}
	o.warnEach(msgMoreOrphans, found.Unread)
	if o.delete && len(found.Orphans) > 0 {
		if err := o.confirmAndDelete(ctx, finder, found.Orphans); err != nil {
			return err
		}
	}
	if len(found.Unread) > 0 {
		return errIncompleteSearch
	}
	return nil
}

func (o *orphansOptions) print(found *orphans.Result) error {
	switch {
	case o.output.IsStructured():
		// An empty list must be encoded as [] instead of null.
		return o.output.Print(o.Out, "OrphanList", printer.Items(append([]orphans.Orphan{}, found.Orphans...)))
	case len(found.Orphans) == 0 && len(found.Unread) > 0:
		fmt.Fprintln(o.ErrOut, msgNoReadableOrphans)
		return nil
	case len(found.Orphans) == 0:
		fmt.Fprintln(o.ErrOut, msgNoOrphans)
		return nil
	}
	now := time.Now()
	table := &metav1.Table{ColumnDefinitions: printer.Columns(orphanColumns...)}
	for _, orphan := range found.Orphans {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			orphan.Namespace, orphan.Resource, printable.Name(orphan.Name), printer.Age(orphan.CreationTimestamp, now),
			printer.OrNone(strings.Join(orphan.Finalizers, ", ")), string(orphan.UID),
		}})
	}
	return printer.PrintTable(o.Out, table, printer.TableOptions{
		IsWide: o.output.IsWide(), NoHeaders: o.noHeaders, Columns: printer.Width(o.Out),
	})
}

func (o *orphansOptions) confirmAndDelete(ctx context.Context, finder *orphans.Finder, found []orphans.Orphan) error {
	if !o.yes {
		objects, namespaces := countOrphans(found)
		isConfirmed, err := o.ask(ctx, fmt.Sprintf(msgDeleteOrphans, objects, namespaces))
		if err != nil {
			return err
		}
		if !isConfirmed {
			fmt.Fprintln(o.ErrOut, msgNothingDeleted)
			return nil
		}
	}
	var errs []error
	var rejected []orphans.Orphan
	held := 0
	for i := range found {
		outcome, err := finder.Delete(ctx, &found[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch outcome {
		case orphans.OutcomeHeld:
			held++
		case orphans.OutcomeRejected:
			rejected = append(rejected, found[i])
		}
		fmt.Fprintf(o.ErrOut, "%s in namespace %s: %s\n", found[i], found[i].Namespace, outcome)
	}
	if held > 0 {
		o.warnf(msgOrphansHeld, printable.Count(held, "object"))
	}
	if len(rejected) > 0 {
		objects, namespaces := countOrphans(rejected)
		errs = append(errs, fmt.Errorf(msgOrphansRejected, objects, namespaces,
			o.withConnection(shell.Command("kubectl create namespace %s", rejected[0].Namespace))+" && "+
				o.withConnection(shell.Command("kubectl delete namespace %s", rejected[0].Namespace))))
	}
	return errors.Join(errs...)
}
