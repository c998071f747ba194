// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// userName is the user who creates the namespaces and, in the measurement of early writes, writes
	// to them.
	userName = "bench-user"
	// setUpTimeout is the maximum duration of a step outside measurements.
	setUpTimeout = 3 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// cluster is the control plane of one contender, with the clients of the benchmark.
type cluster struct {
	*harness.Cluster
	admin client.Client
	// user sends requests as userName, and scraper those that are not counted.
	user     kubernetes.Interface
	scraper  rest.Interface
	meter    harness.Meter
	observer *observer
	// created is the number of created namespaces.
	created int
}

func startCluster(ctx context.Context, fsync bool) (*cluster, error) {
	plane, err := harness.StartCluster(ctx, fsync)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: plane}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) stop() error {
	if c.observer != nil {
		c.observer.stop()
	}
	return c.Stop()
}

func (c *cluster) prepare(ctx context.Context) error {
	userConfig, err := c.User(userName)
	if err != nil {
		return err
	}
	if c.admin, err = controlplane.NewClient(c.metered(c.Admin)); err != nil {
		return err
	}
	if c.user, err = kubernetes.NewForConfig(c.metered(userConfig)); err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	config := c.metered(c.Admin)
	config.ContentType = runtime.ContentTypeProtobuf
	watcher, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	scraper, err := kubernetes.NewForConfig(controlplane.Unlimited(c.Admin))
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	c.scraper = scraper.CoreV1().RESTClient()
	// Early writes must not depend on the RoleBinding: the user can write ConfigMaps everywhere.
	if err := c.grant(ctx, rbacv1.Subject{APIGroup: rbacGroup, Kind: rbacv1.UserKind, Name: userName}, userName,
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"create"},
		}); err != nil {
		return err
	}
	c.observer, err = startObserver(ctx, watcher)
	return err
}

// metered returns a configuration without a client-side rate limit whose requests are counted.
func (c *cluster) metered(config *rest.Config) *rest.Config {
	config = controlplane.Unlimited(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return c.meter.Wrap(next) })
	return config
}

// grant grants cluster-wide permissions.
func (c *cluster) grant(ctx context.Context, subject rbacv1.Subject, name string, rules ...rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: name}
	return c.create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{subject},
	})
}

func (c *cluster) create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := c.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("failed to create %T %q: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// createServiceAccount creates a ServiceAccount with cluster-wide permissions.
func (c *cluster) createServiceAccount(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.create(ctx, account); err != nil {
		return err
	}
	return c.grant(ctx, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, name, rules...)
}

// nextNames returns names for namespaces.
func (c *cluster) nextNames(count int) []string {
	c.created += count
	return namesUntil(c.created)[c.created-count:]
}

// namesUntil returns the names of the first namespaces.
func namesUntil(count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("bench-ns-%06d", i+1)
	}
	return names
}

// createNamespace creates a namespace that gets the objects.
func (c *cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.user.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{teamLabel: "a"}, Annotations: map[string]string{ownerAnnotation: userName},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	return nil
}

// createNamespaces creates namespaces with concurrent requests, and returns the first error.
func (c *cluster) createNamespaces(ctx context.Context, names []string, clients int) error {
	var group errgroup.Group
	group.SetLimit(clients)
	for _, name := range names {
		group.Go(func() error { return c.createNamespace(ctx, name) })
	}
	return group.Wait()
}

// poll waits until a condition is met, outside measurements.
func poll(ctx context.Context, what string, isMet func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, setUpTimeout)
	defer cancel()
	var last error
	for {
		ok, err := isMet(ctx)
		if err == nil && ok {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		if err := harness.Sleep(ctx, pollInterval); err != nil {
			return fmt.Errorf("failed to wait for %s: %w", what, errors.Join(err, last))
		}
	}
}
