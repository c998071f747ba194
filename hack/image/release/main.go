// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release writes all files of a release, except signatures, to a directory:
//
//	kubectl-nslifecycle_<version>_<os>_<arch>.tar.gz   the kubectl plugin; .zip for Windows
//	nslifecycle-manager_<version>_<os>_<arch>.tar.gz   the manager
//	<either archive>.cdx.json                          its bill of materials
//	nslifecycle-image_<version>.tar                    the image, which already exists
//	install.yaml                                       the complete installation, with the digest of the image
//	nslifecycle-<version without v>.tgz                the Helm chart
//	krew-nslifecycle.yaml                              the plugin manifest for a Krew index
//	SHA256SUMS                                         the checksums of all files above
//
// The same commit, Go release and version result in identical files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// versions matches the versions that Go, Helm and container registries accept: a semantic version
// without build metadata, since an image tag cannot contain a plus sign.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

type options struct {
	// root is the directory of the main module.
	root string
	// output is the output directory, which already contains the archive of the image.
	output string
	// version is the version of the release, such as v0.1.0, and revision is the commit.
	version, revision string
	// image is the name of the image, without a tag.
	image string
	// created is the timestamp of all content.
	created   time.Time
	platforms []platform
}

type platform struct{ os, arch string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	for _, program := range []program{plugin, manager} {
		for _, platform := range opts.platforms {
			if err := writeProgram(ctx, opts, program, platform); err != nil {
				return err
			}
		}
	}
	for _, write := range []func(options) error{writeManifest, writeChart, writeKrew, writeChecksums} {
		if err := write(opts); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "Wrote release %s to %s.\n", opts.version, opts.output)
	return nil
}

func parse(args []string) (options, error) {
	var opts options
	var platforms string
	var created int64
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&opts.root, "root", ".", "The directory of the main module.")
	flags.StringVar(&opts.output, "output", "", "The output directory, which must contain the archive of the image.")
	flags.StringVar(&opts.version, "version", "", "The version, such as v0.1.0.")
	flags.StringVar(&opts.revision, "revision", "", "The commit.")
	flags.StringVar(&opts.image, "image", "ghcr.io/nslifecycle/nslifecycle", "The name of the image, without a tag.")
	flags.Int64Var(&created, "created", -1, "The timestamp of all content, in seconds since 1970.")
	flags.StringVar(&platforms, "platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64",
		"The platforms of the programs, separated by commas.")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if !versions.MatchString(opts.version) {
		return options{}, fmt.Errorf("%q is not a version such as v0.1.0 or v0.2.0-rc.1", opts.version)
	}
	if opts.output == "" || opts.revision == "" || created < 0 || flags.NArg() > 0 {
		return options{}, errors.New("--output, --revision and --created are required, and no other arguments are allowed")
	}
	for _, name := range strings.Split(platforms, ",") {
		system, arch, found := strings.Cut(name, "/")
		if !found || system == "" || arch == "" {
			return options{}, fmt.Errorf("%q in --platforms is not of the form os/architecture", name)
		}
		opts.platforms = append(opts.platforms, platform{os: system, arch: arch})
	}
	opts.created = time.Unix(created, 0).UTC()
	return opts, nil
}

// path returns the path of a file in the release.
func (o options) path(name string) string { return filepath.Join(o.output, name) }

func (o options) imageArchive() string { return o.path("nslifecycle-image_" + o.version + ".tar") }
