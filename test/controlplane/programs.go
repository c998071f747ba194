// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"os/exec"
)

// The programs of the project, for Build.
const (
	ManagerProgram = "./cmd"
	PluginProgram  = "./cmd/kubectl-nslifecycle"
	// The two of the example search-index.
	IndexServerProgram      = "./examples/search-index/cmd/index-server"
	SearchControllerProgram = "./examples/search-index/cmd/search-controller"
)

// Build builds a program of the checkout at root, which is Root for this one, to a path.
func Build(ctx context.Context, root, program, path string) error {
	command := exec.CommandContext(ctx, "go", "build", "-o", path, program)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s in %s: %w: %s", program, root, err, output)
	}
	return nil
}

// FreeAddress returns an address of this machine that is not in use.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
