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
)

// historyFile is what the plugin remembers between two runs.
const historyFile = "previous-namespaces.json"

// history remembers which namespace a context used before. Contexts of the same name in
// several kubeconfig files are told apart.
type history struct {
	kubeconfig, context string
}

// previousNamespaces are by kubeconfig file and context.
type previousNamespaces map[string]map[string]string

func newHistory(kubeconfig, context string) *history {
	if absolute, err := filepath.Abs(kubeconfig); err == nil {
		kubeconfig = absolute
	}
	return &history{kubeconfig: kubeconfig, context: context}
}

// read returns the namespace that the context used before.
func (h *history) read() (string, error) {
	path, err := historyPath()
	if err != nil {
		return "", err
	}
	all, err := readHistory(path)
	if err != nil {
		return "", err
	}
	previous := all[h.kubeconfig][h.context]
	if previous == "" {
		return "", fmt.Errorf("no namespace is known to have been used in context %q before; "+
			"name one: `%s use NAME`", h.context, displayName)
	}
	return previous, nil
}

// write remembers a namespace.
func (h *history) write(namespace string) error {
	path, err := historyPath()
	if err != nil {
		return err
	}
	all, err := readHistory(path)
	if err != nil {
		all = previousNamespaces{} // a file that cannot be read is of no use to anybody
	}
	if all[h.kubeconfig] == nil {
		all[h.kubeconfig] = map[string]string{}
	}
	all[h.kubeconfig][h.context] = namespace
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of %s: %w", path, err)
	}
	return writeFile(path, append(text, '\n'))
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
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return all, nil
}

// historyPath is in the user's directory for state, or that for caches where the system
// knows no other.
func historyPath() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("finding a directory to remember namespaces in: %w", err)
		}
	}
	return filepath.Join(dir, commandName, historyFile), nil
}
