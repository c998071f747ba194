// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package files writes the files of the plugin, and reads the files that it finds in directories.
//
// A directory can come from another person, for example in a repository. Therefore, the plugin neither reads nor
// writes through a symbolic link in it, or a pipe or a device: the content could be a Secret of the user, and could be
// printed. A path that the user passes is followed when it is read, because tools such as the kubelet mount files as
// symbolic links, and not when it is written.
package files
