// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// applyServerSide installs with server-side apply of kubectl.
func applyServerSide(_ context.Context, target *framework.Cluster) installer {
	return func(ctx context.Context) error {
		_, err := target.Kubectl(ctx, target.Admin.Config, "apply", "--server-side", "-k",
			filepath.Join(controlplane.Root(), "config", "default"))
		return err
	}
}

var _ = Describe("A sync of the installation resets the mode that the plugin has set,", func() {
	for name, test := range map[string]struct {
		tool    func(context.Context, *framework.Cluster) installer
		label   string
		manager string
	}{
		"kubectl":                        {tool: tools["kubectl"]},
		"kubectl with server-side apply": {tool: applyServerSide},
		"Helm":                           {tool: tools["Helm"], manager: `Helm "nslifecycle"`},
		"Flux":                           {tool: tools["Flux"], manager: `field manager "kustomize-controller"`},
	} {
		It("with "+name, func(ctx context.Context) {
			target := framework.Start(ctx)
			sync := test.tool(ctx, target)
			Expect(sync(ctx)).To(Succeed())
			target.StartManager(ctx)
			kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
			Expect(controlplane.WriteKubeconfig(kubeconfig, target.Admin.Config)).To(Succeed())
			enforcement := func(args ...string) (string, error) {
				streams, _, _, stderr := genericiooptions.NewTestIOStreams()
				command := plugin.New(streams)
				command.SetArgs(append([]string{"enforcement", "--kubeconfig=" + kubeconfig}, args...))
				err := command.ExecuteContext(ctx)
				return strings.ReplaceAll(stderr.String(), "\n  ", " "), err
			}
			actions := func() []admissionv1.ValidationAction {
				GinkgoHelper()
				var bindings admissionv1.ValidatingAdmissionPolicyBindingList
				Expect(target.Admin.List(ctx, &bindings, client.MatchingLabels{
					internalv1alpha1.LabelPolicy: internalv1alpha1.PolicyGate,
				})).To(Succeed())
				Expect(bindings.Items).To(HaveLen(2))
				Expect(bindings.Items[0].Spec.ValidationActions).To(Equal(bindings.Items[1].Spec.ValidationActions))
				return bindings.Items[0].Spec.ValidationActions
			}

			if test.manager != "" {
				By("refusing without --force")
				_, err := enforcement("audit")
				Expect(err).To(MatchError(And(ContainSubstring(test.manager), ContainSubstring("enforcement=Audit"))))
				Expect(actions()).To(ConsistOf(admissionv1.Deny))
				_, err = enforcement("enforce")
				Expect(err).NotTo(HaveOccurred(), "the mode is set already")
			}
			By("setting the mode")
			warning, err := enforcement("audit", "--force")
			Expect(err).NotTo(HaveOccurred())
			Expect(warning).To(ContainSubstring(test.manager))
			Expect(actions()).To(ConsistOf(admissionv1.Warn, admissionv1.Audit))
			By("syncing")
			Expect(sync(ctx)).To(Succeed())
			Expect(actions()).To(ConsistOf(admissionv1.Deny))

			By("setting the mode after another client has changed it")
			binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
			binding.Name = "nslifecycle-gate"
			Expect(target.Admin.Patch(ctx, binding, framework.MergePatch([]byte(
				`{"spec":{"validationActions":["Warn"]}}`)), client.FieldOwner("kubectl-edit"))).To(Succeed())
			_, err = enforcement("audit", "--force")
			Expect(err).NotTo(HaveOccurred())
			Expect(sync(ctx)).To(Succeed())
			_, err = enforcement("enforce", "--force")
			Expect(err).NotTo(HaveOccurred())
			Expect(sync(ctx)).To(Succeed())
			Expect(actions()).To(ConsistOf(admissionv1.Deny))
		})
	}
})
