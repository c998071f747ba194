// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The components of config that change which ServiceAccount finalizes namespaces.
const (
	separateFinalization = "separate-finalization"
	withoutFinalization  = "without-finalization"
)

const finalizationAccount = "nslifecycle-finalization"

// finalizingAccounts contains the account that may finalize namespaces in each variant.
var finalizingAccounts = map[string]string{
	"": controlplane.ServiceAccount, separateFinalization: finalizationAccount, withoutFinalization: "",
}

// variant returns a copy of config/default in which the given directories, which are comments in its
// kustomization, are enabled.
func variant(directories ...string) string {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(os.CopyFS(config, os.DirFS(filepath.Join(controlplane.Root(), "config")))).To(Succeed())
	file := filepath.Join(config, "default", "kustomization.yaml")
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	text := string(content)
	for _, directory := range directories {
		Expect(text).To(ContainSubstring("\n# - ../" + directory + "\n"))
		text = strings.Replace(text, "\n# - ../"+directory+"\n", "\n- ../"+directory+"\n", 1)
	}
	Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return filepath.Dir(file)
}

// checkout returns a copy of the files that make deploy needs, with the given directories enabled.
func checkout(directories ...string) string {
	GinkgoHelper()
	root := filepath.Dir(filepath.Dir(variant(directories...)))
	makefile, err := os.ReadFile(filepath.Join(controlplane.Root(), "Makefile"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(root, "Makefile"), makefile, 0o600)).To(Succeed())
	tools, err := filepath.Glob(filepath.Join(controlplane.Root(), "bin", "kustomize-*"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Mkdir(filepath.Join(root, "bin"), 0o700)).To(Succeed())
	for _, tool := range tools {
		Expect(os.Symlink(tool, filepath.Join(root, "bin", filepath.Base(tool)))).To(Succeed())
	}
	return root
}

var _ = Describe("The variants of the installation", Ordered, ContinueOnFailure, func() {
	AfterEach(func(ctx context.Context) {
		startFinalization(ctx)
		makeTarget(ctx, "undeploy")
		expectNoRemainingObjects(ctx)
	})

	It("replace each other, and an earlier version", func(ctx context.Context) {
		const label = "app.kubernetes.io/name=nslifecycle"
		kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "owners"))
		kubectl(ctx, "create", "clusterrolebinding", "nslifecycle-earlier", "--clusterrole=cluster-admin",
			"--serviceaccount="+controlplane.SystemNamespace+":"+controlplane.ServiceAccount)
		kubectl(ctx, "label", "clusterrolebinding", "nslifecycle-earlier", label)
		for _, component := range []string{"", separateFinalization, withoutFinalization, ""} {
			By("installing " + component)
			root := checkout(directoriesOf(component)...)
			makeTargetIn(ctx, root, "deploy")
			wanted := strings.Fields(kubectl(ctx, "get", "-k", filepath.Join(root, "config", "default"), "--output=name"))
			Expect(append(wanted, separatelyApplied...)).To(ContainElements(installedParts(ctx)))
			kubectl(ctx, "get", "clusterrolebinding", "namespace-deleter")
			for _, account := range []string{controlplane.ServiceAccount, finalizationAccount, "nslifecycle-admission"} {
				Expect(canFinalize(ctx, account)).To(Equal(account == finalizingAccounts[component]), "%s: %s", component, account)
			}
		}
	}, SpecTimeout(10*time.Minute))

	DescribeTable("initialize, diagnose and finalize namespaces with the permissions of their ServiceAccounts",
		func(ctx context.Context, component string) {
			if finalizingAccounts[component] == "" {
				startFinalization(ctx)
			}
			makeTargetIn(ctx, checkout(directoriesOf(component)...), "deploy")
			stop := startDeployments(ctx)

			By("initializing a namespace")
			configuration := wrappers.MakeConfiguration("test").Initializers("a.test.example.com").Obj()
			Expect(admin.Create(ctx, configuration)).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
			})
			expectInjected(ctx)
			namespace := wrappers.MakeNamespace("variant").Obj()
			Expect(admin.Create(ctx, namespace)).To(Succeed())
			kubectl(ctx, "annotate", "--overwrite", "namespace", namespace.Name, v1alpha1.AnnotationPendingInitializers+"=")
			kubectl(ctx, "wait", "--for=condition="+v1alpha1.ConditionInitializing+"=False", "namespace/"+namespace.Name)
			Expect(admin.Delete(ctx, configuration)).To(Succeed())

			By("diagnosing its deletion")
			held := wrappers.MakeConfigMap(namespace.Name, "held")
			held.Finalizers = []string{"test.example.com/held"}
			Expect(admin.Create(ctx, held)).To(Succeed())
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			kubectl(ctx, "wait", "--for=condition="+v1alpha1.ConditionDeletionBlocked, "--timeout=60s", "namespace/"+namespace.Name)

			By("deleting it")
			kubectl(ctx, "patch", "configmap", held.Name, "--namespace="+namespace.Name, `--patch={"metadata":{"finalizers":null}}`)
			framework.ExpectDeleted(ctx, admin, namespace)
			stop()
		},
		Entry("by default", "", SpecTimeout(5*time.Minute)),
		Entry("with separate finalization", separateFinalization, SpecTimeout(5*time.Minute)),
		Entry("without finalization", withoutFinalization, SpecTimeout(5*time.Minute)),
	)
})

