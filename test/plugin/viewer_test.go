// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

var _ = Describe("The ClusterRole for explain", Ordered, func() {
	const viewerRole = "nslifecycle-diagnosis-viewer-role"
	var role rbacv1.ClusterRole
	var viewer *user

	BeforeAll(func(ctx context.Context) {
		Expect(admin.Get(ctx, client.ObjectKey{Name: viewerRole}, &role)).To(Succeed())
		name := unique("viewer")
		config, err := plane.User(name)
		Expect(err).NotTo(HaveOccurred())
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewerRole},
		}
		Expect(admin.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, binding)).To(Succeed()) })
		viewer = newUser(config)
	})

	It("allows to read everything that a diagnosis needs", func(ctx context.Context) {
		// The external finalizer makes the diagnosis search for its owner in the cluster.
		namespace := makeNamespace(ctx, admin, "viewed")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", "viewer.example.com/hold")
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { release(ctx, admin, held) })
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			g.Expect(namespace.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NamespaceContentRemaining), HaveField("Status", corev1.ConditionTrue))))
		}).WithContext(ctx).Should(Succeed())

		var explained result
		Eventually(func(g Gomega) {
			explained = viewer.run(ctx, "explain", namespace.Name, "--progress-deadline=1s")
			g.Expect(explained.code).To(Equal(3))
			g.Expect(explained.stdout).To(ContainSubstring("viewer.example.com/hold"))
			g.Expect(explained.stdout + explained.stderr).NotTo(MatchRegexp("could not|cannot be read"))
		}).WithContext(ctx).Should(Succeed())
		Expect(viewer.run(ctx, "explain", "--all").stdout).To(ContainSubstring(namespace.Name))
	})

	It("includes all built-in types except Secrets", func(ctx context.Context) {
		found, err := resourcetypes.Discover(ctx, discovery.NewDiscoveryClientForConfigOrDie(bare.Admin))
		Expect(err).NotTo(HaveOccurred())
		var missing []string
		for _, of := range found.Types {
			isAllowed := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.APIGroups, of.Group) && slices.Contains(rule.Resources, of.Resource) &&
					slices.Contains(rule.Verbs, "list")
			})
			// Other specs install CustomResourceDefinitions.
			isCustom := strings.Contains(of.Group, ".") && !strings.HasSuffix(of.Group, ".k8s.io")
			if of.Can("list") && !isCustom && !isAllowed {
				missing = append(missing, of.String())
			}
		}
		Expect(missing).To(HaveExactElements("secrets"))
	})

	It("allows no changes", func(ctx context.Context) {
		for _, rule := range role.Rules {
			Expect(rule.Resources).NotTo(ContainElement(Or(Equal("*"), ContainSubstring("/"))))
			if slices.Contains(rule.Resources, "subjectaccessreviews") {
				Expect(rule.Resources).To(HaveLen(1))
				Expect(rule.Verbs).To(HaveExactElements("create"))
				continue
			}
			Expect(rule.Verbs).To(HaveExactElements("list"), "resources %v", rule.Resources)
		}
		namespace := makeNamespace(ctx, admin, "unchanged")
		object := makeConfigMap(ctx, admin, namespace.Name, "settings")
		for _, arguments := range [][]string{
			{"delete", "configmap", object.Name}, {"label", "configmap", object.Name, "a=b"}, {"create", "configmap", "other"},
			{"delete", "namespace", namespace.Name}, {"create", "secret", "generic", "other"}, {"get", "secrets"},
			{"nslifecycle", "delete", namespace.Name},
		} {
			done := viewer.kubectl(ctx, nil, append(arguments, "--namespace="+namespace.Name)...)
			Expect(done.code).NotTo(BeZero(), "%v", arguments)
			Expect(done.stderr).To(Or(ContainSubstring("forbidden"), ContainSubstring("Forbidden"), ContainSubstring("cannot")), "%v", arguments)
		}
		after := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(object.ResourceVersion))
	})
})
