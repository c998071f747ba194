// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// account is the ServiceAccount of the templates.
const account = "provisioner"

var (
	cluster *framework.Cluster
	// history contains all versions of all namespaces.
	history *recorder
)

func TestGitOps(t *testing.T) {
	framework.RunSuite(t, "GitOps tools")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.Make(ctx, "helm")
	cluster = framework.Start(ctx)
	cluster.Install(ctx, "default")
	cluster.AddTemplateAccount(ctx, account)
	cluster.StartManager(ctx)
	history = startRecorder(ctx)
	// The API server recognizes the parameter kind of the policies for templates after some time.
	Eventually(func() error {
		return cluster.Admin.Create(ctx, newTemplate("probe"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
}, NodeTimeout(15*time.Minute))

// No namespace may be Current for kstatus while it is Initializing or Failed, in any version that has the condition.
var _ = AfterEach(func() { Expect(history.findEarly()).To(BeEmpty()) })

// restartManager replaces the manager until the spec ends.
func restartManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	cluster.PauseManager()
	cluster.StartManager(ctx, changes...)
}

// toUnstructured returns the form of an object in which GitOps tools read it.
func toUnstructured(g Gomega, object client.Object) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	g.Expect(err).NotTo(HaveOccurred())
	kind, err := apiutil.GVKForObject(object, cluster.Admin.Scheme())
	g.Expect(err).NotTo(HaveOccurred())
	result := &unstructured.Unstructured{Object: content}
	result.SetGroupVersionKind(kind)
	return result
}

// compute returns the result of kstatus for the current version of an object.
func compute(g Gomega, ctx context.Context, object client.Object) *status.Result {
	current := toUnstructured(g, object)
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(object), current)).To(Succeed())
	result, err := status.Compute(current)
	g.Expect(err).NotTo(HaveOccurred())
	return result
}

// expectStatus waits until kstatus has a result for an object, and expects that it remains.
func expectStatus(ctx context.Context, object client.Object, want status.Status) {
	GinkgoHelper()
	check := func(g Gomega) {
		result := compute(g, ctx, object)
		g.Expect(result.Status).To(Equal(want), result.Message)
	}
	Eventually(check).WithContext(ctx).Should(Succeed())
	Consistently(check).WithContext(ctx).WithTimeout(300 * time.Millisecond).Should(Succeed())
}

// expectStatusAtOnce expects a result that the object must have already.
func expectStatusAtOnce(ctx context.Context, object client.Object, want status.Status) {
	GinkgoHelper()
	result := compute(Default, ctx, object)
	Expect(result.Status).To(Equal(want), result.Message)
}
