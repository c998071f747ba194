// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// readIndices reads all indices, and completes recorded deletions.
func (s *Store) readIndices() error {
	return readFiles(s.dir, func(path, name string) error {
		var found index
		if err := readJSON(path, &found); err != nil {
			return err
		}
		if _, ok := s.deleted[found.Record.Owner.UID]; ok {
			return remove(path)
		}
		s.indices[name] = &found
		return nil
	})
}

func (s *Store) readDeleted() error {
	return readFiles(filepath.Join(s.dir, deletedDir), func(path, uid string) error {
		var when time.Time
		if err := readJSON(path, &when); err != nil {
			return err
		}
		s.deleted[uid] = when
		return nil
	})
}

// readFiles calls read for each file in a directory, with the file's name without its extension,
// and removes incomplete files left by a previous process.
func readFiles(dir string, read func(path, name string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case entry.IsDir():
		case strings.HasPrefix(entry.Name(), scratchPrefix):
			err = os.Remove(path)
		default:
			err = read(path, strings.TrimSuffix(entry.Name(), ".json"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeJSON replaces a file atomically and durably.
func writeJSON(path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("failed to encode %s: %w", path, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), scratchPrefix)
	if err != nil {
		return fmt.Errorf("failed to create a file: %w", err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("failed to write %s: %w", path, err), os.Remove(file.Name()))
	}
	return rename(file.Name(), path)
}

func readJSON(path string, content any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, content); err != nil {
		return fmt.Errorf("failed to decode %s: %w", path, err)
	}
	return nil
}

// rename renames a file durably. If it fails, the file might already have the new name.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// remove removes a file durably, unless a previous attempt has removed it.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
