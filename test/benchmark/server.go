// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// prefix is the name prefix of all measured namespaces.
	prefix = "bench-ns-"
	// writesNamespace contains the ConfigMaps. The benchmark creates it before it installs nslifecycle,
	// so the namespace is never initialized.
	writesNamespace = "bench-writes"
	// updatesNamespace is the namespace that the benchmark updates. It is never initialized.
	updatesNamespace = "bench-updates"
	// userName is the user who sends the measured requests.
	userName = "bench-user"
	// parallel is the number of concurrent requests outside measurements.
	parallel = 8
)

// server is a control plane and its clients.
type server struct {
	*harness.Cluster
	admin kubernetes.Interface
	user  kubernetes.Interface
	// created is the number of created objects, which makes their names unique.
	created int
}

// startServer starts a control plane with an ordinary user and a namespace to write to.
func startServer(ctx context.Context, fsync bool) (*server, error) {
	cluster, err := harness.StartCluster(ctx, fsync)
	if err != nil {
		return nil, err
	}
	s := &server{Cluster: cluster}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return s, nil
}

func (s *server) prepare(ctx context.Context) error {
	userConfig, err := s.User(userName)
	if err != nil {
		return err
	}
	if s.admin, err = newClient(s.Admin); err != nil {
		return err
	}
	if s.user, err = newClient(userConfig); err != nil {
		return err
	}
	if err := s.grant(ctx, userName, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userName},
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"},
			Verbs: []string{"create", "get", "list", "watch", "update"},
		}, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "delete"},
		}); err != nil {
		return err
	}
	for _, name := range []string{writesNamespace, updatesNamespace} {
		_, err := s.admin.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("failed to create namespace %q: %w", name, err)
		}
	}
	return nil
}

// newClient returns a client without a client-side rate limit.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(controlplane.Unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return client, nil
}

// grant grants cluster-wide permissions to the subject.
func (s *server) grant(ctx context.Context, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) error {
	_, err := s.admin.RbacV1().ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create ClusterRole %q: %w", name, err)
	}
	_, err = s.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{subject},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create ClusterRoleBinding %q: %w", name, err)
	}
	return nil
}

// createNamespace returns a request that creates a different namespace each time.
func (s *server) createNamespace() request {
	return func(ctx context.Context) error {
		_, err := s.user.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.nextName()}}, metav1.CreateOptions{})
		return err
	}
}

func (s *server) nextName() string {
	s.created++
	return fmt.Sprintf("%s%06d", prefix, s.created)
}

// updateNamespace returns a request that updates an annotation of the same namespace each time. The
// first request, during the warm-up, only reads the namespace.
func (s *server) updateNamespace() request {
	namespaces := s.user.CoreV1().Namespaces()
	var namespace *corev1.Namespace
	count := 0
	return func(ctx context.Context) error {
		var err error
		if namespace == nil {
			namespace, err = namespaces.Get(ctx, updatesNamespace, metav1.GetOptions{})
			return err
		}
		count++
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, "example.com/count", fmt.Sprint(count))
		namespace, err = namespaces.Update(ctx, namespace, metav1.UpdateOptions{})
		return err
	}
}

// createConfigMap returns a request that creates a different ConfigMap each time.
func (s *server) createConfigMap() request {
	return func(ctx context.Context) error {
		_, err := s.user.CoreV1().ConfigMaps(writesNamespace).Create(ctx, newConfigMap(s.nextName()), metav1.CreateOptions{})
		return err
	}
}

// updateConfigMap returns a request that updates the same ConfigMap each time. The first request,
// during the warm-up, creates the ConfigMap.
func (s *server) updateConfigMap() request {
	configMaps := s.user.CoreV1().ConfigMaps(writesNamespace)
	var configMap *corev1.ConfigMap
	count := 0
	return func(ctx context.Context) error {
		var err error
		if configMap == nil {
			configMap, err = configMaps.Create(ctx, newConfigMap(s.nextName()), metav1.CreateOptions{})
			return err
		}
		count++
		configMap.Data["count"] = fmt.Sprint(count)
		configMap, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
		return err
	}
}

// createAndDeleteConfigMap returns two requests, which create and delete a ConfigMap.
func (s *server) createAndDeleteConfigMap() request {
	create := s.createConfigMap()
	return func(ctx context.Context) error {
		if err := create(ctx); err != nil {
			return err
		}
		name := fmt.Sprintf("%s%06d", prefix, s.created)
		return s.user.CoreV1().ConfigMaps(writesNamespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"count": "0", "text": strings.Repeat("nothing in particular ", 20)},
	}
}

// removeNamespaces deletes and finalizes all measured namespaces, which are empty. It removes their
// namespace finalizer because no kube-controller-manager is running.
func (s *server) removeNamespaces(ctx context.Context) error {
	list, err := s.admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("failed to list the namespaces to remove: %w", err)
	}
	measured := slices.DeleteFunc(list.Items, func(namespace corev1.Namespace) bool {
		return !strings.HasPrefix(namespace.Name, prefix)
	})
	return harness.InParallelWithLimit(ctx, parallel, len(measured), func(ctx context.Context, i int) error {
		return s.removeNamespace(ctx, &measured[i])
	})
}

func (s *server) removeNamespace(ctx context.Context, namespace *corev1.Namespace) error {
	err := s.admin.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
	if err == nil {
		namespace.ResourceVersion = ""
		namespace.Spec.Finalizers = nil
		_, err = s.admin.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to remove namespace %q: %w", namespace.Name, err)
	}
	return nil
}
