// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// maxRecorded is the maximum number of recorded namespaces that are read, maxParallelReads of them in parallel.
	maxRecorded      = 200
	maxParallelReads = 8
)

// listMine returns the Namespaces that the user has created and a label selector selects, sorted by name. If the user
// cannot list namespaces, only recorded ones are known.
func (s *session) listMine(ctx context.Context, selector string) ([]corev1.Namespace, error) {
	user, err := s.userName(ctx)
	if err != nil {
		return nil, err
	}
	// Without the record, annotations contain the creators of some namespaces.
	var recorded map[string]types.UID
	list, err := s.createdList(user)
	if err == nil {
		recorded, err = list.read()
	}
	if err != nil {
		s.warnf("%v", err)
	}
	var namespaces []corev1.Namespace
	all, err := s.listNamespaces(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case err == nil:
		namespaces = all.Items
	case apierrors.IsForbidden(err):
		printf(s.ErrOut, "User %q cannot list namespaces: only those that %s has created on this computer are known.",
			user, displayName)
		if namespaces, err = s.readRecorded(ctx, recorded, selector); err != nil {
			s.warnf("%v", err)
		}
		err = ctx.Err()
	}
	return slices.DeleteFunc(namespaces, func(namespace corev1.Namespace) bool {
		// The record decides if no annotation contains the creator, because nslifecycle or initializers and templates did
		// not exist.
		if creator, ok := namespace.Annotations[v1alpha1.AnnotationRequestedBy]; ok {
			return creator != user
		}
		return recorded[namespace.Name] != namespace.UID
	}), err
}

// readRecorded returns the recorded Namespaces that a label selector selects, sorted by name.
func (s *session) readRecorded(
	ctx context.Context, recorded map[string]types.UID, selector string,
) ([]corev1.Namespace, error) {
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	client, err := s.namespaces()
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(recorded))
	found := make([]corev1.Namespace, len(names))
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(ctx, maxParallelReads, len(names), func(i int) {
		namespace, err := client.Get(ctx, names[i], metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			errs[i] = fmt.Errorf("failed to get namespace %q: %w", names[i], err)
		case selected.Matches(labels.Set(namespace.Labels)):
			found[i] = *namespace
		}
	})
	isMissing := func(namespace corev1.Namespace) bool { return namespace.Name == "" }
	return slices.DeleteFunc(found, isMissing), errors.Join(append(errs, ctx.Err())...)
}

// createdList is the path of the file with the namespaces that the plugin has created in a cluster as one user. Each
// line has a name and a UID. Lines are only appended, so concurrent commands do not overwrite each other's changes.
type createdList string

// createdList returns the list of a user. It fails without a home directory.
func (s *session) createdList(user string) (createdList, error) {
	config, err := s.restConfig()
	if err != nil {
		return "", err
	}
	parent, err := os.UserConfigDir()
	hash := sha256.Sum256([]byte(config.Host + "\n" + user))
	return createdList(filepath.Join(parent, "nslifecycle", "created", hex.EncodeToString(hash[:8]))), err
}

func (l createdList) add(namespace *corev1.Namespace) error {
	if err := os.MkdirAll(filepath.Dir(string(l)), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, namespace.Name, namespace.UID)
	return errors.Join(err, file.Close())
}

// read returns the UIDs of the maxRecorded namespaces that were added last, by name.
func (l createdList) read() (map[string]types.UID, error) {
	content, err := os.ReadFile(string(l))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("failed to read the names of created namespaces: %w", err)
	}
	recorded := map[string]types.UID{}
	for _, line := range slices.Backward(strings.Split(string(content), "\n")) {
		name, uid, isComplete := strings.Cut(line, " ")
		if _, isOlder := recorded[name]; isComplete && !isOlder && len(recorded) < maxRecorded {
			recorded[name] = types.UID(uid)
		}
	}
	return recorded, nil
}
