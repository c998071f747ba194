// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package stolentoken

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// tryNamespaceController tries the deletions of kube-controller-manager's namespace controller, and returns a sentence
// with the result.
func tryNamespaceController(ctx context.Context, f *fixtures) string {
	GinkgoHelper()
	account := identity{kubeSystem, "namespace-controller"}
	mustCreate(ctx, "/api/v1/namespaces/kube-system/serviceaccounts", &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": account.name},
	}})
	f.createContent(ctx)
	a := newAttacker(ctx, account, f)
	a.isBrief = true
	total, deleted := sets.New[string](), sets.New[string]()
	for _, one := range a.permissions {
		served, isServed := a.types[one.resource]
		if one.verb != "delete" || !isServed || !served.serves("delete") || one.resource == "namespaces" ||
			withoutFixture[one.resource] != "" {
			continue
		}
		place := live
		if !served.Namespaced {
			place = clusterScope
		}
		total.Insert(one.resource)
		a.useIn(ctx, one, served, place)
	}
	for _, found := range a.successes {
		deleted.Insert(found.resource)
	}
	namespace := createNamespace(ctx, live)
	Expect(a.try(ctx, attempt{success: success{path: "/api/v1/namespaces/" + namespace}, method: http.MethodDelete})).To(BeTrue())
	return fmt.Sprintf("For comparison, with its ServiceAccount, the namespace controller in kube-controller-manager deletes live objects of "+
		"%d of %d types, such as Nodes, PersistentVolumes and admission policies, and live Namespaces.", deleted.Len(), total.Len())
}

// expectUnconfinedWithAllPermissions shows that neither the policy nor the roles suffice alone.
func expectUnconfinedWithAllPermissions(ctx context.Context, f *fixtures) {
	GinkgoHelper()
	account := identity{systemNamespace, controlplane.ServiceAccount}
	all := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	cluster.Bind(ctx, fixture+"-mistake", []rbacv1.PolicyRule{all},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.namespace, Name: account.name})
	framework.ExpectAllowed(ctx, account.config(ctx), rbacv1.PolicyRule{
		Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
	})
	a := newAttacker(ctx, account, f)
	remove := func(path string) response { return send(ctx, a.client, http.MethodDelete, path, "", nil) }

	configMap := f.types["configmaps"].path(f.namespaces[live], fixture)
	Expect(remove(configMap).text).To(ContainSubstring("nslifecycle-confine"))
	for _, name := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		path := f.types[name+".admissionregistration.k8s.io"].path("", "nslifecycle-confine")
		Expect(remove(path).code).To(Equal(http.StatusOK))
	}
	Eventually(func() int { return remove(configMap).code }).WithContext(ctx).Should(Equal(http.StatusOK))
}
