// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// privateMode is for what only its owner may read: Secrets may be in a backup.
const privateMode = 0o600

// writeFile writes a file as a whole or not at all: a reader never sees half of it, and
// what was there before stays until then. A pipe or device is simply written to. The file
// is for its owner alone.
func writeFile(name string, text []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(name, text, privateMode)
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(privateMode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(file.Name()))
	}
	return nil
}

// count returns a number with a noun: 1 object, 2 objects.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
