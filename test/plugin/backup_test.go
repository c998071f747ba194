// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

var _ = Describe("backup", Ordered, func() {
	var adminUser *user
	var original string

	BeforeAll(func(ctx context.Context) {
		adminUser = newUser(plane.Admin.Config)
		for _, running := range []*framework.Cluster{plane, bare} {
			applyTestdata(ctx, running, "crontab.yaml")
			Eventually(func() error { // An established type can be missing in the discovery.
				_, err := running.Kubectl(ctx, running.Admin.Config, "get", "crontabs.stable.example.com", "--all-namespaces")
				return err
			}).WithContext(ctx).Should(Succeed())
		}
		applyTestdata(ctx, plane, "shop.yaml")
		DeferCleanup(func(ctx context.Context) {
			for _, finalized := range []client.Object{
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}},
				claim("data"), claim("data-store-0"), claim("debug-scratch"),
			} {
				framework.RemoveFinalizers(ctx, admin, finalized)
			}
			// The Pod has a node but no kubelet.
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "debug"}}
			Expect(admin.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
			remove(ctx, "shop")
		})
		makeControlled(ctx)
		taken := adminUser.run(ctx, "backup", "shop", "--include-secrets")
		Expect(taken.code).To(BeZero())
		original = taken.stdout
	}, NodeTimeout(testTimeout))

	for name, args := range map[string][]string{"client-side": nil, "server-side": {"--server-side"}} {
		It("contains the same objects after a restore in another cluster with "+name+" apply", func(ctx context.Context) {
			_, err := bare.KubectlWithInput(ctx, bare.Admin.Config, original,
				append([]string{"apply", "--validate=strict", "-f", "-"}, args...)...)
			Expect(err).NotTo(HaveOccurred())
			restored := newUser(bare.Admin.Config).run(ctx, "backup", "shop", "--include-secrets")
			Expect(restored.code).To(BeZero())
			Expect(restored.stdout).To(Equal(original))
			emptyBare(ctx, "shop")
		}, NodeTimeout(testTimeout))
	}

	It("contains neither fields that the cluster sets nor objects that the cluster creates", func() {
		for _, removed := range []string{
			"uid:", "resourceVersion", "managedFields", "generation:", "creationTimestamp", "status:",
			"ownerReferences", "finalizers", "clusterIP: 10.", "- 10.", "nodeName", "kube-api-access", "last-applied",
			"kube-root-ca.crt", "controller-uid", "deployment.kubernetes.io/revision",
		} {
			Expect(original).NotTo(ContainSubstring(removed))
		}
		Expect(original).To(ContainSubstring("kind: CronTab"))
		Expect(original).To(ContainSubstring("clusterIP: None"), "headless")
		Expect(original).NotTo(Or(ContainSubstring("name: controlled"), ContainSubstring("name: debug-scratch")))
		Expect(original).To(MatchRegexp(`changed: by-user\n  name: data-store-0\n(.*\n){1,12}      storage: 10Gi`), "a claim of a StatefulSet")
		kinds := []string{}
		for line := range strings.Lines(original) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				kinds = append(kinds, strings.TrimSpace(kind))
			}
		}
		Expect(kinds).To(Equal([]string{
			"Namespace", "LimitRange", "NetworkPolicy", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "ConfigMap",
			"Secret", "PersistentVolumeClaim", "PersistentVolumeClaim", "Service", "Service", "PodDisruptionBudget", "Pod", "Job", "Deployment",
			"StatefulSet", "CronJob", "HorizontalPodAutoscaler", "Ingress", "CronTab", "ResourceQuota",
		}))
	})

	It("by default, skips Secrets and objects that the cluster recreates", func(ctx context.Context) {
		file := filepath.Join(adminUser.home, "shop.yaml")
		taken := adminUser.run(ctx, "backup", "shop", "-f", file)
		Expect(taken.code).To(BeZero())
		Expect(taken.stdout).To(BeEmpty())
		Expect(taken.stderr).To(ContainSubstring("22 objects written to " + file))
		Expect(taken.stderr).To(MatchRegexp(`1 Secret\b.*--include-secrets`))
		Expect(taken.stderr).To(And(MatchRegexp(`2 objects\b.*--all`), ContainSubstring(string(backup.ReasonControlled))))
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(ContainSubstring("kind: Secret"))
		Expect(string(text)).NotTo(ContainSubstring("cGFzc3dvcmQ"))
		info, err := os.Stat(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))

		By("replacing the file only with --overwrite")
		Expect(os.WriteFile(file, []byte("mine"), 0o600)).To(Succeed())
		refused := adminUser.run(ctx, "backup", "shop", "-f", file)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(ContainSubstring("--overwrite"))
		Expect(os.ReadFile(file)).To(BeEquivalentTo("mine"))
		Expect(adminUser.run(ctx, "backup", "shop", "-f", file, "--overwrite").code).To(BeZero())
		Expect(os.ReadFile(file)).To(Equal(text))

		all := adminUser.run(ctx, "backup", "shop", "--all")
		Expect(all.stdout).To(ContainSubstring("name: controlled"))
		Expect(all.stdout).NotTo(ContainSubstring("ownerReferences"))
	}, NodeTimeout(testTimeout))

	It("backs up only the selected resource types", func(ctx context.Context) {
		taken := adminUser.run(ctx, "backup", "shop", "--types=deployments,configmaps,replicasets.apps")
		Expect(taken.code).To(BeZero())
		Expect(strings.Count(taken.stdout, "\nkind: ")).To(Equal(3))
		wrong := adminUser.run(ctx, "backup", "shop", "--types=nonsense")
		Expect(wrong.code).To(Equal(1))
		Expect(wrong.stderr).To(ContainSubstring(`"nonsense"`))
		missing := adminUser.run(ctx, "backup", "no-such-shop")
		Expect(missing.code).To(Equal(1))
		Expect(missing.stderr).To(ContainSubstring(`namespaces "no-such-shop" not found`))
	}, NodeTimeout(testTimeout))

	It("writes the objects that it can read, and reports what is missing", func(ctx context.Context) {
		reader := newRestrictedUser(ctx, plane, "reader", rbacv1.PolicyRule{
			APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "deployments"}, Verbs: []string{"list"},
		})
		taken := reader.run(ctx, "backup", "shop")
		Expect(taken.code).To(Equal(1))
		Expect(strings.Count(taken.stdout, "\nkind: ")).To(Equal(3))
		Expect(taken.stderr).To(MatchRegexp(`Warning: .*\bnamespaces "shop" is forbidden`))
		Expect(taken.stderr).To(MatchRegexp(`Warning: .*\bservices: services is forbidden`))
		Expect(taken.stderr).To(ContainSubstring("--include-secrets"))
		Expect(taken.stderr).To(MatchRegexp(`error: .*"shop" is incomplete\n$`))
	}, NodeTimeout(testTimeout))
})

