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

	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type orphansOptions struct {
	*session
	output       *output
	hasNoHeaders bool
	isDeleting   bool
	isSure       bool
}

func newOrphansCommand(session *session) *cobra.Command {
	options := &orphansOptions{session: session, output: newOutput(outputJSON, outputYAML, outputWide)}
	command := &cobra.Command{
		Use:   "orphans",
		Short: "Find objects whose namespace does not exist",
		Long: "Find objects, of any namespaced type, whose namespace does not exist. They are left behind when\n" +
			"the finalizers of a Namespace are removed by force. Nobody sees them, since they are in no\n" +
			"namespace, and they come back when a namespace of that name is created.\n\n" +
			"An object is called an orphan only if it was there before its namespace was found missing, and\n" +
			"is there afterwards. Nothing is changed unless --delete is given; orphans that have finalizers\n" +
			"remain then, until those are removed: create the namespace for that, and delete it again.",
		Example: "  kubectl nslifecycle orphans\n\n" +
			"  # Delete them, in a script\n" +
			"  kubectl nslifecycle orphans --delete --yes",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	options.output.addFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.hasNoHeaders, "no-headers", false, "Print no headers")
	flags.BoolVar(&options.isDeleting, "delete", false, "Delete the orphans that were found")
	flags.BoolVar(&options.isSure, "yes", false, "Do not ask before something is deleted")
	return command
}

func (o *orphansOptions) run(ctx context.Context) error {
	if err := o.output.validate(); err != nil {
		return err
	}
	if o.isDeleting && !o.isSure && !isTerminal(o.In) {
		return errors.New("nobody can be asked whether the orphans may be deleted; use --yes to do it without asking")
	}
	search, err := o.newOrphanSearch()
	if err != nil {
		return err
	}
	found, err := search.run(ctx)
	if err != nil {
		return err
	}
	if err := o.print(found); err != nil {
		return err
	}
	o.warnEach("There may be more orphans", found.unread)
	if o.isDeleting && len(found.orphans) > 0 {
		if err := o.delete(ctx, search, found.orphans); err != nil {
			return err
		}
	}
	if len(found.unread) > 0 {
		return errors.New("not everything could be looked at")
	}
	return nil
}

func (o *orphansOptions) print(found *orphans) error {
	switch {
	case o.output.isStructured():
		// Never null: a list without items is still one.
		return o.output.print(o.Out, "OrphanList", map[string]any{"items": append([]orphan{}, found.orphans...)})
	case len(found.orphans) == 0 && len(found.unread) > 0:
		fmt.Fprintln(o.ErrOut, "No orphans found in what could be read.")
		return nil
	case len(found.orphans) == 0:
		fmt.Fprintln(o.ErrOut, "No orphans found.")
		return nil
	}
	now := time.Now()
	table := &metav1.Table{ColumnDefinitions: columns("Namespace", "Type", "Name", "Age", "Finalizers", "+UID")}
	for _, one := range found.orphans {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			one.Namespace, one.Resource, printable.Name(one.Name), ageOf(one.CreationTimestamp, now),
			orNone(strings.Join(one.Finalizers, ",")), string(one.UID),
		}})
	}
	return printTable(o.Out, table, o.output.isWide(), o.hasNoHeaders)
}

func (o *orphansOptions) delete(ctx context.Context, search *orphanSearch, orphans []orphan) error {
	if !o.isSure {
		question := fmt.Sprintf("Delete %s in %s that do not exist?",
			count(len(orphans), "object"), count(countNamespaces(orphans), "namespace"))
		isAgreed, err := o.ask(ctx, question)
		if err != nil {
			return err
		}
		if !isAgreed {
			fmt.Fprintln(o.ErrOut, "Nothing was deleted.")
			return nil
		}
	}
	var errs []error
	var refused []orphan
	remaining := 0
	for i := range orphans {
		outcome, err := search.delete(ctx, &orphans[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch outcome {
		case outcomeHeld:
			remaining++
		case outcomeRefused:
			refused = append(refused, orphans[i])
		}
		fmt.Fprintf(o.ErrOut, "%s in namespace %s: %s\n", orphans[i], orphans[i].Namespace, outcome)
	}
	if remaining > 0 {
		o.warnf("%s held by finalizers, which nobody can remove while there is no namespace. Create it, let the "+
			"owners do their work, and delete it again: kubectl create namespace NAME", isOrAre(remaining))
	}
	if len(refused) > 0 {
		errs = append(errs, fmt.Errorf("%s in %s cannot be deleted while an admission policy or webhook of the cluster "+
			"selects by namespace, as the gate of nslifecycle does: the API server reads the namespace first. "+
			"Create the namespace and delete it again, which deletes the objects in it: "+
			"%s", count(len(refused), "object"), count(countNamespaces(refused), "namespace"),
			shell.Command("kubectl create namespace %s && kubectl delete namespace %[1]s", refused[0].Namespace)))
	}
	return errors.Join(errs...)
}

// ask puts a question to somebody at a terminal. Anything but yes means no.
func (s *session) ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(s.ErrOut, "%s [y/N] ", question)
	answer, err := s.readLine(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

func isOrAre(number int) string {
	if number == 1 {
		return "1 object is"
	}
	return fmt.Sprintf("%d objects are", number)
}
