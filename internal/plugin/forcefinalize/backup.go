// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/plugin/files"
)

// Backup writes all objects in the namespace to the new file plan.Backup. It returns the number of
// written objects and the names of the missing objects. If objects are missing, it fails unless the
// user allows unread objects.
func (f *Finalizer) Backup(
	ctx context.Context, plan *Plan, allowed Permissions) (saved int, missing []string, err error,
) {
	collected, err := backup.Collect(ctx, f.Config, plan.Namespace,
		backup.Options{All: true, IncludeSecrets: true, AllowTerminating: true})
	if err != nil {
		return 0, nil, fmt.Errorf("failed to back up namespace %q: %w", plan.Namespace, err)
	}
	unsaved, err := f.discoverUnsaved(ctx, plan.Remaining, collected.Objects)
	if err != nil {
		return 0, nil, err
	}
	missing = append(collected.Unread, unsaved...)
	if len(missing) > 0 && !allowed.AllowUnread {
		return 0, nil, errIncompleteBackup(missing)
	}
	var text bytes.Buffer
	if err := backup.Write(&text, collected.Objects); err != nil {
		return 0, nil, err
	}
	return len(collected.Objects), missing, createFile(plan.Backup, text.Bytes())
}

// discoverUnsaved returns the names of objects that still exist but are not in a backup.
func (f *Finalizer) discoverUnsaved(
	ctx context.Context, remaining []RemainingObject, saved []*unstructured.Unstructured,
) ([]string, error) {
	unsaved := computeUnsaved(remaining, saved)
	if len(unsaved) == 0 {
		return nil, nil
	}
	current, err := f.discoverState(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to verify the backup: %w", err)
	}
	return filterExisting(unsaved, current), nil
}

// computeUnsaved returns the objects that are not in a backup.
func computeUnsaved(remaining []RemainingObject, saved []*unstructured.Unstructured) []*RemainingObject {
	key := func(kind schema.GroupVersionKind, name string) string { return kind.GroupKind().String() + "/" + name }
	keys := sets.New[string]()
	for _, object := range saved {
		keys.Insert(key(object.GroupVersionKind(), object.GetName()))
	}
	var unsaved []*RemainingObject
	for i := range remaining {
		if !keys.Has(key(remaining[i].resourceType.GroupVersionKind(), remaining[i].Name)) {
			unsaved = append(unsaved, &remaining[i])
		}
	}
	return unsaved
}

// filterExisting returns the names of the objects that still exist. If some resource types cannot
// be read, it assumes that all objects still exist.
func filterExisting(objects []*RemainingObject, current *clusterState) []string {
	present := sets.New[string]()
	for i := range current.objects {
		present.Insert(current.objects[i].identity())
	}
	var names []string
	for _, object := range objects {
		if present.Has(object.identity()) || len(current.unread) > 0 {
			names = append(names, object.String())
		}
	}
	return names
}

// createFile writes the backup to a new file.
func createFile(name string, text []byte) error {
	err := files.Create(name, text)
	switch {
	case errors.Is(err, fs.ErrExist):
		return errBackupExists(name)
	case err != nil:
		return fmt.Errorf("failed to write the backup: %w", err)
	}
	return nil
}
