// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options define the content and the labels of the image.
type options struct {
	// root is the directory of the main module, and target is the package of the manager.
	root, target string
	// name is the name of the image, such as ghcr.io/owner/name:tag.
	name string
	// output is the path of the archive.
	output    string
	platforms []v1.Platform
	// version and revision are the values of the labels.
	version, revision string
	// created is the timestamp of all content.
	created time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run builds an archive and prints the digest of the image index, or pushes an archive.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "push" {
		return runPush(ctx, args[1:], out)
	}
	opts, err := parse(ctx, args)
	if err != nil {
		return err
	}
	images, err := buildImages(ctx, opts)
	if err != nil {
		return err
	}
	digest, err := writeArchive(opts, images)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Wrote %s: %s@%s\n", opts.output, opts.name, digest)
	return nil
}

// parse parses the flags, and reads missing values from the Git commit that is checked out in root.
func parse(ctx context.Context, args []string) (options, error) {
	var opts options
	var platforms, created string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&opts.root, "root", ".", "The directory of the main module.")
	flags.StringVar(&opts.target, "package", "./cmd", "The package of the manager in the main module.")
	flags.StringVar(&opts.name, "name", "", "The name of the image, such as ghcr.io/nslifecycle/nslifecycle:v0.1.0.")
	flags.StringVar(&opts.output, "output", "", "The path of the archive to write.")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "The platforms, separated by commas.")
	flags.StringVar(&opts.version, "version", "", "The version in the labels. If empty, the output of `git describe`.")
	flags.StringVar(&opts.revision, "revision", "", "The commit in the labels. If empty, HEAD.")
	flags.StringVar(&created, "created", os.Getenv("SOURCE_DATE_EPOCH"),
		"The timestamp of all content, in seconds since 1970. "+
			"The default is SOURCE_DATE_EPOCH or, if it is not set, the time of HEAD.")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if opts.name == "" || opts.output == "" || flags.NArg() > 0 {
		return options{}, errors.New("--name and --output are required, and no other arguments are allowed")
	}
	for _, name := range strings.Split(platforms, ",") {
		platform, err := v1.ParsePlatform(strings.TrimSpace(name))
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return options{}, fmt.Errorf("%q in --platforms is not of the form os/architecture", name)
		}
		opts.platforms = append(opts.platforms, *platform)
	}
	return opts, opts.describe(ctx, created)
}

// describe reads missing values from the commit.
func (o *options) describe(ctx context.Context, created string) error {
	for _, wanted := range []struct {
		value *string
		args  []string
	}{
		{&o.version, []string{"describe", "--always", "--dirty"}},
		{&o.revision, []string{"rev-parse", "HEAD"}},
		{&created, []string{"log", "-1", "--format=%ct"}},
	} {
		if *wanted.value != "" {
			continue
		}
		git := exec.CommandContext(ctx, "git", append([]string{"-C", o.root}, wanted.args...)...)
		answer, err := git.Output()
		if err != nil {
			return fmt.Errorf("failed to describe the commit with %q: %w; "+
				"outside a clone, set --version, --revision and --created", git.String(), err)
		}
		*wanted.value = strings.TrimSpace(string(answer))
	}
	seconds, err := strconv.ParseInt(created, 10, 64)
	if err != nil || seconds < 0 {
		return fmt.Errorf("%q is not a number of seconds since 1970: change --created or SOURCE_DATE_EPOCH", created)
	}
	o.created = time.Unix(seconds, 0).UTC()
	return nil
}
