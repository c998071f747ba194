// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// errNotRegular returns the error about a name that does not refer to a regular file.
func errNotRegular(name string, mode fs.FileMode) error {
	kind := "not a regular file"
	switch {
	case mode&fs.ModeSymlink != 0:
		kind = "a symbolic link"
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	}
	return fmt.Errorf("%s is %s; only regular files are read and written", name, kind)
}

// Tree is a directory that the user named. Its methods accept paths in it, and only regular files that are reached
// without a symbolic link.
type Tree struct {
	root *os.Root
}

// OpenTree opens a directory. Symbolic links in the path of the directory itself are followed.
func OpenTree(directory string) (*Tree, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	return &Tree{root: root}, nil
}

// Close closes the directory.
func (t *Tree) Close() error { return t.root.Close() }

// Read returns the content of a file.
func (t *Tree) Read(name string) ([]byte, error) {
	expected, err := t.stat(name)
	if err != nil {
		return nil, err
	}
	file, err := t.root.Open(name)
	if err != nil {
		return nil, t.describe(name, err)
	}
	defer file.Close()
	// Another process could have replaced the file since.
	if opened, err := file.Stat(); err != nil || !os.SameFile(expected, opened) {
		return nil, fmt.Errorf("failed to read %s: it was replaced", t.path(name))
	}
	return io.ReadAll(file)
}

// Replace replaces a file atomically, or creates it. A hard link to the previous file is not changed.
func (t *Tree) Replace(name string, text []byte, mode fs.FileMode) error {
	if _, err := t.stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary := filepath.Join(filepath.Dir(name),
		"."+filepath.Base(name)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	file, err := t.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return t.describe(name, err)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = t.root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(t.describe(name, err), t.root.Remove(temporary))
	}
	return nil
}

// Remove deletes a file if it exists.
func (t *Tree) Remove(name string) error {
	_, err := t.stat(name)
	if err == nil {
		err = t.root.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stat returns an error unless a name refers to a regular file that is reached without a symbolic link.
func (t *Tree) stat(name string) (fs.FileInfo, error) {
	elements := strings.Split(filepath.Clean(name), string(filepath.Separator))
	for i := range elements {
		path := filepath.Join(elements[:i+1]...)
		info, err := t.root.Lstat(path)
		if err != nil {
			return nil, t.describe(path, err)
		}
		if isLast := i == len(elements)-1; isLast && info.Mode().IsRegular() {
			return info, nil
		} else if isLast || !info.IsDir() {
			return nil, errNotRegular(t.path(path), info.Mode())
		}
	}
	return nil, errNotRegular(t.path(name), fs.ModeIrregular)
}

func (t *Tree) path(name string) string { return filepath.Join(t.root.Name(), name) }

func (t *Tree) describe(name string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	return fmt.Errorf("failed to access %s: %w", t.path(name), err)
}
