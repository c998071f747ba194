// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of Namespaces in a page of ListLive.
const pageSize = 50

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

// ListLive calls visit with each Namespace in the API server. It never keeps more than one page of them.
func ListLive(ctx context.Context, live client.Reader, visit func(*corev1.Namespace)) error {
	for next := ""; ; {
		var page corev1.NamespaceList
		if err := live.List(ctx, &page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("failed to list namespaces: %w", err)
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
