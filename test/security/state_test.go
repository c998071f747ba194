// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// A creator must not be able to make another user remove the state of an initialization with a
// later request.
var _ = Describe("A request that omits the state of an initialization", Ordered, ContinueOnFailure, func() {
	const manager = "gitops"

	BeforeAll(func(ctx context.Context) {
		cluster.Register(ctx, "omitted", "a.test.example.com", "b.test.example.com")
	}, NodeTimeout(5*time.Minute))

	// create creates a namespace as the ordinary user. If add is not nil, it changes the namespace
	// before it is created.
	create := func(ctx context.Context, add func(namespace *corev1.Namespace)) *corev1.Namespace {
		GinkgoHelper()
		namespace := wrappers.MakeNamespace(framework.Unique("omitted")).Obj()
		if add != nil {
			add(namespace)
		}
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		return namespace
	}
	// lastApplied returns the annotation that kubectl apply would have added if it had set the
	// state.
	lastApplied := func() string {
		annotations := map[string]string{}
		for _, key := range stateKeys {
			annotations[key] = "x"
		}
		text := mustEncode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"labels": map[string]string{v1alpha1.LabelInitializing: "true"}, "annotations": annotations,
		}})
		return string(text)
	}
	manifest := func(name string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n  labels: {team: a}\n"
	}
	// fields returns managed fields that contain the given labels and annotations.
	fields := func(labels, annotations []string) *metav1.FieldsV1 {
		owned := map[string]any{"f:labels": map[string]any{}, "f:annotations": map[string]any{}}
		for _, key := range labels {
			owned["f:labels"].(map[string]any)["f:"+key] = map[string]any{}
		}
		for _, key := range annotations {
			owned["f:annotations"].(map[string]any)["f:"+key] = map[string]any{}
		}
		return metav1.NewFieldsV1(string(mustEncode(map[string]any{"f:metadata": owned})))
	}

	for applier, user := range map[string]func() *framework.User{
		"an administrator": func() *framework.User { return cluster.Admin },
		"an initializer":   func() *framework.User { return cluster.Initializer },
		"an ordinary user": func() *framework.User { return cluster.Ordinary },
	} {
		It("does not initialize a namespace with a forged last-applied-configuration when applied by "+applier, func(ctx context.Context) {
			namespace := create(ctx, func(namespace *corev1.Namespace) {
				namespace.Annotations[corev1.LastAppliedConfigAnnotation] = lastApplied()
			})
			_, err := cluster.KubectlWithInput(ctx, user().Config, manifest(namespace.Name), "apply", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
			Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).To(HaveKeyWithValue("team", "a"))
			expectUnchanged(ctx, namespace)
		}, SpecTimeout(5*time.Minute))

		It("does not initialize a namespace with forged managedFields when applied by "+applier, func(ctx context.Context) {
			namespace := create(ctx, func(namespace *corev1.Namespace) {
				namespace.ManagedFields = []metav1.ManagedFieldsEntry{{
					Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
					Time: ptr.To(metav1.Now()), FieldsV1: fields([]string{v1alpha1.LabelInitializing}, stateKeys),
				}}
			})
			_, err := cluster.KubectlWithInput(ctx, user().Config, manifest(namespace.Name),
				"apply", "--server-side", "--force-conflicts", "--field-manager="+manager, "-f", "-")
			Expect(err).NotTo(HaveOccurred())
			expectUnchanged(ctx, namespace)
		}, SpecTimeout(5*time.Minute))
	}

	It("does not initialize a namespace whose state a user owns through server-side apply", func(ctx context.Context) {
		namespace := create(ctx, nil)
		adopt := mustEncode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": namespace.Name, "labels": map[string]string{v1alpha1.LabelInitializing: "true"},
			"annotations": map[string]string{
				v1alpha1.AnnotationPendingInitializers: namespace.Annotations[v1alpha1.AnnotationPendingInitializers],
				v1alpha1.AnnotationInitializers:        namespace.Annotations[v1alpha1.AnnotationInitializers],
				v1alpha1.AnnotationRequestedBy:         namespace.Annotations[v1alpha1.AnnotationRequestedBy],
			},
		}})
		Expect(cluster.Ordinary.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.ApplyPatchType, adopt),
			&client.PatchOptions{FieldManager: manager})).To(Succeed())
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest(namespace.Name),
			"apply", "--server-side", "--force-conflicts", "--field-manager="+manager, "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		expectUnchanged(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not initialize a namespace to which a user added a last-applied-configuration after its creation", func(ctx context.Context) {
		namespace := create(ctx, nil)
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "namespace", namespace.Name,
			corev1.LastAppliedConfigAnnotation+"="+lastApplied())
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest(namespace.Name), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		expectUnchanged(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not remove the requester of an initialized namespace", func(ctx context.Context) {
		namespace := create(ctx, nil)
		cluster.Finish(ctx, namespace.Name)
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(HaveCondition(
			v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized))
		_, err := cluster.KubectlWithInput(ctx, cluster.Ordinary.Config, manifest(namespace.Name), "replace", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(now.Labels).To(And(HaveKeyWithValue("team", "a"), Not(HaveKey(v1alpha1.LabelInitializing))))
		Expect(now.Annotations).To(And(
			HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser),
			HaveKeyWithValue(v1alpha1.AnnotationInitializers, "a.test.example.com,b.test.example.com"),
			Not(HaveKey(v1alpha1.AnnotationPendingInitializers))))
	}, SpecTimeout(5*time.Minute))

	It("does not remove a failure result", func(ctx context.Context) {
		namespace := create(ctx, func(namespace *corev1.Namespace) {
			namespace.Labels[v1alpha1.LabelDeletionProtection] = "true" // This keeps the operator from deleting the namespace.
		})
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(`{"status":"Failure"}`))).To(Succeed())
		emptied := fmt.Sprintf(`{"metadata":{"annotations":{%q:"",%q:null}}}`,
			v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult)
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(emptied))).
			To(BeDeniedBy("guard", "has failed"))
		_, err := cluster.Kubectl(ctx, cluster.Initializer.Config, "annotate", "namespace", namespace.Name,
			v1alpha1.AnnotationInitializationResult+"-")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).To(
			HaveKeyWithValue(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`))

		By("removing the result explicitly with the empty string")
		_, err = cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "--overwrite", "namespace", namespace.Name,
			v1alpha1.AnnotationInitializationResult+"=")
		Expect(err).To(BeDeniedBy("guard"))
		_, err = cluster.Kubectl(ctx, cluster.Initializer.Config, "annotate", "--overwrite", "namespace", namespace.Name,
			v1alpha1.AnnotationInitializationResult+"=")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializationResult))
		expectUnchanged(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("completes the initialization only if it sends an empty list", func(ctx context.Context) {
		namespace := create(ctx, nil)
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "--overwrite", "namespace", namespace.Name,
			v1alpha1.AnnotationPendingInitializers+"=")
		Expect(err).To(BeDeniedBy("guard"))
		_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "annotate", "namespace", namespace.Name,
			v1alpha1.AnnotationPendingInitializers+"-")
		Expect(err).NotTo(HaveOccurred())
		expectUnchanged(ctx, namespace)
		_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "annotate", "--overwrite", "namespace", namespace.Name,
			v1alpha1.AnnotationPendingInitializers+"=")
		Expect(err).NotTo(HaveOccurred())
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
		expectInitializedEarly(ctx)
	}, SpecTimeout(5*time.Minute))
})

// expectInitializedEarly expects the violation of a holder of the verb initialize who removes all initializers at once.
// SECURITY.md describes this limit.
func expectInitializedEarly(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.Observation.CollectViolations(ctx)).To(HaveExactElements(HaveField("Invariant", observer.InitializedEarly)))
}

var _ = Describe("The status of an initializing namespace", Ordered, ContinueOnFailure, func() {
	It("does not let users or initializers change the start of a timeout", func(ctx context.Context) {
		const slow = "slow.test.example.com"
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("turn").Initializer(slow,
			v1alpha1.InitializerSettings{
				TimeoutSeconds: ptr.To(int32(86400)), FailurePolicy: v1alpha1.FailurePolicyIgnore,
			}))
		forged := slow + " 2020-01-01T00:00:00Z"
		By("creating a namespace with it")
		request := wrappers.MakeNamespace(framework.Unique("turn")).Annotation(v1alpha1.AnnotationTurnStartedAt, forged).Obj()
		namespace := request.DeepCopy()
		cluster.Ordinary.Creates(ctx, namespace)
		var recorded string
		Eventually(func(g Gomega) {
			recorded = cluster.GetNamespace(g, ctx, namespace.Name).Annotations[v1alpha1.AnnotationTurnStartedAt]
			g.Expect(recorded).To(HavePrefix(slow + " "))
		}).WithContext(ctx).Should(Succeed())
		Expect(recorded).NotTo(Equal(forged))

		By("setting, changing and removing it")
		annotation := func(value string) client.Patch {
			return framework.MergePatch(`{"metadata":{"annotations":{"nslifecycle.dev/turn-started-at":` + value + `}}}`)
		}
		replace := client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/metadata/annotations/nslifecycle.dev~1turn-started-at","value":""}]`))
		for _, user := range []*framework.User{cluster.Ordinary, cluster.Initializer} {
			for _, patch := range []client.Patch{
				annotation(`"` + forged + `"`), annotation(`"` + slow + ` 2099-01-01T00:00:00Z"`), annotation(`""`), replace,
			} {
				Expect(user.Patch(ctx, namespace.DeepCopy(), patch)).To(BeDeniedBy("guard"))
				Expect(user.Status().Patch(ctx, namespace.DeepCopy(), patch)).To(BeDeniedBy("guard"))
			}
			By("removing it, which the policy complete or its webhook restores")
			Expect(user.Patch(ctx, namespace.DeepCopy(), annotation("null"))).To(Succeed())
			now := cluster.GetNamespace(Default, ctx, namespace.Name)
			Expect(now.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationTurnStartedAt, recorded))
		}

		By("setting it on a namespace without a deadline")
		other := cluster.GetNamespace(Default, ctx, metav1.NamespacePublic)
		Expect(cluster.Ordinary.Patch(ctx, other, annotation(`"`+forged+`"`))).To(Succeed())
		Expect(other.Annotations).NotTo(HaveKey(v1alpha1.AnnotationTurnStartedAt), "complete or its webhook removes it")

		By("forging the condition of a skipped initializer")
		Expect(writeCondition(ctx, namespace, "slow.test.example.com/Initialized", v1alpha1.ReasonTimedOut, "m")).
			To(BeForbiddenBy("guard", "conditions of nslifecycle"))
		By("exceeding the maximum size of the status")
		Expect(writeCondition(ctx, namespace, "corp.example.com/Ready", "R", strings.Repeat("m", 64<<10))).
			To(BeForbiddenBy("guard", "64 KiB"))
		By("reporting progress, which does not require the initialize verb")
		Expect(writeCondition(ctx, namespace, "slow.test.example.com/Initialized", "Retrying", "m")).To(Succeed())
		expectUnchanged(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

})

