// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	bystanderName = "bystander"
	// bystanderPause is the time between two requests.
	bystanderPause = 10 * time.Millisecond
)

// bystander is another client of the API server. It does not belong to a privileged group, so API
// Priority and Fairness applies to it.
type bystander struct {
	client kubernetes.Interface
}

// newBystander creates a client for a user who can access only one ConfigMap in the default
// namespace.
func newBystander(ctx context.Context, c *cluster) (*bystander, error) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: bystanderName}
	_, err := c.client.CoreV1().ConfigMaps(meta.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta},
		metav1.CreateOptions{})
	_, roleError := c.client.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{bystanderName},
			Verbs: []string{"get", "update"},
		}},
	}, metav1.CreateOptions{})
	_, bindingError := c.client.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: bystanderName},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: bystanderName}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, roleError, bindingError); err != nil {
		return nil, fmt.Errorf("failed to set up another client: %w", err)
	}
	config, err := c.User(bystanderName)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create another client: %w", err)
	}
	return &bystander{client: client}, nil
}

// start sends one request after another until the returned function is called. That function
// returns the duration of each request, and can be called more than once. A nil bystander sends no
// requests.
func (b *bystander) start(ctx context.Context) func() ([]time.Duration, error) {
	if b == nil {
		return func() ([]time.Duration, error) { return nil, nil }
	}
	over := make(chan struct{})
	var latencies []time.Duration
	var err error
	var group sync.WaitGroup
	group.Go(func() {
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bystanderName}}
		configMaps := b.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		for number := 0; err == nil; number++ {
			began := time.Now()
			if number%2 == 0 {
				_, err = configMaps.Get(ctx, bystanderName, metav1.GetOptions{})
			} else {
				settings.Data = map[string]string{"number": began.String()}
				_, err = configMaps.Update(ctx, settings, metav1.UpdateOptions{})
			}
			latencies = append(latencies, time.Since(began))
			select {
			case <-over:
				return
			case <-time.After(bystanderPause):
			}
		}
	})
	return sync.OnceValues(func() ([]time.Duration, error) {
		close(over)
		group.Wait()
		if err != nil {
			return nil, fmt.Errorf("failed to send a request as another client: %w", err)
		}
		return latencies, nil
	})
}
