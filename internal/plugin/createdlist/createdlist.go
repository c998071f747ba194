// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package createdlist

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxNamespaces is the maximum number of namespaces in a list.
	maxNamespaces = 200
	// prefix precedes the name of the namespace in the name of a file: some names are devices on Windows.
	prefix = "namespace-"

	directoryMode, fileMode = 0o700, 0o600
)

// Namespace is a namespace that the plugin has created.
type Namespace struct {
	Name string
	UID  types.UID
}

// List contains the namespaces that the plugin has created in a cluster as one user.
type List struct{ directory string }

// Of returns the list of a user in the cluster with the URL of an API server. It fails without a home directory.
func Of(server, user string) (*List, error) {
	parent, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(server + "\n" + user))
	return &List{directory: filepath.Join(parent, "nslifecycle", "created", hex.EncodeToString(hash[:8]))}, nil
}

// Add records a namespace. If there are more than maxNamespaces, it removes the oldest ones.
func (l *List) Add(namespace Namespace) error {
	if err := os.MkdirAll(l.directory, directoryMode); err != nil {
		return err
	}
	if err := os.WriteFile(l.file(namespace.Name), []byte(namespace.UID), fileMode); err != nil {
		return err
	}
	entries, err := l.entries()
	if err != nil || len(entries) <= maxNamespaces {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.FileInfo) int {
		// The new file might have the same time as others.
		isNew := func(info fs.FileInfo) int {
			if info.Name() == prefix+namespace.Name {
				return 1
			}
			return 0
		}
		return cmp.Or(isNew(a)-isNew(b), a.ModTime().Compare(b.ModTime()))
	})
	var errs []error
	for _, entry := range entries[:len(entries)-maxNamespaces] {
		errs = append(errs, remove(filepath.Join(l.directory, entry.Name())))
	}
	return errors.Join(errs...)
}

// Namespaces returns the recorded namespaces, sorted by name, and an error about those that cannot be read.
func (l *List) Namespaces() ([]Namespace, error) {
	entries, err := l.entries()
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	var namespaces []Namespace
	var errs []error
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(l.directory, entry.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // Another command has removed it.
		case err != nil:
			errs = append(errs, err)
		default:
			namespaces = append(namespaces, Namespace{
				Name: strings.TrimPrefix(entry.Name(), prefix), UID: types.UID(content),
			})
		}
	}
	return namespaces, errors.Join(errs...)
}

// Remove removes a namespace, unless another one with the same name has been recorded since.
func (l *List) Remove(namespace Namespace) error {
	switch content, err := os.ReadFile(l.file(namespace.Name)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case types.UID(content) != namespace.UID:
		return nil
	}
	return remove(l.file(namespace.Name))
}

func (l *List) file(name string) string { return filepath.Join(l.directory, prefix+name) }

// remove removes a file if it exists.
func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// entries returns the files of the list, sorted by name.
func (l *List) entries() ([]fs.FileInfo, error) {
	found, err := os.ReadDir(l.directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the names of created namespaces: %w", err)
	}
	var entries []fs.FileInfo
	for _, entry := range found {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		info, err := entry.Info()
		if err == nil {
			entries = append(entries, info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return entries, nil
}
