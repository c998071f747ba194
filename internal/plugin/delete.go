// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

type deleteOptions struct {
	*session
	dryRun           dryRun
	wait             bool
	ignoreNotFound   bool
	timeout          time.Duration
	progressDeadline time.Duration
}

func newDeleteCommand(session *session) *cobra.Command {
	options := &deleteOptions{session: session}
	command := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete namespaces and show what blocks the deletion",
		Long: `Delete namespaces and show the remaining objects until the namespaces are deleted. If a
deletion has already started, the command only shows its progress.

If a deletion makes no progress within --progress-deadline, the command diagnoses the
namespace and prints the causes. The timeout applies to each namespace.

Ctrl-C stops the command but not the deletions, which cannot be undone.`,
		Example: `  # Delete a namespace and show the remaining objects
  kubectl nslifecycle delete shop

  # Delete two namespaces in a script
  kubectl nslifecycle delete shop stage --timeout=5m`,
		Args:              namespaces,
		ValidArgsFunction: session.completeManyNamespaces,
		RunE:              runWithContext(options.run),
	}
	options.dryRun.addFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.wait, "wait", true,
		"If true, wait for the deletion of the namespace, and show the remaining objects.")
	flags.BoolVar(&options.ignoreNotFound, "ignore-not-found", false,
		"If true, treat \"namespace not found\" as a successful delete.")
	flags.DurationVar(&options.timeout, "timeout", 0, helpTimeout)
	flags.DurationVar(&options.progressDeadline, "progress-deadline", diagnosis.DefaultProgressDeadline,
		"The length of time without progress after which the namespace is diagnosed.")
	return command
}

func (o *deleteOptions) run(ctx context.Context, names []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	if o.progressDeadline <= 0 {
		return fmt.Errorf("--progress-deadline must be greater than 0, got %s", o.progressDeadline)
	}
	for _, name := range names {
		// The system namespaces are the namespaces that the operator never initializes.
		if slices.Contains(initialization.RequiredNamespaces, name) {
			return fmt.Errorf("namespace %q is a system namespace and must not be deleted", name)
		}
	}
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	// All deletions start before the command waits for the first.
	var deleted []*corev1.Namespace
	var errs []error
	for _, name := range names {
		namespace, err := o.start(ctx, client, name)
		if errs = append(errs, err); namespace != nil {
			deleted = append(deleted, namespace)
		}
	}
	for _, namespace := range deleted {
		if !o.wait || o.dryRun != dryRunNone {
			fmt.Fprintf(o.Out, "namespace %q deleted%s\n", namespace.Name, o.dryRun.suffix())
			continue
		}
		errs = append(errs, o.waitUntilDeleted(ctx, client, namespace))
	}
	return errors.Join(errs...)
}

// start starts the deletion of a Namespace. It returns nil if the Namespace is not being deleted.
func (o *deleteOptions) start(
	ctx context.Context, client corev1client.NamespaceInterface, name string,
) (*corev1.Namespace, error) {
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.ignoreNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := o.delete(ctx, client, namespace); err != nil {
		return nil, err
	}
	return namespace, nil
}

// delete deletes the Namespace if it still has the same UID and is not being deleted.
func (o *deleteOptions) delete(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	if namespace.DeletionTimestamp != nil {
		printf(o.ErrOut, "Namespace %q has already been terminating for %s.", namespace.Name,
			printer.Age(*namespace.DeletionTimestamp, time.Now()))
		return nil
	}
	if o.dryRun == dryRunClient {
		return nil
	}
	err := client.Delete(ctx, namespace.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(namespace.UID)), DryRun: o.dryRun.requestOption(),
	})
	switch {
	case apierrors.IsForbidden(err) && nsobject.IsProtected(namespace) &&
		strings.Contains(err.Error(), v1alpha1.LabelDeletionProtection):
		return fmt.Errorf("namespace %q was not deleted: the label %s protects it; to allow its deletion, run: %s",
			namespace.Name, v1alpha1.LabelDeletionProtection,
			o.withConnection(nsobject.ProtectionRemovalCommand(namespace.Name)))
	case nsobject.IsConflict(err):
		return fmt.Errorf("namespace %q was recreated by another client; the new namespace was not deleted", namespace.Name)
	case nsobject.IsNotFound(err): // Another client has deleted the Namespace.
		return nil
	}
	return err
}

