// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type orphansOptions struct {
	*session
	output printer.Output
}

func newOrphansCommand(session *session) *cobra.Command {
	options := &orphansOptions{session: session}
	command := &cobra.Command{
		Use:   "orphans",
		Short: "Find objects whose namespace does not exist",
		Long: `Find objects of all namespaced resource types whose namespace does not exist. With
--namespace, only search this namespace.

Orphans can remain in etcd after the finalizers of a Namespace have been removed by force.
They become visible again when a namespace with the same name is created. To delete them,
create the namespace and delete it again.`,
		Example: `  # Find orphans
  kubectl nslifecycle orphans`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runWithContext(options.run),
	}
	options.output.AddTableFlags(command, printer.FormatWide)
	return command
}

func (o *orphansOptions) run(ctx context.Context, _ []string) error {
	discoverer, client, err := o.contentClients()
	if err != nil {
		return err
	}
	found, unread, err := o.find(ctx, discoverer, client)
	if err != nil {
		return err
	}
	if err := o.print(found, len(unread) == 0); err != nil {
		return err
	}
	o.warnEach("There might be more orphans", unread)
	if len(unread) > 0 {
		return errors.New("the search is incomplete, because some objects could not be read")
	}
	return nil
}

// orphan is an object whose namespace does not exist.
type orphan struct {
	Resource          string      `json:"resource"`
	APIVersion        string      `json:"apiVersion"`
	Kind              string      `json:"kind"`
	Namespace         string      `json:"namespace"`
	Name              string      `json:"name"`
	UID               types.UID   `json:"uid"`
	CreationTimestamp metav1.Time `json:"creationTimestamp"`
	Finalizers        []string    `json:"finalizers,omitempty"`
}

// find returns the orphans, sorted by namespace and type, and errors about objects that could not be read. An object is
// an orphan if it exists both before and after its namespace is found missing: objects that are deleted together with
// their namespace do not exist afterwards.
func (o *orphansOptions) find(
	ctx context.Context, discoverer resourcetypes.Discoverer, client metadata.Interface,
) (found []orphan, unread []string, err error) {
	discovered, err := resourcetypes.Discover(ctx, discoverer)
	if err != nil {
		return nil, nil, err
	}
	if err := discovered.Err(); err != nil {
		unread = append(unread, "discovery: "+err.Error())
	}
	before := resourcetypes.List(ctx, client, *o.flags.Namespace, storedTypes(discovered.Types), resourcetypes.Unlimited)
	namespaces, err := o.listNamespaces(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list namespaces, which is required to find orphans: %w", err)
	}
	existing := sets.Set[string]{}
	for i := range namespaces.Items {
		existing.Insert(namespaces.Items[i].Name)
	}
	candidates := sets.Set[types.UID]{}
	var candidateTypes []resourcetypes.Type
	for _, content := range before {
		if content.Err != nil {
			unread = append(unread, content.Err.Error())
		}
		missing := slices.DeleteFunc(content.Objects, func(object metav1.PartialObjectMetadata) bool {
			return existing.Has(object.Namespace)
		})
		for i := range missing {
			candidates.Insert(missing[i].UID)
		}
		if len(missing) > 0 {
			candidateTypes = append(candidateTypes, content.Type)
		}
	}
	for _, content := range resourcetypes.List(ctx, client, *o.flags.Namespace, candidateTypes, resourcetypes.Unlimited) {
		if content.Err != nil {
			unread = append(unread, content.Err.Error())
		}
		for i := range content.Objects {
			if object := &content.Objects[i]; candidates.Has(object.UID) && !existing.Has(object.Namespace) {
				found = append(found, newOrphan(content.Type, object))
			}
		}
	}
	slices.SortStableFunc(found, func(a, b orphan) int { return strings.Compare(a.Namespace, b.Namespace) })
	slices.Sort(unread)
	return found, slices.Compact(unread), ctx.Err()
}

// storedTypes returns the resource types of stored objects, without those whose objects another type contains.
// It excludes types that cannot be deleted, because an API server computes their objects.
func storedTypes(all []resourcetypes.Type) []resourcetypes.Type {
	return slices.DeleteFunc(resourcetypes.Distinct(all), func(one resourcetypes.Type) bool {
		return !one.Can("list") || !one.Can("delete")
	})
}

func newOrphan(of resourcetypes.Type, object *metav1.PartialObjectMetadata) orphan {
	return orphan{
		Resource: of.String(), APIVersion: of.GroupVersion().String(), Kind: of.Kind,
		Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		CreationTimestamp: object.CreationTimestamp, Finalizers: object.Finalizers,
	}
}

func (o *orphansOptions) print(found []orphan, isComplete bool) error {
	switch {
	case o.output.IsStructured():
		// An empty list must be encoded as [] instead of null.
		return o.output.Print(o.Out, "OrphanList", printer.Items(append([]orphan{}, found...)))
	case len(found) == 0 && !isComplete:
		fmt.Fprintln(o.ErrOut, "No orphans found in the objects that could be read.")
		return nil
	case len(found) == 0:
		fmt.Fprintln(o.ErrOut, "No orphans found.")
		return nil
	}
	now := time.Now()
	table := printer.NewTable("Namespace", "Type", "Name", "Age", "Finalizers", "+UID")
	for _, one := range found {
		printer.AddRow(table,
			one.Namespace, one.Resource, printable.Name(one.Name), printer.Age(one.CreationTimestamp, now),
			printer.OrNone(strings.Join(one.Finalizers, ", ")), string(one.UID))
	}
	if err := o.output.NewTable(o.Out).Print(table); err != nil {
		return err
	}
	printf(o.ErrOut, "To delete the orphans of a namespace, create and delete it: %s", o.withConnection(shell.Then(
		shell.Command("kubectl create namespace %s", found[0].Namespace),
		shell.Command("kubectl delete namespace %s", found[0].Namespace))))
	return nil
}