func applyTestdata(ctx context.Context, running *framework.Cluster, file string) {
	GinkgoHelper()
	_, err := running.Kubectl(ctx, running.Admin.Config, "apply", "-f",
		filepath.Join(controlplane.Root(), "test", "plugin", "testdata", file))
	Expect(err).NotTo(HaveOccurred())
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// makeClaim creates a claim as the StatefulSet controller and the controller for ephemeral volumes do. A user has
// changed its size and its labels.
func makeClaim(ctx context.Context, name, apiVersion string, owner client.Object) {
	GinkgoHelper()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
	made := claim(name)
	made.Labels = map[string]string{"changed": "by-user"}
	made.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: reflect.TypeOf(owner).Elem().Name(), Name: owner.GetName(), UID: owner.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	made.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		},
	}
	Expect(admin.Create(ctx, made)).To(Succeed())
}

// makeControlled creates the same objects as the controllers of Kubernetes.
func makeControlled(ctx context.Context) {
	GinkgoHelper()
	makeClaim(ctx, "data-store-0", "apps/v1", &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store"}})
	makeClaim(ctx, "debug-scratch", "v1", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "debug"}})
	deployment := &appsv1.Deployment{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, deployment)).To(Succeed())
	Expect(admin.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "controlled", Labels: deployment.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deployment.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: deployment.Spec.Template},
	})).To(Succeed())
}

// emptyBare deletes a namespace and its content on the control plane without the operator.
func emptyBare(ctx context.Context, name string) {
	GinkgoHelper()
	types, err := bare.Kubectl(ctx, bare.Admin.Config, "api-resources", "--namespaced", "--verbs=delete", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	_, err = bare.Kubectl(ctx, bare.Admin.Config, "delete", strings.Join(strings.Fields(types), ","), "--all",
		"--namespace", name, "--wait=false", "--grace-period=0", "--force")
	Expect(err).NotTo(HaveOccurred())
	framework.RemoveFinalizers(ctx, bareAdmin, claim("data"))
	framework.RemoveFinalizers(ctx, bareAdmin, claim("data-store-0"))
	framework.RemoveFinalizers(ctx, bareAdmin, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "debug"}})
	finalize(ctx, bareAdmin, name)
	Expect(newUser(bare.Admin.Config).run(ctx, "orphans").stderr).To(Equal("No orphans found.\n"))
}
