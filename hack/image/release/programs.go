// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nslifecycle/nslifecycle/hack/image/internal/binary"
)

// program is an executable that is released for several platforms.
type program struct {
	// name is the prefix of the archive names, binary is the name of the program in the archives, and
	// source is its package.
	name, binary, source string
}

var (
	// The archives of the plugin do not contain the link kubectl_complete-nslifecycle, since Krew
	// accepts only files and directories.
	plugin  = program{"kubectl-nslifecycle", "kubectl-nslifecycle", "./cmd/kubectl-nslifecycle"}
	manager = program{"nslifecycle-manager", "manager", "./cmd"}
)

const windows = "windows"

func (p program) archive(version string, on platform) string {
	name := fmt.Sprintf("%s_%s_%s_%s", p.name, version, on.os, on.arch)
	if on.os == windows {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// file returns the name of the program in the archive.
func (p program) file(on platform) string {
	if on.os == windows {
		return p.binary + ".exe"
	}
	return p.binary
}

// entry is a file in an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// writeProgram builds a program for a platform, and writes it and its bill of materials.
func writeProgram(ctx context.Context, opts options, program program, on platform) error {
	scratch, err := os.MkdirTemp("", "nslifecycle-release-")
	if err != nil {
		return fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	build := binary.Build{
		Root: opts.root, Package: program.source, OS: on.os, Arch: on.arch,
		Version: opts.version, Revision: opts.revision, Output: filepath.Join(scratch, program.file(on)),
	}
	if err := build.Run(ctx); err != nil {
		return err
	}
	bom, err := binary.Describe(build.Output, opts.version, opts.created)
	if err != nil {
		return err
	}
	built, err := os.ReadFile(build.Output)
	if err != nil {
		return fmt.Errorf("failed to read the program: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(opts.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("failed to read the license: %w", err)
	}
	archive := program.archive(opts.version, on)
	packed, err := pack(archive, opts.created, []entry{{"LICENSE", 0o644, license}, {program.file(on), 0o755, built}})
	if err != nil {
		return fmt.Errorf("failed to pack %s: %w", archive, err)
	}
	return errors.Join(writeFile(opts.path(archive), packed), writeFile(opts.path(archive+".cdx.json"), bom))
}

// pack creates a zip file or a compressed tar file, depending on the name.
func pack(name string, modified time.Time, entries []entry) ([]byte, error) {
	var packed bytes.Buffer
	var err error
	if filepath.Ext(name) == ".zip" {
		err = packZip(&packed, modified, entries)
	} else {
		err = packTar(&packed, modified, entries)
	}
	return packed.Bytes(), err
}

func packZip(out io.Writer, modified time.Time, entries []entry) error {
	writer := zip.NewWriter(out)
	for _, entry := range entries {
		header := &zip.FileHeader{Name: entry.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(os.FileMode(entry.mode))
		file, err := writer.CreateHeader(header)
		if err == nil {
			_, err = file.Write(entry.content)
		}
		if err != nil {
			return err
		}
	}
	return writer.Close()
}

// packTar writes a reproducible archive: the gzip header contains neither a time nor a name, and the
// files have no owner.
func packTar(out io.Writer, modified time.Time, entries []entry) error {
	compressed := gzip.NewWriter(out)
	writer := tar.NewWriter(compressed)
	for _, entry := range entries {
		err := writer.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: entry.name, Mode: entry.mode, Size: int64(len(entry.content)),
			ModTime: modified, Format: tar.FormatPAX,
		})
		if err == nil {
			_, err = writer.Write(entry.content)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(writer.Close(), compressed.Close())
}

func writeFile(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("failed to write a file of the release: %w", err)
	}
	return nil
}
