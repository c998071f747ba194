// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
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
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(strings.TrimSpace(text))
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return options{}, fmt.Errorf("%q in --platforms is not of the form os/architecture", text)
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

// runPush pushes an archive and prints the digest of the image index.
func runPush(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: image push ARCHIVE NAME, such as dist/image.tar ghcr.io/nslifecycle/nslifecycle:v0.1.0")
	}
	tag, err := name.NewTag(args[1])
	if err != nil {
		return fmt.Errorf("failed to parse the name of the image: %w", err)
	}
	digest, err := push(ctx, args[0], tag)
	if err != nil {
		return fmt.Errorf("failed to push %s to %s: %w", args[0], tag, err)
	}
	fmt.Fprintf(out, "%s@%s\n", tag.Repository.Name(), digest)
	return nil
}

// push writes the images, then their bills of materials, and finally the tag, so that a client that
// pulls the tag finds all of this content. It uses the credentials of `docker login`. It returns an
// error if the tag already refers to another image.
func push(ctx context.Context, archive string, tag name.Tag) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "nslifecycle-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := extract(archive, dir); err != nil {
		return v1.Hash{}, fmt.Errorf("failed to unpack the archive: %w", err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return v1.Hash{}, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	if len(manifest.Manifests) == 0 || !manifest.Manifests[0].MediaType.IsIndex() {
		return v1.Hash{}, errors.New("the archive does not start with an image index; create it with make image-archive")
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return v1.Hash{}, err
	}
	digest := manifest.Manifests[0].Digest

	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := checkTag(tag, digest, options); err != nil {
		return v1.Hash{}, err
	}
	if err := remote.WriteIndex(tag.Digest(digest.String()), index, options...); err != nil {
		return v1.Hash{}, err
	}
	for _, descriptor := range manifest.Manifests[1:] {
		artifact, err := top.Image(descriptor.Digest)
		if err != nil {
			return v1.Hash{}, err
		}
		if err := remote.Write(tag.Digest(descriptor.Digest.String()), artifact, options...); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest, remote.Tag(tag, index, options...)
}

// checkTag returns an error if the tag refers to a different image.
func checkTag(tag name.Tag, digest v1.Hash, options []remote.Option) error {
	existing, err := remote.Head(tag, options...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read the tag: %w", err)
	}
	if existing.Digest != digest {
		return fmt.Errorf("the tag already refers to %s, not %s: use another tag", existing.Digest, digest)
	}
	return nil
}

// extract unpacks an archive. os.Root confines all files to the directory.
func extract(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.FromSlash(header.Name)
		if header.Typeflag == tar.TypeDir {
			err = root.MkdirAll(path, 0o755)
		} else {
			err = extractFile(root, path, reader)
		}
		if err != nil {
			return fmt.Errorf("failed to write %s: %w", header.Name, err)
		}
	}
}

func extractFile(root *os.Root, path string, content io.Reader) error {
	file, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