// waitUntilDeleted shows the remaining objects until the Namespace is deleted.
func (o *deleteOptions) waitUntilDeleted(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) error {
	waiter, err := newDeleteWaiter(o.session, namespace, o.progressDeadline)
	if err != nil {
		return err
	}
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	err = waiter.wait(waitCtx, watchNamespace(waitCtx, client, namespace))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		// Unlike another delete, this command does not delete a new namespace with the same name.
		wait := o.withConnection(shell.Command(displayName+" wait %s --for=delete", namespace.Name))
		return &StatusError{Code: ExitInterrupted, Err: fmt.Errorf(
			"interrupted; namespace %q is still being deleted; to wait for the deletion, run: %s", namespace.Name, wait)}
	case errors.Is(err, context.DeadlineExceeded):
		code := ExitError
		if waiter.isBlocked() {
			code = ExitBlocked
		}
		return &StatusError{Code: code, Err: fmt.Errorf("timed out after %s waiting for the deletion of namespace %q, "+
			"which is still in progress; to see what blocks it, run: %s", o.timeout, namespace.Name,
			o.explainCommand(namespace.Name))}
	}
	return err
}

// fullCountInterval is the time between two counts of all types. In between, the counter counts
// only the types that had objects in the previous count. A cluster has hundreds of types, but a
// namespace usually contains objects of only a few.
const fullCountInterval = 15 * time.Second

type remainingCounter struct {
	client     metadata.Interface
	discoverer resourcetypes.Discoverer
	namespace  string

	lastFullCount time.Time
	// nonEmpty contains the types that had objects in the previous count, and counts the numbers.
	nonEmpty []resourcetypes.Type
	counts   map[string]int
}

type snapshot struct {
	// counts are the numbers of objects by type, without types that have no objects. If a type could
	// not be counted, the number is from the previous count.
	counts map[string]int
	// unread lists the types that could not be counted and why.
	unread []string
	// isComplete is set if all types were counted.
	isComplete bool
}

// count counts the objects of all types, or of the types that had objects in the previous count.
func (r *remainingCounter) count(ctx context.Context) snapshot {
	result := snapshot{counts: map[string]int{}}
	types := r.nonEmpty
	if time.Since(r.lastFullCount) >= fullCountInterval {
		result.isComplete = true
		types = r.discoverTypes(ctx, &result)
	}
	contents := resourcetypes.List(ctx, r.client, r.namespace, types, 1)
	if result.isComplete {
		r.lastFullCount = time.Now()
	}
	r.nonEmpty = nil
	for _, content := range contents {
		r.nonEmpty = append(r.nonEmpty, content.Type)
		name, count := printable.Escape(content.Type.String()), content.Count
		if content.Err != nil {
			result.unread = append(result.unread, content.Err.Error())
			count = max(count, r.counts[name])
		}
		if count > 0 {
			result.counts[name] = count
		}
	}
	r.counts = result.counts
	return result
}

// discoverTypes returns the types of objects that block the deletion of a namespace.
func (r *remainingCounter) discoverTypes(ctx context.Context, result *snapshot) []resourcetypes.Type {
	discovered, err := resourcetypes.Discover(ctx, r.discoverer)
	if err != nil {
		result.unread = append(result.unread, err.Error())
		return r.nonEmpty
	}
	types := storedTypes(discovered.Types)
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, err.Error())
		for _, known := range r.nonEmpty {
			if !slices.ContainsFunc(types, func(found resourcetypes.Type) bool { return found.String() == known.String() }) {
				types = append(types, known)
			}
		}
	}
	return types
}

// deletionProgress contains the numbers of objects during a deletion.
type deletionProgress struct {
	// highest is the highest count of each type, and current is the latest.
	highest, current map[string]int
}

func (p *deletionProgress) add(counts map[string]int) {
	p.current = counts
	for resource, count := range counts {
		p.highest[resource] = max(p.highest[resource], count)
	}
}

// lines returns a line for each type that has or had objects, sorted by the number of remaining objects in descending
// order.
func (p *deletionProgress) lines() []string {
	resources := slices.SortedFunc(maps.Keys(p.highest), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.current[b], p.current[a]), cmp.Compare(a, b))
	})
	lines := make([]string, 0, len(resources))
	for _, resource := range resources {
		lines = append(lines, fmt.Sprintf("%s: %d of %d remaining", resource, p.current[resource], p.highest[resource]))
	}
	return lines
}
