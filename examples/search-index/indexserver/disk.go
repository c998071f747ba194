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

// writeIndex creates the directory of an index under a temporary name, and renames the directory
// when it is complete.
func (s *Store) writeIndex(made *index) error {
	scratch, err := os.MkdirTemp(s.dir, scratchPrefix)
	if err != nil {
		return fmt.Errorf("failed to create a directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(scratch, documentsDir), 0o700); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(scratch, indexFile), made.record); err != nil {
		return err
	}
	// A previous attempt might have failed after it renamed its directory.
	path := filepath.Join(s.dir, made.record.Name)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return rename(scratch, path)
}

// readIndices reads all indices, and removes incomplete data left by a previous process.
func (s *Store) readIndices() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(s.dir, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), scratchPrefix):
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		case entry.IsDir() && namePattern.MatchString(entry.Name()):
			found, err := readIndex(path)
			if err != nil {
				return err
			}
			// The deletion was recorded but not completed.
			if _, ok := s.deleted[found.record.Owner.UID]; ok {
				if err := os.RemoveAll(path); err != nil {
					return err
				}
				continue
			}
			s.indices[entry.Name()] = found
		}
	}
	return nil
}

func readIndex(dir string) (*index, error) {
	var record Index
	if err := readJSON(filepath.Join(dir, indexFile), &record); err != nil {
		return nil, err
	}
	found := newIndex(record)
	err := readFiles(filepath.Join(dir, documentsDir), func(path, _ string) error {
		var document Document
		if err := readJSON(path, &document); err != nil {
			return err
		}
		found.put(document)
		return nil
	})
	return found, err
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
		if strings.HasPrefix(entry.Name(), scratchPrefix) {
			err = os.Remove(path)
		} else {
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

// rename renames a file or directory durably. If it fails, the file might already have the new name.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
