// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("orphans", func() {
	It("finds objects whose namespace does not exist", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		existing := makeNamespace(ctx, bareAdmin, "existing")
		makeConfigMap(ctx, bareAdmin, existing.Name, "home")
		name := unique("deleted")
		bareAdmin.Creates(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		held := makeConfigMap(ctx, bareAdmin, name, "held", testFinalizer)
		bareAdmin.Creates(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "secret"}})
		finalize(ctx, bareAdmin, name)

		found := adminUser.run(ctx, "orphans", "-o", "json")
		Expect(found.code).To(BeZero())
		Expect(orphansIn(name, found.stdout)).To(ConsistOf("configmaps/held", "secrets/secret"))
		Expect(orphansIn(existing.Name, found.stdout)).To(BeEmpty())
		listed := adminUser.run(ctx, "orphans")
		Expect(listed.stdout).To(MatchRegexp(name + ` +configmaps +held +\S+ +` + testFinalizer))
		Expect(listed.stderr).To(ContainSubstring("kubectl create namespace " + name + " && kubectl delete namespace " + name))

		By("searching only the selected namespace")
		Expect(adminUser.run(ctx, "orphans", "-n", existing.Name).stderr).To(Equal("No orphans found.\n"))

		By("recreating the namespace")
		again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		bareAdmin.Creates(ctx, again)
		Expect(orphansIn(name, adminUser.run(ctx, "orphans", "-o", "json").stdout)).To(BeEmpty())
		Eventually(func() error { return bareAdmin.Patch(ctx, held.DeepCopy(), removeFinalizers) }).
			WithContext(ctx).Should(Succeed())
	}, NodeTimeout(testTimeout))

	It("reports which objects it cannot read", func(ctx context.Context) {
		limited := newRestrictedUser(ctx, bare, "limited", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list"},
		}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
		found := limited.run(ctx, "orphans")
		Expect(found.code).To(Equal(1))
		Expect(found.stderr).To(MatchRegexp(`Warning: There might be more orphans: .*\bsecrets\b.* permission to list`))
		Expect(found.stderr).NotTo(MatchRegexp(`Warning: .*\bconfigmaps\b`))

		unprivileged := newRestrictedUser(ctx, bare, "unprivileged")
		found = unprivileged.run(ctx, "orphans")
		Expect(found.code).To(Equal(1))
		Expect(found.stderr).To(MatchRegexp(`Error from server \(Forbidden\): .*cannot list resource "namespaces"`))
	}, NodeTimeout(testTimeout))
})

var removeFinalizers = framework.MergePatch(`{"metadata":{"finalizers":null}}`)

// orphansIn returns the orphans of one namespace in a JSON list. Other specs leave orphans in other namespaces.
func orphansIn(namespace, text string) []string {
	GinkgoHelper()
	var list struct {
		Items []struct{ Namespace, Resource, Name string }
	}
	Expect(json.Unmarshal([]byte(text), &list)).To(Succeed())
	var names []string
	for _, item := range list.Items {
		if item.Namespace == namespace {
			names = append(names, item.Resource+"/"+item.Name)
		}
	}
	return names
}
