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

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type orphansOptions struct {
	*session
	output printer.Output
	delete bool
	yes    bool
}

func newOrphansCommand(session *session) *cobra.Command {
	options := &orphansOptions{session: session}
	command := &cobra.Command{
		Use:   "orphans",
		Short: "Find objects whose namespace does not exist",
		Long: `Find objects of all namespaced resource types whose namespace does not exist. With
--namespace, only search this namespace.

Orphans can remain in etcd after the finalizers of a Namespace have been removed by force.
They become visible again when a namespace with the same name is created.

The command changes nothing unless --delete is given. It cannot delete orphans that have
finalizers. To delete them, create the namespace, wait until the finalizers are removed, and
delete the namespace again.`,
		Example: `  # Find orphans
  kubectl nslifecycle orphans

  # Delete orphans without a prompt
  kubectl nslifecycle orphans --delete --yes`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	options.output.AddTableFlags(command, printer.FormatWide)
	flags := command.Flags()
	flags.BoolVar(&options.delete, "delete", false, "If true, delete the orphans.")
	flags.BoolVar(&options.yes, "yes", false, "If true, delete without a prompt.")
	return command
}

func (o *orphansOptions) run(ctx context.Context) error {
	if o.delete && !o.yes && !printer.IsTerminal(o.In) {
		return errors.New("cannot prompt without a terminal; use --yes to delete without a prompt")
	}
	discoverer, client, err := o.contentClients()
	if err != nil {
		return err
	}
	finder := &orphanFinder{discoverer: discoverer, client: client, namespace: *o.flags.Namespace}
	found, err := finder.find(ctx)
	if err != nil {
		return err
	}
	if err := o.print(found); err != nil {
		return err
	}
	o.warnEach("There might be more orphans", found.unread)
	if o.delete && len(found.orphans) > 0 {
		if err := o.confirmAndDelete(ctx, finder, found.orphans); err != nil {
			return err
		}
	}
	if len(found.unread) > 0 {
		return errors.New("the search is incomplete, because some objects could not be read")
	}
	return nil
}

func (o *orphansOptions) print(found *orphanResult) error {
	switch {
	case o.output.IsStructured():
		// An empty list must be encoded as [] instead of null.
		return o.output.Print(o.Out, "OrphanList", printer.Items(append([]orphan{}, found.orphans...)))
	case len(found.orphans) == 0 && len(found.unread) > 0:
		fmt.Fprintln(o.ErrOut, "No orphans found in the objects that could be read.")
		return nil
	case len(found.orphans) == 0:
		fmt.Fprintln(o.ErrOut, "No orphans found.")
		return nil
	}
	now := time.Now()
	table := printer.NewTable("Namespace", "Type", "Name", "Age", "Finalizers", "+UID")
	for _, one := range found.orphans {
		printer.AddRow(table,
			one.Namespace, one.Resource, printable.Name(one.Name), printer.Age(one.CreationTimestamp, now),
			printer.OrNone(strings.Join(one.Finalizers, ", ")), string(one.UID))
	}
	return o.output.NewTable(o.Out).Print(table)
}

func (o *orphansOptions) confirmAndDelete(ctx context.Context, finder *orphanFinder, found []orphan) error {
	if !o.yes {
		objects, namespaces := countOrphans(found)
		isConfirmed, err := o.ask(ctx, fmt.Sprintf("Delete %s in %s that do not exist?", objects, namespaces))
		if err != nil {
			return err
		}
		if !isConfirmed {
			fmt.Fprintln(o.ErrOut, "Nothing was deleted.")
			return nil
		}
	}
	var errs []error
	var rejected []orphan
	held := 0
	for i := range found {
		outcome, err := finder.delete(ctx, &found[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch outcome {
		case outcomeHeld:
			held++
		case outcomeRejected:
			rejected = append(rejected, found[i])
		}
		fmt.Fprintf(o.ErrOut, "%s in namespace %s: %s\n", found[i], found[i].Namespace, outcome)
	}
	if held > 0 {
		o.warnf("Finalizers block the deletion of %s. API servers before 1.37, and admission policies such as the gate of "+
			"nslifecycle, reject their removal while the namespace does not exist. Create the namespace, wait until the "+
			"owners of the finalizers have removed them, and delete the namespace again.", printable.Count(held, "object"))
	}
	if len(rejected) > 0 {
		objects, namespaces := countOrphans(rejected)
		errs = append(errs, fmt.Errorf("%s in %s cannot be deleted: the namespace does not exist, and the API server "+
			"rejects the requests because an admission policy or webhook, such as the gate of nslifecycle, has a "+
			"namespaceSelector; to delete the objects, create the namespace and delete it again: %s", objects, namespaces,
			o.withConnection(shell.Then(shell.Command("kubectl create namespace %s", rejected[0].Namespace),
				shell.Command("kubectl delete namespace %s", rejected[0].Namespace)))))
	}
	return errors.Join(errs...)
}
