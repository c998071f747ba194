// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// annotations returns the body of a merge patch that sets an annotation.
func annotations(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

func pending(list string) string { return annotations(v1alpha1.AnnotationPendingInitializers, list) }

// rejected are merge patches of a namespace whose pending list is "a.test.example.com,b.test.example.com". Ordinary users
// must not send any of them. If there is a message, initializers must not either. test/admission sends more changes, also
// with PUT and to subresources, and test/security other types of patches.
var rejected = map[string]struct{ patch, message string }{
	"changing the label":        {`{"metadata":{"labels":{"nslifecycle.dev/initializing":"false"}}}`, "must be \"true\""},
	"emptying the list":         {patch: pending("")},
	"removing an entry":         {patch: pending("b.test.example.com")},
	"adding to the list":        {pending("a.test.example.com,b.test.example.com,c.test.example.com"), "can only be removed"},
	"reordering the list":       {pending("b.test.example.com,a.test.example.com"), "can only be removed"},
	"duplicating an entry":      {pending("a.test.example.com,a.test.example.com"), "can only be removed"},
	"replacing an entry":        {pending("a.test.example.com,x.test.example.com"), "can only be removed"},
	"adding a space":            {pending("a.test.example.com, b.test.example.com"), "can only be removed"},
	"changing the requester":    {annotations(v1alpha1.AnnotationRequestedBy, "mallory"), "are immutable"},
	"changing the initializers": {annotations(v1alpha1.AnnotationInitializers, "a.test.example.com"), "are immutable"},
	"adding a template":         {annotations(v1alpha1.AnnotationSelectedTemplates, "team"), "are immutable"},
	"setting a failure":         {patch: annotations(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`)},
	"removing the label but not the list": {patch: `{"metadata":{"labels":{"nslifecycle.dev/initializing":null},` +
		`"annotations":{"nslifecycle.dev/pending-initializers":"b.test.example.com"}}}`},
}

var _ = Describe("The guard", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		cluster.Register(ctx, "guard", "a.test.example.com", "b.test.example.com")
		namespace = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
	})

	merge := func(ctx context.Context, user client.Client, namespace *corev1.Namespace, patch string) error {
		return user.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(patch))
	}

	It("rejects changes by an ordinary user, and those that no user can make", func(ctx context.Context) {
		for name, change := range rejected {
			By(name)
			err := merge(ctx, cluster.Ordinary, namespace, change.patch)
			if change.message == "are immutable" {
				Expect(err).To(BeDeniedBy("guard"))
			} else {
				Expect(err).To(BeForbiddenBy("guard", `user "`+framework.OrdinaryUser+`"`,
					`initialization of namespace "`+namespace.Name+`"`))
			}
			if change.message != "" {
				Expect(merge(ctx, cluster.Initializer, namespace, change.patch)).To(BeDeniedBy("guard", change.message))
			}
		}
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(framework.PendingOf(now)).To(Equal("a.test.example.com,b.test.example.com"))
		Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Expect(now.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
		Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializationResult))
	})

	DescribeTable("allows only an initializer to remove entries from the list and complete the initialization",
		func(ctx context.Context, patchType types.PatchType, subresource, format string) {
			mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
			send := func(user *framework.User, list string) error {
				request := user.Clientset().CoreV1().RESTClient().Patch(patchType).Resource("namespaces").Name(mine.Name)
				if subresource != "" {
					request = request.SubResource(subresource)
				}
				if patchType == types.ApplyPatchType {
					request = request.Param("fieldManager", "test").Param("force", "true")
				}
				return request.Body(fmt.Appendf(nil, format, list)).Do(ctx).Error()
			}
			Expect(send(cluster.Ordinary, "b.test.example.com")).To(BeForbiddenBy("guard"))
			Expect(send(cluster.Initializer, "b.test.example.com")).To(Succeed())
			now := cluster.GetNamespace(Default, ctx, mine.Name)
			Expect(framework.PendingOf(now)).To(Equal("b.test.example.com"))
			Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))

			By("rejecting the restoration of an entry")
			Expect(send(cluster.Initializer, "a.test.example.com,b.test.example.com")).To(BeDeniedBy("guard"))

			By("emptying the list")
			Expect(send(cluster.Ordinary, "")).To(BeForbiddenBy("guard"))
			Expect(send(cluster.Initializer, "")).To(Succeed())
			now = cluster.GetNamespace(Default, ctx, mine.Name)
			Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
			Expect(now.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))

			By("rejecting attempts by any user to restore the state")
			for _, user := range []*framework.User{cluster.Ordinary, cluster.Initializer, cluster.Admin} {
				Expect(send(user, "a.test.example.com")).To(BeDeniedBy("guard"))
				for _, patch := range []string{
					`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"}}}`,
					`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},` +
						`"annotations":{"nslifecycle.dev/pending-initializers":"a.test.example.com"}}}`,
					annotations(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`),
					annotations(v1alpha1.AnnotationRequestedBy, "mallory"),
				} {
					Expect(merge(ctx, user, mine, patch)).To(BeDeniedBy("guard"))
				}
			}
		},
		Entry("by a merge patch", types.MergePatchType, "", mergeList),
		Entry("by a merge patch on /status", types.MergePatchType, "status", mergeList),
		Entry("by a strategic merge patch", types.StrategicMergePatchType, "", mergeList),
		Entry("by a JSON patch", types.JSONPatchType, "", replaceList),
		Entry("by a JSON patch on /status", types.JSONPatchType, "status", replaceList),
		Entry("by server-side apply", types.ApplyPatchType, "", mergeList),
		Entry("by server-side apply on /status", types.ApplyPatchType, "status", mergeList),
	)

	It("rejects the label without a list, even from an administrator", func(ctx context.Context) {
		mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
		cluster.Finish(ctx, mine.Name)
		cluster.Finish(ctx, mine.Name)
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "label", "namespace", mine.Name,
			"nslifecycle.dev/initializing=true")
		Expect(err).To(BeDeniedBy("guard", "both must be absent otherwise"))
	})

	It("allows other changes by ordinary users", func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "label", "namespace", namespace.Name, "team=a")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "namespace", namespace.Name, "example.com/note=x")
		Expect(err).NotTo(HaveOccurred())
	})

	It("rejects the completion of a failed initialization", func(ctx context.Context) {
		// One request makes both changes, because the operator deletes a failed namespace.
		mine := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("guard"))
		Expect(merge(ctx, cluster.Initializer, mine, `{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":"",`+
			`"nslifecycle.dev/initialization-result":"{\"kind\":\"Status\",\"status\": \"Failure\"}"}}}`)).
			To(BeDeniedBy("guard", "its initialization cannot complete"))
	})

	It("rejects an update with an old resource version", func(ctx context.Context) {
		stale := cluster.GetNamespace(Default, ctx, namespace.Name)
		stale.ResourceVersion = "1"
		stale.Annotations[v1alpha1.AnnotationPendingInitializers] = "b.test.example.com"
		Expect(cluster.Initializer.Update(ctx, stale)).To(Satisfy(apierrors.IsConflict))
	})
})

// Patches that set the pending list.
const (
	mergeList = `{"apiVersion":"v1","kind":"Namespace",` +
		`"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":%q}}}`
	replaceList = `[{"op":"add","path":"/metadata/annotations/nslifecycle.dev~1pending-initializers","value":%q}]`
)
