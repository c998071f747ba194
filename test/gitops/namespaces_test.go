// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const protection = v1alpha1.LabelDeletionProtection

var _ = DescribeTable("kstatus of a namespace",
	func(ctx context.Context, reach func(ctx context.Context) *corev1.Namespace, want status.Status) {
		expectStatus(ctx, reach(ctx), want)
	},
	Entry("that is Initializing", func(ctx context.Context) *corev1.Namespace {
		return cluster.CreateInitializing(ctx, "initializing")
	}, status.InProgressStatus),
	// Waiting can help, so this is not a failure.
	Entry("that is Initializing, with a blocked initialization", func(ctx context.Context) *corev1.Namespace {
		restartManager(ctx, func(options *manager.Options) { options.DiagnosisProgressDeadline = time.Second })
		namespace := cluster.CreateInitializing(ctx, "blocked")
		expectCondition(ctx, namespace, v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue)
		return namespace
	}, status.InProgressStatus),
	Entry("that is Initializing, with an invalid result", func(ctx context.Context) *corev1.Namespace {
		namespace := cluster.CreateInitializing(ctx, "ignored")
		setResult(ctx, namespace, "invalid")
		return namespace
	}, status.InProgressStatus),
	Entry("that has Failed and is protected from deletion", func(ctx context.Context) *corev1.Namespace {
		namespace := createProtected(ctx, "kept")
		fail(ctx, namespace)
		return namespace
	}, status.FailedStatus),
	Entry("that is Initialized", func(ctx context.Context) *corev1.Namespace {
		namespace := cluster.CreateInitializing(ctx, "initialized")
		cluster.Finish(ctx, namespace.Name)
		return namespace
	}, status.CurrentStatus),
	Entry("that is Initialized, without an initializer that timed out", func(ctx context.Context) *corev1.Namespace {
		const name = "skipped.test.example.com"
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("skipped").Initializer(name, timeout(v1alpha1.FailurePolicyIgnore)))
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("skipped"))
		expectCondition(ctx, namespace, name+v1alpha1.ConditionInitializedSuffix, corev1.ConditionFalse)
		return namespace
	}, status.CurrentStatus),
	Entry("that never had initializers", func(ctx context.Context) *corev1.Namespace {
		return framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain"))
	}, status.CurrentStatus),
	Entry("that is Terminating", func(ctx context.Context) *corev1.Namespace {
		return createTerminating(ctx, "terminating")
	}, status.TerminatingStatus),
	// kstatus cannot report that a user must act: the deletion timestamp decides.
	Entry("that is Terminating, with a blocked deletion", func(ctx context.Context) *corev1.Namespace {
		restartManager(ctx, func(options *manager.Options) { options.DiagnosisProgressDeadline = time.Second })
		namespace := createTerminating(ctx, "remains")
		expectCondition(ctx, namespace, v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue)
		return namespace
	}, status.TerminatingStatus),
)

// This is the limit of conditions: the API server accepts none in the request that creates a namespace.
var _ = Describe("The namespace in the response to a creation", func() {
	It("is Current for kstatus, although it is Initializing", func(ctx context.Context) {
		result, err := status.Compute(toUnstructured(Default, cluster.CreateInitializing(ctx, "created")))
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Status).To(Equal(status.CurrentStatus))
	})
})

var _ = Describe("A failed namespace that is deleted", func() {
	It("is Failed for kstatus until it is Terminating", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "failed")
		expectStatus(ctx, namespace, status.InProgressStatus)
		fail(ctx, namespace)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		Eventually(func() (results []status.Status) {
			for _, version := range history.of(namespace.Name) {
				results = append(results, version.Status)
			}
			return slices.Compact(results)
			// The first version has no conditions.
		}).WithContext(ctx).Should(HaveExactElements(status.CurrentStatus, status.InProgressStatus, status.FailedStatus,
			status.TerminatingStatus))
	})
})

func timeout(policy v1alpha1.FailurePolicy) v1alpha1.InitializerSettings {
	return v1alpha1.InitializerSettings{TimeoutSeconds: ptr.To(int32(1)), FailurePolicy: policy}
}

// createProtected creates an initializing namespace that is not deleted if it fails. The test removes the protection
// when the spec ends.
func createProtected(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	cluster.Register(ctx, prefix, "absent.test.example.com")
	namespace := wrappers.MakeNamespace(framework.Unique(prefix)).Label(protection, "true").Obj()
	cluster.Ordinary.Creates(ctx, namespace)
	DeferCleanup(func(ctx context.Context) {
		Expect(patchMetadata(ctx, namespace, "labels", map[string]any{protection: nil})).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	})
	return namespace
}

// fail sets the result of the initialization to a failure.
func fail(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	setResult(ctx, namespace, `{"status":"Failure","reason":"Forbidden","message":"no budget"}`)
}

func setResult(ctx context.Context, namespace *corev1.Namespace, result string) {
	GinkgoHelper()
	Expect(patchMetadata(ctx, namespace, "annotations", map[string]any{
		v1alpha1.AnnotationInitializationResult: result,
	})).To(Succeed())
}

// patchMetadata patches labels or annotations as the initializer.
func patchMetadata(ctx context.Context, namespace *corev1.Namespace, field string, values map[string]any) error {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: values}})
	Expect(err).NotTo(HaveOccurred())
	return cluster.Initializer.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(patch))
}

// createTerminating creates a namespace and deletes it. An object with a finalizer remains until the spec ends.
func createTerminating(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique(prefix))
	remaining := wrappers.MakeConfigMap(namespace.Name, "remaining")
	remaining.Finalizers = []string{"test.example.com/absent"}
	cluster.Admin.Creates(ctx, remaining)
	cluster.Admin.Deletes(ctx, namespace)
	DeferCleanup(func(ctx context.Context) {
		cluster.Admin.Patches(ctx, remaining, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	})
	return namespace
}

// expectCondition waits until a namespace has a condition.
func expectCondition(
	ctx context.Context, namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType,
	conditionStatus corev1.ConditionStatus,
) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := cluster.GetNamespace(g, ctx, namespace.Name)
		condition := nsobject.FindCondition(current, conditionType)
		g.Expect(condition).NotTo(BeNil(), "%+v", current.Status.Conditions)
		g.Expect(condition.Status).To(Equal(conditionStatus), condition.Message)
	}).WithContext(ctx).Should(Succeed())
}
