// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A namespace that was deleted and created again", Serial, func() {
	recreate := func(ctx context.Context, name string) {
		GinkgoHelper()
		content, namespace := wrappers.MakeConfigMap(name, "content"), &corev1.Namespace{}
		Expect(admin.Delete(ctx, content)).To(Succeed())
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
		namespace.Spec.Finalizers = nil
		Expect(admin.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
		Expect(admin.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
		// The API server rejects new objects until it has observed the new namespace.
		Eventually(func() error { return admin.Create(ctx, wrappers.MakeConfigMap(name, "content")) }).WithContext(ctx).Should(Succeed())
	}
	// window returns for how long an API server allows the deletion of an object in the new namespace.
	window := func(ctx context.Context, user *framework.User, name string) (allowed int, last time.Duration) {
		GinkgoHelper()
		start := time.Now()
		for ctx.Err() == nil {
			err := user.Delete(ctx, wrappers.MakeConfigMap(name, "content"), client.DryRunAll)
			if err != nil {
				Expect(err).To(BeRefused("terminating"))
				return allowed, last
			}
			allowed, last = allowed+1, time.Since(start)
		}
		return allowed, last
	}

	It("keeps its content", func(ctx context.Context) {
		namespace := makeTerminating(ctx)
		recreate(ctx, namespace.Name)
		allowed, last := window(ctx, operator, namespace.Name)
		AddReportEntry(fmt.Sprintf("the API server allowed %d deletions, the last after %s", allowed, last))
		Expect(operator.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))).To(BeRefused())
	})

	// The API server evaluates the namespace in its cache. The operator itself sends the UID of each object that it
	// has listed while the namespace was terminating.
	It("is not known to an API server whose watch is behind", func(ctx context.Context) {
		second := cluster.StartSecondAPIServer(ctx)
		through := second.As(operator)
		namespace := makeTerminating(ctx)
		Eventually(func() error {
			return through.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "content"), client.DryRunAll)
		}).WithContext(ctx).Should(Succeed())
		Expect(second.Pause()).To(Succeed())
		recreate(ctx, namespace.Name)
		Expect(second.Resume()).To(Succeed())
		allowed, last := window(ctx, through, namespace.Name)
		AddReportEntry(fmt.Sprintf("an API server that resumes allowed %d deletions, the last after %s", allowed, last))
	}, NodeTimeout(3*time.Minute))
})
