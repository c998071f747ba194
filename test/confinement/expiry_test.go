// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func withTTL(ttl string) func(*wrappers.NamespaceWrapper) {
	return func(w *wrappers.NamespaceWrapper) { w.Annotation(v1alpha1.AnnotationTTL, ttl) }
}

func expiringAt(at string) func(*wrappers.NamespaceWrapper) {
	return func(w *wrappers.NamespaceWrapper) { w.Annotation(v1alpha1.AnnotationExpiresAt, at) }
}

// since sets the time of a condition.
func since(at time.Time) func(map[string]any) {
	return func(condition map[string]any) { condition["lastTransitionTime"] = metav1.NewTime(at) }
}

// record records the expiry of a namespace. The API server may be busy, so the time is in the past.
func record(name string, at time.Time) request {
	return condition(name, v1alpha1.ConditionExpired, since(at))
}

var _ = Describe("The deletion of a Namespace", func() {
	remove := func(ctx context.Context, namespace *corev1.Namespace) error {
		return operator.Delete(ctx, namespace.DeepCopy(), client.Preconditions{UID: &namespace.UID})
	}

	DescribeTable("requires the record that the expiry has passed", func(
		ctx context.Context, change func(*wrappers.NamespaceWrapper), isDue bool,
	) {
		namespace := makeNamespace(ctx, change)
		Expect(remove(ctx, namespace)).To(BeRefused("expired"))
		// The lifetimes below are shorter than a second, or longer than a day.
		Eventually(func() error { return record(namespace.Name, time.Now().Add(-time.Second))(ctx) }).WithContext(ctx).Should(Succeed())
		if !isDue {
			Expect(remove(ctx, namespace)).To(BeRefused("expired"))
			return
		}
		Eventually(func() error {
			if err := record(namespace.Name, time.Now().Add(-time.Second))(ctx); err != nil {
				return err
			}
			return remove(ctx, namespace)
		}).WithContext(ctx).Should(Succeed())
	},
		Entry("at a time", expiringAt("2020-01-01T00:00:00Z"), true),
		Entry("at a time with an offset and a fraction", expiringAt("2026-01-01T00:00:00.5+23:59"), true),
		Entry("at a time to come", expiringAt("2099-01-01T00:00:00Z"), false),
		Entry("after seconds", withTTL("1s"), true),
		Entry("after zero days and a second", withTTL("0d1s"), true),
		Entry("after days", withTTL("1d"), false),
		Entry("after days and hours", withTTL("99999d99999h99999m99999s"), false),
		Entry("without an expiry", func(*wrappers.NamespaceWrapper) {}, false),
	)

	It("is refused after the expiry was extended, removed or contradicted", func(ctx context.Context) {
		namespace := makeNamespace(ctx, expiringAt("2020-01-01T00:00:00Z"))
		Expect(record(namespace.Name, time.Now().Add(-time.Second))(ctx)).To(Succeed())
		for _, annotations := range []map[string]any{
			{v1alpha1.AnnotationExpiresAt: "2099-01-01T00:00:00Z"}, {v1alpha1.AnnotationTTL: "1s"}, {v1alpha1.AnnotationTTL: nil, v1alpha1.AnnotationExpiresAt: nil},
		} {
			body, err := json.Marshal(inMetadata("annotations", annotations))
			Expect(err).NotTo(HaveOccurred())
			Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, body))).To(Succeed())
			Expect(remove(ctx, namespace)).To(BeRefused("expired"))
		}
	})

	It("cannot be prepared with a record in the future", func(ctx context.Context) {
		namespace := makeNamespace(ctx, expiringAt(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		name, future := namespace.Name, time.Now().Add(2*time.Hour)
		expired := map[string]any{
			"type": v1alpha1.ConditionExpired, "status": "True", "lastTransitionTime": metav1.NewTime(future), "reason": "x", "message": "",
		}
		forged := func(changes map[string]any) []any {
			entry := map[string]any{
				"manager": "nslifecycle", "operation": "Update", "apiVersion": "v1", "subresource": "status", "fieldsType": "FieldsV1",
				"time": metav1.NewTime(future.Add(time.Hour)), "fieldsV1": json.RawMessage(
					`{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"nslifecycle.dev/Expired\"}":{".":{},"f:type":{},"f:status":{},` +
						`"f:lastTransitionTime":{},"f:reason":{},"f:message":{}}}}}`),
			}
			for key, value := range changes {
				entry[key] = value
			}
			return []any{entry}
		}
		status := map[string]any{"conditions": []any{expired}}
		both := func(fields []any) map[string]any {
			return map[string]any{"metadata": map[string]any{"managedFields": fields}, "status": status}
		}
		attacks := map[string]request{
			"the time":              record(name, future),
			"a minute too early":    record(name, time.Now().Add(time.Minute)),
			"a merge patch":         merge(name, map[string]any{"status": status}, "status"),
			"with managedFields":    merge(name, both(forged(nil)), "status"),
			"without managedFields": merge(name, both([]any{map[string]any{}}), "status"),
			"empty managedFields":   merge(name, both([]any{}), "status"),
			"a JSON patch":          rawPatch(name, types.JSONPatchType, fmt.Sprintf(`[{"op":"add","path":"/status/conditions","value":[%s]}]`, mustEncode(expired)), "status"),
			"twice":                 merge(name, map[string]any{"status": map[string]any{"conditions": []any{expired, expired}}}, "status"),
			"server-side apply": patch(name, types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}, "status": status,
			}, "status"),
			"a PUT": func(ctx context.Context) error {
				current := &corev1.Namespace{}
				Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
				current.Status.Conditions = append(current.Status.Conditions, corev1.NamespaceCondition{
					Type: v1alpha1.ConditionExpired, Status: "True", LastTransitionTime: metav1.NewTime(future),
				})
				for i := range current.ManagedFields {
					current.ManagedFields[i].Time = new(metav1.NewTime(future.Add(time.Hour)))
				}
				return operator.Status().Update(ctx, current, client.FieldOwner("nslifecycle"))
			},
		}
		forEach(ctx, attacks, BeRefused("Expired"))
		By("forging the entry in advance")
		for _, change := range []map[string]any{
			nil, {"manager": "other"}, {"operation": "Apply"}, {"subresource": ""}, {"apiVersion": "v2"}, {"manager": "ancient-changes"},
		} {
			body, err := json.Marshal(inMetadata("managedFields", forged(change)))
			Expect(err).NotTo(HaveOccurred())
			Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, body))).To(Succeed())
			// The entry owns the fields of the condition already, and the next write changes no field.
			for range 3 {
				_ = condition(name, v1alpha1.ConditionExpired, func(c map[string]any) { c["status"] = "False" })(ctx)
				forEach(ctx, attacks, BeRefused())
			}
		}
		By("resetting managedFields")
		Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`)))).To(Succeed())
		forEach(ctx, attacks, BeRefused())
		By("writing the condition without /status")
		for _, subresource := range []string{"", "finalize"} {
			current := &corev1.Namespace{}
			Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
			current.Status.Conditions = append(current.Status.Conditions, corev1.NamespaceCondition{Type: v1alpha1.ConditionExpired, Status: "True"})
			if subresource == "" {
				_ = operator.Update(ctx, current)
			} else {
				_ = operator.SubResource(subresource).Update(ctx, current)
			}
		}
		current := &corev1.Namespace{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
		for _, condition := range current.Status.Conditions {
			Expect(condition).NotTo(And(HaveField("Type", BeEquivalentTo(v1alpha1.ConditionExpired)), HaveField("Status", corev1.ConditionTrue)))
		}
		Expect(remove(ctx, namespace)).To(BeRefused())
	})

	It("requires that the initialization has failed", func(ctx context.Context) {
		const pending, result = v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult
		live := makeNamespace(ctx)
		By("forging the state on a live namespace")
		for _, annotations := range []map[string]any{
			{result: `{"status":"Failure"}`}, {pending: "a"}, {pending: "a", result: `{"status":"Failure"}`},
		} {
			for _, subresources := range [][]string{nil, {"status"}, {"finalize"}} {
				change := map[string]any{"metadata": map[string]any{
					"labels": map[string]any{v1alpha1.LabelInitializing: "true"}, "annotations": annotations,
				}}
				Expect(merge(live.Name, change, subresources...)(ctx)).NotTo(Succeed())
			}
		}
		Expect(condition(live.Name, v1alpha1.ConditionInitializing)(ctx)).To(Succeed())
		Expect(remove(ctx, live)).To(BeRefused("failed"))
	})
})

func mustEncode(value any) string {
	body, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}
