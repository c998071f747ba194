// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("explain", func() {
	It("names the policy that denies the writes of the operator", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		settings := newTemplate(unique("denied"))
		settings.Spec.ServiceAccountName = unique("account")
		plane.AddTemplateAccount(ctx, settings.Spec.ServiceAccountName)
		plane.CreateTemplate(ctx, settings)
		const reason = "only tenant owners may change this namespace"
		prefix := unique("denied")
		policy := framework.DenyByPolicy(ctx, admin, framework.RequestsFor("", "namespaces/status", admissionv1.Update),
			fmt.Sprintf("object.metadata.name.startsWith(%q)", prefix), reason)
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix + "-probe"}}
		admin.Creates(ctx, probe)
		DeferCleanup(remove, probe.Name)
		Eventually(func() error {
			return admin.Status().Patch(ctx, probe, client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`)), client.DryRunAll)
		}).WithContext(ctx).ShouldNot(Succeed())

		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: prefix, Labels: map[string]string{v1alpha1.LabelTemplate: settings.Name},
		}}
		admin.Creates(ctx, namespace)
		DeferCleanup(remove, namespace.Name)
		Eventually(func(g Gomega) {
			explained := user.run(ctx, "explain", namespace.Name, "--progress-deadline=1s")
			g.Expect(explained.code).To(Equal(3))
			text := unwrap(explained.stdout)
			g.Expect(text).To(And(ContainSubstring(reason), ContainSubstring(policy.Spec.PolicyName),
				ContainSubstring("AdmissionRejected"), ContainSubstring("template status "+settings.Name),
				Not(ContainSubstring("Start the controller"))))
		}).WithContext(ctx).Should(Succeed())

		admin.Deletes(ctx, policy)
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, admin, namespace.Name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
	})

	It("prints commands that work, and names a preview", func(ctx context.Context) {
		user := newUser(bare.Admin.Config)
		namespace := makeStuckNamespace(ctx)
		before := snapshot(ctx, namespace.Name)
		var commands []string
		Eventually(func(g Gomega) {
			explained := user.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "-o", "json")
			var document struct {
				Findings []struct {
					Remedies []struct{ Text, Command string }
				}
			}
			g.Expect(json.Unmarshal([]byte(explained.stdout), &document)).To(Succeed())
			commands = nil
			for _, finding := range document.Findings {
				for _, remedy := range finding.Remedies {
					if strings.HasPrefix(remedy.Command, "kubectl nslifecycle finalize ") {
						g.Expect(remedy.Text).To(HavePrefix("To preview "))
						commands = append(commands, remedy.Command)
					}
				}
			}
			g.Expect(commands).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		for _, command := range commands {
			shell := exec.CommandContext(ctx, "sh", "-c", command)
			shell.Env = user.environment()
			output, err := shell.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", command, output)
			Expect(string(output)).To(And(ContainSubstring("Remove: "), ContainSubstring("Nothing was changed (dry run)")))
		}
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
	})

	It("names a namespace finalizer of another controller at once", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: unique("held")}}
		namespace.Spec.Finalizers = []corev1.FinalizerName{testNamespaceFinalizer}
		admin.Creates(ctx, namespace)
		admin.Deletes(ctx, namespace)
		DeferCleanup(func(ctx context.Context) {
			held := get(ctx, admin, namespace.Name)
			held.Spec.Finalizers = nil
			Expect(admin.SubResource("finalize").Update(ctx, held)).To(Succeed())
		})
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, admin, namespace.Name).Spec.Finalizers).To(HaveExactElements(
				corev1.FinalizerName(testNamespaceFinalizer)))
		}).WithContext(ctx).Should(Succeed())
		explained := user.run(ctx, "explain", namespace.Name, "--progress-deadline=1h")
		Expect(explained.code).To(BeZero())
		Expect(unwrap(explained.stdout)).To(And(ContainSubstring("waiting for namespace finalizer "+testNamespaceFinalizer),
			Not(ContainSubstring("No problems found"))))
	})
})
