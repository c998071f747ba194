// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
)

// undo rolls a NamespaceTemplate back to an earlier revision.
func (o *templateRolloutOptions) undo(ctx context.Context, name string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	if o.revision < 0 {
		return fmt.Errorf(msgRolloutRevisionNumber, o.revision)
	}
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	revisions, err := o.revisions(ctx, object)
	if err != nil {
		return err
	}
	target, err := templates.UndoTarget(object, revisions, o.revision)
	if err != nil {
		return err
	}
	if o.dryRun != dryRunClient {
		if err := o.rollBack(ctx, reader, object, target); err != nil {
			return err
		}
	}
	return o.printResult(name, fmt.Sprintf("rolled back to revision %d", target.Number))
}

// rollBack writes a revision into the spec of a NamespaceTemplate unless another client has changed the
// spec. The operator updates the status during a rollout, so conflicts alone do not mean this.
func (o *templateRolloutOptions) rollBack(
	ctx context.Context, reader *templateReader, read *v1alpha1.NamespaceTemplate, target *templates.Revision,
) error {
	latest := read
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if latest.UID != read.UID || latest.Generation != read.Generation {
			return fmt.Errorf(msgRolloutChanged, read.Name)
		}
		patch, err := target.UndoPatch(latest.ResourceVersion)
		if err != nil {
			return err
		}
		_, err = reader.patch(ctx, read.Name, patch, metav1.PatchOptions{DryRun: o.dryRun.requestOption()})
		if apierrors.IsConflict(err) {
			found, getErr := reader.get(ctx, read.Name)
			if getErr != nil {
				return getErr
			}
			latest = found
		}
		return err
	})
}