var _ = Describe("The conditions Ready and Stalled", Ordered, ContinueOnFailure, func() {
	// Each is the body of a patch of the status.
	attempts := map[string]struct {
		patchType types.PatchType
		body      string
	}{
		"become ready":              {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Forged"}]}}`},
		"change the message":        {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","message":"mine"}]}}`},
		"change the time":           {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`},
		"remove Ready":              {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`},
		"become stalled":            {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Stalled","status":"True"}]}}`},
		"remove all conditions":     {types.MergePatchType, `{"status":{"conditions":null}}`},
		"replace all conditions":    {types.MergePatchType, `{"status":{"conditions":[{"type":"example.com/A","status":"True"}]}}`},
		"remove the status":         {types.MergePatchType, `{"status":null}`},
		"add a second Ready":        {types.JSONPatchType, `[{"op":"add","path":"/status/conditions/0","value":{"type":"Ready","status":"True"}}]`},
		"replace the first by ours": {types.JSONPatchType, `[{"op":"replace","path":"/status/conditions/0","value":{"type":"Ready","status":"True"}}]`},
		"forge a finding":           {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"nslifecycle.dev/DeletionBlocked","status":"True"}]}}`},
		"forge a skip":              {types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"x.example.com/Initialized","status":"False","reason":"TimedOut"}]}}`},
		"apply another Ready": {types.ApplyPatchType,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%NAME%"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`},
	}

	// These send a list without any condition of the initialization.
	restored := []string{"remove all conditions", "replace all conditions", "remove the status"}

	expectProtected := func(ctx context.Context, namespace *corev1.Namespace) {
		before := cluster.GetNamespace(Default, ctx, namespace.Name).Status.Conditions
		for name, attempt := range attempts {
			switch {
			case slices.Contains(restored, name):
				Expect(patchStatusWith(ctx, namespace, attempt.patchType, attempt.body)).To(Succeed(), name)
			case attempt.patchType != types.ApplyPatchType:
				Expect(patchStatusWith(ctx, namespace, attempt.patchType, attempt.body)).To(BeDeniedBy("guard", "conditions of nslifecycle"), name)
			}
		}
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Status.Conditions).To(ContainElements(before))
		Expect(patchStatusWith(ctx, namespace, types.StrategicMergePatchType,
			`{"status":{"conditions":[{"type":"example.com/Ready","status":"True"}]}}`)).To(Succeed(), "a condition of another controller")
	}

	It("are not taken from a new namespace, and cannot be changed while it is initializing", func(ctx context.Context) {
		cluster.Register(ctx, "ready", "ready.test.example.com")
		namespace := wrappers.MakeNamespace(framework.Unique("ready")).
			Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: corev1.ConditionTrue}).Obj()
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Status.Conditions).To(BeEmpty())
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(HaveCondition(
			v1alpha1.ConditionReady, corev1.ConditionFalse, v1alpha1.ReasonInitializing, "ready.test.example.com (1 of 1)"))
		expectProtected(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	own := func(namespace *corev1.Namespace) []corev1.NamespaceCondition {
		return slices.DeleteFunc(slices.Clone(namespace.Status.Conditions), func(c corev1.NamespaceCondition) bool {
			return c.Type != v1alpha1.ConditionReady && c.Type != v1alpha1.ConditionInitializing && c.Type != v1alpha1.ConditionStalled
		})
	}

	It("are restored in the request in an initialized namespace, also if a client sends its own list", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("ready"))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(HaveCondition(
			v1alpha1.ConditionReady, corev1.ConditionTrue, v1alpha1.ReasonInitialized))
		before := cluster.GetNamespace(Default, ctx, namespace.Name)
		for name, attempt := range attempts {
			after := namespace.DeepCopy()
			body := strings.ReplaceAll(attempt.body, "%NAME%", namespace.Name)
			options := []client.SubResourcePatchOption{}
			if attempt.patchType == types.ApplyPatchType {
				options = append(options, client.ForceOwnership, client.FieldOwner("writer"))
			}
			patch := client.RawPatch(attempt.patchType, []byte(body))
			Expect(cluster.Ordinary.Status().Patch(ctx, after, patch, options...)).To(Succeed(), name)
			Expect(own(after)).To(ConsistOf(own(before)), name)
		}
		mine := corev1.NamespaceCondition{Type: "example.com/Mine", Status: "True"}
		older := cluster.GetNamespace(Default, ctx, namespace.Name)
		older.ResourceVersion, older.Status.Conditions = "", []corev1.NamespaceCondition{mine}
		Expect(cluster.Ordinary.Status().Update(ctx, older)).To(Succeed())
		Expect(own(older)).To(ConsistOf(own(before)))
		Expect(older.Status.Conditions).To(ContainElement(mine))
	}, SpecTimeout(5*time.Minute))

	It("are written again by the operator if a holder of initialize changes them, whom no policy stops", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("ready")).Obj()
		namespace.Finalizers = []string{"test.example.com/keep"}
		cluster.Ordinary.Creates(ctx, namespace)
		DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, cluster.Admin, namespace.DeepCopy()) })
		expectWritten := func(status corev1.ConditionStatus, reason string) {
			GinkgoHelper()
			for _, conditions := range []string{`null`, `[{"type":"Ready","status":"Unknown","reason":"Forged"}]`} {
				Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(And(
					HaveCondition(v1alpha1.ConditionReady, status, reason),
					HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized)))
				after := namespace.DeepCopy()
				Expect(cluster.Admin.Status().Patch(ctx, after, framework.MergePatch(`{"status":{"conditions":`+conditions+`}}`))).To(Succeed())
				Expect(own(after)).NotTo(ContainElement(HaveField("Reason", reason)))
			}
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(And(
				HaveCondition(v1alpha1.ConditionReady, status, reason),
				HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized)))
		}
		expectWritten(corev1.ConditionTrue, v1alpha1.ReasonInitialized)
		cluster.Admin.Deletes(ctx, namespace)
		expectWritten(corev1.ConditionFalse, v1alpha1.ReasonTerminating)
	}, SpecTimeout(5*time.Minute))
})

