// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// rolloutInterval is the time between two requests for the status of a rollout.
const rolloutInterval = time.Second

// status shows the progress of a rollout until it has finished.
func (o *templateRolloutOptions) status(ctx context.Context, name string) error {
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	printed := ""
	show := func() (bool, error) {
		text, isDone, err := rolloutProgress(object)
		if err == nil && text != printed {
			printed = text
			printf(o.Out, "%s", text)
		}
		return isDone || !o.watch, err
	}
	if isDone, err := show(); isDone || err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(waitCtx, rolloutInterval, false, func(ctx context.Context) (bool, error) {
		found, err := reader.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != object.UID:
			return false, fmt.Errorf(msgRolloutDeleted, name)
		case isPermanent(err):
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			o.warnf(msgRolloutRetry, name, err)
			return false, nil
		}
		object = found
		return show()
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf(msgRolloutTimeout, o.timeout, name)
	}
	return err
}

// isPermanent reports whether another read of the same object would fail, too.
func isPermanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || errors.Is(err, errTemplatesNotServed)
}

// rolloutProgress describes the progress of a rollout. It returns an error if a user must act.
func rolloutProgress(object *v1alpha1.NamespaceTemplate) (text string, isDone bool, err error) {
	if !templates.IsObserved(object) {
		return fmt.Sprintf(msgRolloutUnobserved, object.Name), false, nil
	}
	status := &object.Status
	progressing := ptr.Deref(
		meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing), metav1.Condition{})
	if valid := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionValid); valid != nil &&
		valid.Status == metav1.ConditionFalse {
		return "", false, rolloutBlocked(object.Name, valid)
	}
	switch {
	case progressing.Reason == template.ReasonPausedAfterFailures:
		return "", false, rolloutBlocked(object.Name, &progressing)
	case progressing.Reason == template.ReasonUpToDate && status.Revision == status.CurrentRevision:
		return fmt.Sprintf(msgRolloutDone, object.Name), true, nil
	}
	counts := ptr.Deref(status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	text = fmt.Sprintf(msgRolloutWaiting, object.Name, counts.Ready, counts.Selected)
	if counts.Failed > 0 {
		text += fmt.Sprintf(", %d failed", counts.Failed)
	}
	if counts.Conflicted > 0 {
		text += fmt.Sprintf(", %d conflicted", counts.Conflicted)
	}
	if progressing.Reason == template.ReasonPaused {
		text += ", paused"
	}
	// The permissions can be granted after the change, for example in the same manifest.
	if meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAuthorized) {
		text += ", unauthorized"
	}
	return text + "...", false, nil
}

func rolloutBlocked(name string, condition *metav1.Condition) error {
	return &StatusError{
		Code: ExitBlocked, Err: fmt.Errorf(msgRolloutBlocked, name, condition.Reason, condition.Message),
	}
}