func directoriesOf(component string) []string {
	if component == "" {
		return nil
	}
	return []string{component}
}

// separatelyApplied are the objects of config/owners that have permissions.
var separatelyApplied = []string{
	"clusterrole.rbac.authorization.k8s.io/namespace-deleter", "clusterrolebinding.rbac.authorization.k8s.io/namespace-deleter",
}

// installedParts returns the installed objects that run or have permissions.
func installedParts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(kubectl(ctx, "get", "deployments,poddisruptionbudgets,clusterrolebindings,clusterroles,rolebindings,"+
		"roles,serviceaccounts", "--namespace="+controlplane.SystemNamespace, "--selector=app.kubernetes.io/name=nslifecycle",
		"--output=name"))
}

// canFinalize reports whether an account may remove the finalizers of namespaces.
func canFinalize(ctx context.Context, account string) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + controlplane.SystemNamespace + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "update", Resource: "namespaces", Subresource: "finalize", Name: "any",
		},
	}}
	Expect(admin.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// startDeployments runs a process for each Deployment of the system namespace, with its arguments and its ServiceAccount.
// The returned function stops them, and expects that the API server has not rejected any of their requests.
func startDeployments(ctx context.Context) (stop func()) {
	GinkgoHelper()
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.SetWebhookURL(ctx, webhooks.URL)).To(Succeed())
	var deployments appsv1.DeploymentList
	Expect(admin.List(ctx, &deployments, client.InNamespace(controlplane.SystemNamespace))).To(Succeed())
	var sessions []*gexec.Session
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		config, err := plane.ServiceAccountConfig(ctx, deployment.Namespace, deployment.Spec.Template.Spec.ServiceAccountName)
		Expect(err).NotTo(HaveOccurred())
		args := []string{"--metrics-bind-address=0", "--diagnosis-progress-deadline=2s", "--webhook-url=" + webhooks.URL}
		if deployment.Name == controlplane.ServiceAccount {
			args = append(args, "--webhook-bind-address="+webhooks.Address)
		}
		command := framework.DeploymentCommand(deployment, filepath.Join(controlplane.Root(), "bin", "manager"), config, args...)
		session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		sessions = append(sessions, session)
		DeferCleanup(func() { session.Kill().Wait(30 * time.Second) })
	}
	return func() {
		GinkgoHelper()
		for _, session := range sessions {
			session.Terminate().Wait(time.Minute)
			Expect(string(session.Err.Contents())).NotTo(ContainSubstring("forbidden"))
		}
	}
}