// writeCondition sets a condition of a namespace as the ordinary user.
func writeCondition(ctx context.Context, namespace *corev1.Namespace, conditionType, reason, message string) error {
	GinkgoHelper()
	return patchStatusWith(ctx, namespace, types.StrategicMergePatchType,
		string(mustEncode(map[string]any{"status": map[string]any{"conditions": []map[string]string{
			{"type": conditionType, "status": "False", "reason": reason, "message": message},
		}}})))
}

// patchStatusWith patches the status of a namespace as the ordinary user.
func patchStatusWith(ctx context.Context, namespace *corev1.Namespace, patchType types.PatchType, body string) error {
	return cluster.Ordinary.Status().Patch(ctx, namespace.DeepCopy(), client.RawPatch(patchType, []byte(body)))
}

// A creator must not be able to make a namespace so large that its state cannot be updated.
var _ = Describe("A large namespace", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("full").
			Initializer("full.test.example.com", v1alpha1.InitializerSettings{}))
	}, NodeTimeout(5*time.Minute))

	big := strings.Repeat("x", 100<<10)
	fillings := map[string]func(namespace *corev1.Namespace){
		"annotations": func(namespace *corev1.Namespace) {
			maps.Copy(namespace.Annotations, map[string]string{"example.com/a": big, "example.com/b": big})
		},
		"wide characters": func(namespace *corev1.Namespace) {
			namespace.Annotations["example.com/a"] = strings.Repeat("\U0001F600", 50<<10)
		},
		"an owner reference": func(namespace *corev1.Namespace) {
			namespace.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: big + big, UID: "u"}}
		},
		"finalizers": func(namespace *corev1.Namespace) {
			for i := range 1000 {
				namespace.Finalizers = append(namespace.Finalizers,
					fmt.Sprintf("%s.example.com/%d-%s", strings.Repeat("x", 60), i, strings.Repeat("x", 55)))
			}
			namespace.Finalizers = append(namespace.Finalizers, "example.com/"+strings.Repeat("x", 63))
		},
	}
	for name, fill := range fillings {
		It("is rejected if it exceeds the size limit with "+name, func(ctx context.Context) {
			namespace := wrappers.MakeNamespace(framework.Unique("full")).Obj()
			fill(namespace)
			Expect(cluster.Ordinary.Create(ctx, namespace)).To(BeDeniedBy("guard", "128 KiB"))
		}, SpecTimeout(5*time.Minute))

		It("cannot exceed the size limit with "+name+" during its initialization", func(ctx context.Context) {
			namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("full"))
			before := namespace.DeepCopy()
			fill(namespace)
			Expect(cluster.Ordinary.Patch(ctx, namespace, client.MergeFrom(before))).To(BeDeniedBy("guard", "128 KiB"))
		}, SpecTimeout(5*time.Minute))
	}

	It("can fail its initialization if it has the maximum size", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("full")).Obj()
		namespace.Annotations["example.com/a"] = strings.Repeat("x", 128<<10-200)
		namespace.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: strings.Repeat("x", 100), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{` + manyFields() + `}}}`),
		}}
		for i := range 1500 {
			namespace.Labels[fmt.Sprintf("%s.%d.example.com/%s", strings.Repeat("x", 200), i, strings.Repeat("y", 63))] =
				strings.Repeat("z", 63)
		}
		cluster.Ordinary.Creates(ctx, namespace)
		result := mustEncode(metav1.Status{Status: metav1.StatusFailure, Message: strings.Repeat("m", 10000)})
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(string(result)))).To(Succeed())
		expectDeletionRequested(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("is accepted below the size limit, and a user can remove its annotations", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("full")).Obj()
		namespace.Annotations["example.com/a"] = big
		cluster.Ordinary.Creates(ctx, namespace)
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "annotate", "namespace", namespace.Name, "example.com/a-")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))
})

// expectDeletionRequested waits until a namespace is terminating or does not exist.
func expectDeletionRequested(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := &corev1.Namespace{}
		err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), now)
		g.Expect(apierrors.IsNotFound(err) || now.DeletionTimestamp != nil).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// manyFields returns about 600 KiB of entries for managed fields.
func manyFields() string {
	var fields []string
	for i := range 3000 {
		fields = append(fields, fmt.Sprintf(`"f:example.com/%s-%d":{}`, strings.Repeat("x", 180), i))
	}
	return strings.Join(fields, ",")
}

var _ = Describe("The condition of an initializer", func() {
	It("cannot become True by other users while the namespace is initializing", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "condition")
		name := namespace.Annotations[v1alpha1.AnnotationInitializers] + v1alpha1.ConditionInitializedSuffix
		forged := client.RawPatch(types.StrategicMergePatchType, mustEncode(map[string]any{"status": map[string]any{
			"conditions": []map[string]string{{"type": name, "status": "True", "reason": v1alpha1.ReasonInitialized}},
		}}))
		Expect(cluster.Ordinary.Status().Patch(ctx, namespace.DeepCopy(), forged)).To(BeForbiddenBy("guard", "conditions"))
		Expect(cluster.Initializer.Status().Patch(ctx, namespace.DeepCopy(), forged)).To(Succeed())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A result that is not a valid metav1.Status", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.Register(ctx, "result", "result.test.example.com")
	}, NodeTimeout(5*time.Minute))

	setResult := func(ctx context.Context, result string) *corev1.Namespace {
		GinkgoHelper()
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("result"))
		Expect(cluster.Initializer.Patch(ctx, namespace, resultPatch(result))).To(Succeed())
		return namespace
	}

	for name, result := range map[string]string{
		"a code that is not a number": `{"status":"Failure","code":"NaN"}`,
		"a trailing comma":            `{"status":"Failure",}`,
		"duplicate keys":              `{"status":"Failure","status":"Success"}`,
	} {
		It("fails the initialization if it contains "+name, func(ctx context.Context) {
			namespace := setResult(ctx, result)
			expectDeletionRequested(ctx, namespace)
		}, SpecTimeout(5*time.Minute))
	}
})

// Without a NamespaceInitializerSet, policy inject does not run and does not replace the state that
// users send.
var _ = Describe("A cluster without a NamespaceInitializerSet", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.Register(ctx, "before", "absent.test.example.com")
		expectFail(ctx)
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { cluster.StartManager(ctx) })
		set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.EffectiveSetName}}
		Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, set))).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("rejects a new namespace with forged state", func(ctx context.Context) {
		forge := func() error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("forged")).
				Initializers("forged.test.example.com").
				Annotation(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser).Obj(), client.DryRunAll)
		}
		if !framework.ServesPolicies(ctx, cluster.Admin.Config) {
			Expect(forge()).To(MatchError(ContainSubstring(`failed calling webhook "inject.nslifecycle.dev"`)))
			return
		}
		// The API server might not have observed the deletion of the NamespaceInitializerSet yet.
		Eventually(forge).WithContext(ctx).Should(
			MatchError(ContainSubstring("policy 'nslifecycle-require-set' with binding")))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("forged")).
			Annotation(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser).Obj())).To(BeDeniedBy("guard"))
	}, SpecTimeout(5*time.Minute))

	It("allows users to create namespaces", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespace can be created while no manager runs")
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain"))
		Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	}, SpecTimeout(5*time.Minute))
})
