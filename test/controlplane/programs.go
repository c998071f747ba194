// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The programs of the project, for Build.
const (
	ManagerProgram = "./cmd"
	PluginProgram  = "./cmd/kubectl-nslifecycle"
	// The programs of examples/search-index.
	IndexServerProgram      = "./examples/search-index/cmd/index-server"
	SearchControllerProgram = "./examples/search-index/cmd/search-controller"
)

// Build builds a program of the module at root, such as Root(), and writes it to path. It copies
// the file from the directory bin/test of the repository, which all test processes share. The flags are additional
// flags of go build.
func Build(ctx context.Context, root, program, path string, flags ...string) error {
	repository, module := Root(), ""
	if relative, err := filepath.Rel(repository, root); err != nil || !filepath.IsLocal(relative) {
		repository = root // another checkout
	} else if relative != "." {
		module = relative + "/"
	}
	dir := filepath.Join(repository, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("failed to create %s: %w", dir, err)
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// go build does not link the file again if it is up to date.
	linked := filepath.Join(dir, strings.ReplaceAll(module+strings.TrimPrefix(program, "./"), "/", "-"))
	if len(flags) > 0 {
		linked += "-with-flags"
	}
	args := slices.Concat([]string{"build", "-ldflags=-s -w", "-o", linked}, flags, []string{program})
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to build %s in %s: %w: %s", program, root, err, output)
	}
	// Copy the file in another process. Otherwise, a child process that starts during the copy
	// would inherit the open file, and a file that is open for writing cannot be executed.
	if output, err := exec.CommandContext(ctx, "cp", linked, path).CombinedOutput(); err != nil {
		return fmt.Errorf("failed to copy %s: %w: %s", linked, err, output)
	}
	return nil
}

// lock locks a file against other processes until the returned function is called.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to open %s: %w", path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// FreeAddress returns an address of this machine that is not in use. Its port is below those that Linux chooses for
// connections and for listeners without a port, so another program does not use it by chance.
func FreeAddress() (string, error) {
	const first, last, attempts = 20000, 32000, 100
	var err error
	for range attempts {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		var listener net.Listener
		if listener, err = net.Listen("tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("failed to find a free port: %w", err)
}
