// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

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
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Each entry is a way to write a label of a Namespace.
var labelWrites = map[string]func(ctx context.Context, name, key, value string) error{
	"create": func(ctx context.Context, _, key, value string) error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("chosen")).Label(key, value).Obj())
	},
	"create with a generated name": func(ctx context.Context, _, key, value string) error {
		namespace := wrappers.MakeNamespace("").Label(key, value).Obj()
		namespace.GenerateName = "chosen-"
		return cluster.Ordinary.Create(ctx, namespace)
	},
	"dry run of a create": func(ctx context.Context, _, key, value string) error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("chosen").Label(key, value).Obj(), client.DryRunAll)
	},
	"apply that creates": func(ctx context.Context, _, key, value string) error {
		return applyLabel(ctx, framework.Unique("chosen"), "", key, value)
	},
	"apply": func(ctx context.Context, name, key, value string) error { return applyLabel(ctx, name, "", key, value) },
	"apply status": func(ctx context.Context, name, key, value string) error {
		return applyLabel(ctx, name, "status", key, value)
	},
	"update": func(ctx context.Context, name, key, value string) error {
		return updateLabel(ctx, name, "", key, value)
	},
	"update status": func(ctx context.Context, name, key, value string) error {
		return updateLabel(ctx, name, "status", key, value)
	},
	"merge patch": func(ctx context.Context, name, key, value string) error {
		return patchLabel(ctx, name, "", types.MergePatchType, key, value)
	},
	"merge patch status": func(ctx context.Context, name, key, value string) error {
		return patchLabel(ctx, name, "status", types.MergePatchType, key, value)
	},
	"strategic merge patch": func(ctx context.Context, name, key, value string) error {
		return patchLabel(ctx, name, "", types.StrategicMergePatchType, key, value)
	},
	"JSON patch": func(ctx context.Context, name, key, value string) error {
		patch := fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels","value":{%q:%q}}]`, key, value)
		return cluster.Ordinary.Patch(ctx, wrappers.MakeNamespace(name).Obj(), client.RawPatch(types.JSONPatchType, patch))
	},
}

func patchLabel(ctx context.Context, name, subresource string, patchType types.PatchType, key, value string) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "labels": map[string]string{key: value},
	}})
	if err != nil {
		return err
	}
	options, subresources := metav1.PatchOptions{}, []string{}
	if patchType == types.ApplyPatchType {
		options = metav1.PatchOptions{FieldManager: "attack", Force: new(true)}
	}
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	_, err = cluster.Ordinary.Clientset().CoreV1().Namespaces().Patch(ctx, name, patchType, body, options, subresources...)
	return err
}

func applyLabel(ctx context.Context, name, subresource, key, value string) error {
	return patchLabel(ctx, name, subresource, types.ApplyPatchType, key, value)
}

func updateLabel(ctx context.Context, name, subresource, key, value string) error {
	namespace := &corev1.Namespace{}
	if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return err
	}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, key, value)
	if subresource != "" {
		return cluster.Ordinary.SubResource(subresource).Update(ctx, namespace)
	}
	return cluster.Ordinary.Update(ctx, namespace)
}

var _ = Describe("A user without the use verb", Ordered, func() {
	labels := map[string]string{v1alpha1.LabelTemplate: "gold", "tier": "gold"}
	forbidden := BeForbiddenBy(v1alpha1.PolicyTemplates, `is not allowed to use template "gold"`)
	var name string

	BeforeAll(func(ctx context.Context) {
		publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) {
			set.Initializers = nil
			set.Templates = []v1alpha1.EffectiveTemplate{
				{Name: "gold", Access: v1alpha1.AccessRestricted, NamespaceSelector: selecting("tier", "gold")},
			}
		})
		name = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("chosen")).Name
	}, NodeTimeout(5*time.Minute))

	for key, value := range labels {
		for description, write := range labelWrites {
			It("cannot choose a restricted template with label "+key+": "+description, func(ctx context.Context) {
				Expect(write(ctx, name, key, value)).To(forbidden)
				Expect(cluster.GetNamespace(Default, ctx, name).Labels).NotTo(HaveKey(key))
				Expect(write(ctx, name, key, "")).To(Succeed(), "another value of the label")
				Expect(tryPatch(ctx, cluster.Admin, name, "labels", key, nil)).To(Succeed())
			}, SpecTimeout(5*time.Minute))
		}
	}

	It("cannot change labels through /finalize", func(ctx context.Context) {
		for key, value := range labels {
			Expect(updateLabel(ctx, name, "finalize", key, value)).To(BeRefusedThroughFinalize())
			Expect(cluster.GetNamespace(Default, ctx, name).Labels).NotTo(HaveKey(key))
		}
	}, SpecTimeout(5*time.Minute))

	It("cannot choose it again after removing the label", func(ctx context.Context) {
		for key, value := range labels {
			namespace := wrappers.MakeNamespace(framework.Unique("chosen")).Label(key, value).Obj()
			Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", "note", new("x"))).To(Succeed())
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", key, nil)).To(Succeed())
			Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", key, &value)).To(forbidden)
		}
	}, SpecTimeout(5*time.Minute))
})
