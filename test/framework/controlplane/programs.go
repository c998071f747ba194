// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
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
// the file from the directory bin/test of the repository, which all test processes share.
func Build(ctx context.Context, root, program, path string) error {
	repository, module := Root(), ""
	if relative, err := filepath.Rel(repository, root); err != nil || !filepath.IsLocal(relative) {
		repository = root // another checkout
	} else if relative != "." {
		module = relative + "/"
	}
	dir := filepath.Join(repository, "bin", "test")
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// go build does not link the file again if it is up to date.
	linked := filepath.Join(dir, strings.ReplaceAll(module+strings.TrimPrefix(program, "./"), "/", "-"))
	command := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", linked, program)
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("failed to create the directory of %s: %w", path, err)
	}
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

// Process is a running program.
type Process struct {
	command *exec.Cmd
	// ended is closed when the process exits; err is then its exit error, or nil.
	ended chan struct{}
	err   error
}

// StartProcess starts a program, which runs until Stop or Kill is called and writes to output.
func StartProcess(output io.Writer, path string, args ...string) (*Process, error) {
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = output, output
	// Run the process in its own process group, so that Ctrl-C interrupts only its parent, which
	// then stops it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", path, err)
	}
	running := &Process{command: command, ended: make(chan struct{})}
	go func() {
		running.err = command.Wait()
		close(running.ended)
	}()
	return running, nil
}

// Ended returns a channel that is closed when the process exits.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill kills the process to simulate a crash.
func (p *Process) Kill() error {
	err := p.command.Process.Kill()
	<-p.ended
	return err
}

// Stop terminates the process and waits until it exits. It returns an error if the process has
// already exited or does not exit cleanly.
func (p *Process) Stop() error {
	name := filepath.Base(p.command.Path)
	select {
	case <-p.ended:
		return fmt.Errorf("%s exited unexpectedly: %w", name, p.err)
	default:
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("failed to stop %s: %w", name, err)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("failed to stop %s: %w", name, p.err)
		}
		return nil
	case <-time.After(stopTimeout):
	}
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", name, stopTimeout), p.Kill())
}
