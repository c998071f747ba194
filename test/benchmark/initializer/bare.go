// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/initializers"
)

// measureBare measures a client that sends only the requests that cannot be avoided: for each namespace
// the creation, one patch for each initializer, and one write of the status. It stops the manager
// meanwhile. The policies remain, so each namespace gets the pending list.
func (r *outcome) measureBare(ctx context.Context, c *cluster, clients int) error {
	if err := c.manager.Stop(); err != nil {
		return err
	}
	initializer, err := newBareClient(filepath.Join(c.Dir, account+".kubeconfig"))
	if err != nil {
		return err
	}
	operator, err := newBareClient(filepath.Join(c.Dir, controlplane.ServiceAccount+".kubeconfig"))
	if err != nil {
		return err
	}
	first := c.created + 1
	c.created += r.atOnce
	began := time.Now()
	err = harness.InParallelWithLimit(ctx, clients, r.atOnce, func(ctx context.Context, i int) error {
		return c.initializeBare(ctx, initializer, operator, fmt.Sprintf(namespaceFormat, first+i))
	})
	r.bare = append(r.bare, time.Since(began))
	return errors.Join(err, c.startManager(ctx))
}

func newBareClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(controlplane.Unlimited(config))
}

func (c *cluster) initializeBare(
	ctx context.Context, initializer, operator kubernetes.Interface, name string,
) error {
	namespace, err := c.user.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	pending := namesOf(chainAtOnce)
	for i, initializerName := range pending {
		if err := initializers.Finish(ctx, initializer, namespace, initializerName); err != nil {
			return err
		}
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = strings.Join(pending[i+1:], ",")
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"conditions":[{"type":%q,"status":"False","reason":%q,`+
		`"lastTransitionTime":%q}]}}`, namespace.UID, v1alpha1.ConditionInitializing, v1alpha1.ReasonCompleted,
		time.Now().UTC().Format(time.RFC3339))
	_, err = operator.CoreV1().Namespaces().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("failed to update the status of namespace %q: %w", name, err)
	}
	return nil
}
