// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceClient reads partial Namespaces from the API server.
type namespaceClient struct {
	client.Client
	live client.Client
}

// NewClient returns a client that never returns a partial Namespace from Get.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	cached, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	options.Cache = nil
	live, err := client.New(config, options)
	return &namespaceClient{cached, live}, err
}

// Get implements client.Reader.
func (c *namespaceClient) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	if err := c.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	namespace, ok := object.(*corev1.Namespace)
	if !ok || !IsPartial(namespace) {
		return nil
	}
	*namespace = corev1.Namespace{}
	return c.live.Get(ctx, key, namespace, options...)
}
