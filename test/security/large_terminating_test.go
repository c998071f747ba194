// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A Namespace with 60,000 labels", func() {
	// The admission policies must evaluate the writes of the operator within the timeout of a request.
	It("is finalized", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("labels"))
		before := namespace.DeepCopy()
		for i := range 60000 {
			namespace.Labels[fmt.Sprintf("k%05d", i)] = ""
		}
		Expect(cluster.Admin.Patch(ctx, namespace, client.MergeFrom(before))).To(Succeed())
		content := wrappers.MakeConfigMap(namespace.Name, "content")
		cluster.Admin.Creates(ctx, content)
		cluster.Admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, NodeTimeout(8*time.Minute))
})
