// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nslifecycle/nslifecycle/internal/plugin/files"
)

// historyFile stores the previous namespace of each context.
const historyFile = "previous-namespaces.json"

// namespaceHistory stores the previous namespace of a context. It distinguishes between contexts
// with the same name in different kubeconfig files.
type namespaceHistory struct {
	kubeconfig, context string
}

// previousNamespaces contains the previous namespace by kubeconfig file and context.
type previousNamespaces map[string]map[string]string

func newNamespaceHistory(kubeconfig, context string) *namespaceHistory {
	if absolute, err := filepath.Abs(kubeconfig); err == nil {
		kubeconfig = absolute
	}
	return &namespaceHistory{kubeconfig: kubeconfig, context: context}
}

// read returns the previous namespace of the context, or "" if it is not known.
func (h *namespaceHistory) read() (string, error) {
	path, err := historyPath()
	if err != nil {
		return "", err
	}
	all, err := readHistory(path)
	return all[h.kubeconfig][h.context], err
}

// write stores the previous namespace of the context.
func (h *namespaceHistory) write(namespace string) error {
	path, err := historyPath()
	if err != nil {
		return err
	}
	all, err := readHistory(path)
	if err != nil {
		all = previousNamespaces{} // Overwrite an invalid file.
	}
	if all[h.kubeconfig] == nil {
		all[h.kubeconfig] = map[string]string{}
	}
	all[h.kubeconfig][h.context] = namespace
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("failed to encode %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("failed to create the directory of %s: %w", path, err)
	}
	return files.Replace(path, append(text, '\n'))
}

func readHistory(path string) (previousNamespaces, error) {
	all := previousNamespaces{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read %s: %w", path, err)
	}
	return all, nil
}

// historyPath returns the path of the history file in the user's state directory or, if
// XDG_STATE_HOME is not set, in the cache directory.
func historyPath() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("failed to find the state directory: %w", err)
		}
	}
	return filepath.Join(dir, commandName, historyFile), nil
}
