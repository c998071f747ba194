// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// privateMode makes a file accessible only to its owner, because it can contain Secrets.
const privateMode = 0o600

// Exists reports whether a name refers to a regular file, and not to a symbolic link to one.
func Exists(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// Replace replaces a file atomically, or creates it. It also writes to the streams of the process, such as
// /dev/stdout.
func Replace(name string, text []byte) error {
	if isStream(name) {
		return os.WriteFile(name, text, privateMode)
	}
	tree, err := OpenTree(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	defer tree.Close()
	return tree.Replace(filepath.Base(name), text, privateMode)
}

// isStream reports whether a name refers to an open file of the process, or discards what is written.
func isStream(name string) bool {
	name = filepath.ToSlash(filepath.Clean(name))
	return name == os.DevNull || name == "/dev/stdout" || name == "/dev/stderr" ||
		strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}

// Create writes a new file and syncs it, because it can soon be the only copy of its content. The error is
// fs.ErrExist if the name already exists, even as a symbolic link to a file that does not.
func Create(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateMode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close(), syncDirectory(filepath.Dir(name)))
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// syncDirectory syncs a directory, so that a new file survives a power failure. Windows neither supports nor needs
// this.
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
