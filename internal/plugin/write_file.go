// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// privateMode makes a file accessible only to its owner.
const privateMode = 0o600

// isRegularFile reports whether a name refers to a file that is neither a pipe nor a device.
func isRegularFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// writeFile replaces a file atomically. Only the owner can access the file, because a backup can
// contain Secrets. If the name refers to a pipe or a device, writeFile writes to it directly.
func writeFile(name string, text []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(name, text, privateMode)
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(privateMode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("failed to write %s: %w", name, err), os.Remove(file.Name()))
	}
	return nil
}
