// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// backUp writes everything that remains to a new file. It fails where something is not in
// the backup, unless the user has accepted that not everything can be read.
func (o *finalizeOptions) backUp(ctx context.Context, forcer *forcer, planned *plan) error {
	taken, err := backup.Collect(ctx, forcer.config, planned.Namespace, backup.Options{All: true, IncludeSecrets: true})
	if err != nil {
		return fmt.Errorf("backing up namespace %q: %w", planned.Namespace, err)
	}
	missing, err := forcer.whatIsMissing(ctx, planned.Remaining, taken.Objects)
	if err != nil {
		return err
	}
	if gaps := append(taken.Unread, missing...); len(gaps) > 0 {
		if !o.allowed.allowsUnread {
			return fmt.Errorf("the backup would not be complete (%s); %s accepts that, and --no-backup writes none",
				summarize(gaps), flagAllowUnread)
		}
		for _, gap := range gaps {
			o.warnf("Not in the backup: %s", gap)
		}
	}
	var text bytes.Buffer
	if err := backup.Write(&text, taken.Objects); err != nil {
		return err
	}
	if err := createFile(planned.Backup, text.Bytes(), privateMode); err != nil {
		return err
	}
	fmt.Fprintf(o.ErrOut, "\nBackup written to %s: %s, including the contents of Secrets. "+
		"To restore them, run: %s\n",
		planned.Backup, count(len(taken.Objects), "object"),
		shell.Command("kubectl apply --server-side -f %s", planned.Backup))
	return nil
}

// whatIsMissing names the objects that are not in a backup, and are still there: what has
// gone since the plan was made is no gap.
func (f *forcer) whatIsMissing(
	ctx context.Context, remaining []remnant, saved []*unstructured.Unstructured,
) ([]string, error) {
	missing := notSaved(remaining, saved)
	if len(missing) == 0 {
		return nil, nil
	}
	now, err := f.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking whether what is not in the backup is still there: %w", err)
	}
	return stillThere(missing, now), nil
}

// stillThere names those of some objects that have not gone. Where something cannot be read
// that is not known of any.
func stillThere(objects []*remnant, now *predicament) []string {
	present := map[types.UID]bool{}
	for i := range now.remnants {
		present[now.remnants[i].UID] = true
	}
	var names []string
	for _, object := range objects {
		if present[object.UID] || len(now.unread) > 0 {
			names = append(names, object.String())
		}
	}
	return names
}

// notSaved returns the objects that are not in a backup.
func notSaved(remaining []remnant, saved []*unstructured.Unstructured) []*remnant {
	type key struct {
		kind schema.GroupKind
		name string
	}
	isSaved := map[key]bool{}
	for _, object := range saved {
		isSaved[key{object.GroupVersionKind().GroupKind(), object.GetName()}] = true
	}
	var missing []*remnant
	for i := range remaining {
		kind := remaining[i].served.GroupVersionKind().GroupKind()
		if !isSaved[key{kind, remaining[i].Name}] {
			missing = append(missing, &remaining[i])
		}
	}
	return missing
}

// createFile writes a file that does not exist yet, and returns when it is on the disk:
// what it holds may be in no other place soon.
func createFile(name string, text []byte, mode os.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and is not overwritten; choose another file with --backup", name)
	}
	if err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close(), syncDirectory(filepath.Dir(name)))
	if err != nil {
		return errors.Join(fmt.Errorf("writing the backup: %w", err), os.Remove(name))
	}
	return nil
}

// syncDirectory makes sure that a new file is found again after a power failure. Windows
// does that by itself, and knows no other way.
func syncDirectory(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	directory, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
