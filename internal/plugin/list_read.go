// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// list lists the namespaces. It returns an error if it has not listed all.
func (o *listOptions) list(ctx context.Context) error {
	namespaces, err := o.read(ctx)
	if len(namespaces) == 0 && err != nil {
		return err
	}
	var relationsErr error
	if o.relations, relationsErr = o.readRelations(ctx); relationsErr != nil {
		return errors.Join(err, relationsErr)
	}
	o.policies = &policyReader{session: o.session}
	for i := range namespaces {
		if summary := o.summarize(ctx, &namespaces[i]); summary != nil {
			o.summaries = append(o.summaries, *summary)
		}
	}
	return err
}

// read returns the Namespaces that the user has chosen.
func (o *listOptions) read(ctx context.Context) ([]corev1.Namespace, error) {
	switch {
	case o.mine:
		return o.listMine(ctx, o.selector)
	case len(o.names) > 0 && !o.watch:
		return o.getNamed(ctx)
	}
	list, err := o.listNamespaces(ctx, o.requestOptions())
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; to list the namespaces that you have created, run: %s", err,
			o.withConnection(displayName+" list --mine"))
	}
	if err != nil {
		return nil, err
	}
	if len(o.names) > 0 && len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), o.names[0])
	}
	o.resourceVersion = list.ResourceVersion
	return list.Items, nil
}

func (o *listOptions) requestOptions() metav1.ListOptions {
	options := metav1.ListOptions{LabelSelector: o.selector}
	if len(o.names) > 0 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.names[0]).String()
	}
	return options
}

// getNamed returns the named Namespaces that exist. Unlike a list, it requires only permission to get them.
func (o *listOptions) getNamed(ctx context.Context) ([]corev1.Namespace, error) {
	client, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	var found []corev1.Namespace
	var errs []error
	for _, name := range o.names {
		namespace, err := client.Get(ctx, name, metav1.GetOptions{})
		if errs = append(errs, err); err == nil {
			found = append(found, *namespace)
		}
	}
	return found, errors.Join(errs...)
}

// summarize returns the summary of a Namespace, or nil if it is not in the state that the user has chosen.
func (o *listOptions) summarize(ctx context.Context, namespace *corev1.Namespace) *namespaceSummary {
	summary := computeSummary(namespace)
	if o.state != "" && !strings.EqualFold(string(summary.State), o.state) {
		return nil
	}
	summary.addTemplates(o.relations.of(namespace))
	summary.isUnread = len(o.relations.unread) > 0
	if o.output.IsStructured() || o.output.IsWide() {
		summary.DeletionProtection = o.policies.protection(ctx, namespace)
	}
	return &summary
}

// warnUnread prints what the list does not contain because it could not be read.
func (o *listOptions) warnUnread() {
	if o.relations != nil && (o.output.IsStructured() || o.output.IsWide()) {
		o.warnEach(messageTemplatesUnread, o.relations.unread)
		o.warnEach("Whether deletion protection is enforced is unknown", o.policies.unread)
	}
}

// watchChanges shows the namespaces that change until the context is canceled.
func (o *listOptions) watchChanges(ctx context.Context) error {
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, o.resourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			chosen := o.requestOptions()
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
		if relations, err := o.readRelations(ctx); err == nil {
			o.relations = relations
		}
		if summary := o.summarize(ctx, namespace); summary != nil {
			if err := o.show([]namespaceSummary{*summary}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
