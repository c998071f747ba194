// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// lister lists namespaces for the list command.
type lister struct {
	*session
	options *listOptions
	state   diagnosis.State
	names   []string

	relations *relationReader
	policies  *policyReader
	// summaries are the result of list, and resourceVersion is that of the list.
	summaries       []namespaceSummary
	resourceVersion string
}

// list lists the namespaces. It returns an error if it has not listed all.
func (l *lister) list(ctx context.Context) error {
	namespaces, err := l.read(ctx)
	if len(namespaces) == 0 && err != nil {
		return err
	}
	var relationsErr error
	if l.relations, relationsErr = l.readRelations(ctx); relationsErr != nil {
		return errors.Join(err, relationsErr)
	}
	l.policies = &policyReader{session: l.session}
	for i := range namespaces {
		if summary := l.summarize(ctx, &namespaces[i]); summary != nil {
			l.summaries = append(l.summaries, *summary)
		}
	}
	return err
}

// read returns the Namespaces that the user has chosen.
func (l *lister) read(ctx context.Context) ([]corev1.Namespace, error) {
	switch {
	case l.options.mine:
		return l.listMine(ctx, l.options.selector)
	case len(l.names) > 0 && !l.options.watch:
		return l.get(ctx)
	}
	list, err := l.listNamespaces(ctx, l.listOptions())
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; to list the namespaces that you have created, run: %s", err,
			l.withConnection(displayName+" list --mine"))
	}
	if err != nil {
		return nil, err
	}
	if len(l.names) > 0 && len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), l.names[0])
	}
	l.resourceVersion = list.ResourceVersion
	return list.Items, nil
}

func (l *lister) listOptions() metav1.ListOptions {
	options := metav1.ListOptions{LabelSelector: l.options.selector}
	if len(l.names) > 0 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.names[0]).String()
	}
	return options
}

// get returns the named Namespaces that exist. Unlike a list, it requires only permission to get them.
func (l *lister) get(ctx context.Context) ([]corev1.Namespace, error) {
	client, err := l.namespaces()
	if err != nil {
		return nil, err
	}
	var found []corev1.Namespace
	var errs []error
	for _, name := range l.names {
		namespace, err := client.Get(ctx, name, metav1.GetOptions{})
		if errs = append(errs, err); err == nil {
			found = append(found, *namespace)
		}
	}
	return found, errors.Join(errs...)
}

// summarize returns the summary of a Namespace, or nil if it is not in the state that the user has chosen.
func (l *lister) summarize(ctx context.Context, namespace *corev1.Namespace) *namespaceSummary {
	summary := computeSummary(namespace)
	if l.state != "" && summary.State != l.state {
		return nil
	}
	summary.addTemplates(l.relations.of(namespace))
	summary.isUnread = len(l.relations.unread) > 0
	if l.options.output.IsStructured() || l.options.output.IsWide() {
		summary.DeletionProtection = l.policies.protection(ctx, namespace)
	}
	return &summary
}

// warnUnread prints what the list does not contain because it could not be read.
func (l *lister) warnUnread() {
	if l.relations != nil && (l.options.output.IsStructured() || l.options.output.IsWide()) {
		l.warnEach(msgTemplatesUnread, l.relations.unread)
		l.warnEach("Whether deletion protection is enforced is unknown", l.policies.unread)
	}
}

// watch shows the namespaces that change until the context is canceled.
func (l *lister) watch(ctx context.Context, show func([]namespaceSummary) error) error {
	client, err := l.namespaces()
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, l.resourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			chosen := l.listOptions()
			options.LabelSelector, options.FieldSelector = chosen.LabelSelector, chosen.FieldSelector
			return client.Watch(ctx, options)
		},
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		if relations, err := l.readRelations(ctx); err == nil {
			l.relations = relations
		}
		if summary := l.summarize(ctx, namespace); summary != nil {
			if err := show([]namespaceSummary{*summary}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
