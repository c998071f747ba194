// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The specs run the binary with the arguments, environment and ServiceAccount of the Deployment, so
// they fail if the sample is incomplete.
var _ = Describe("The agent in config/samples/agent", Ordered, func() {
	const directory = "config/samples/agent"
	var (
		deployment appsv1.Deployment
		binary     string
		agent      *gexec.Session
		finalizer  corev1.FinalizerName
	)

	BeforeAll(func(ctx context.Context) {
		path := filepath.Join(controlplane.Root(), directory)
		_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", path)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin, "delete", "-k", path, "--wait=false", "--ignore-not-found")
			Expect(err).NotTo(HaveOccurred())
		})
		key := client.ObjectKey{Namespace: "origin-agent-system", Name: "origin-agent-finalization"}
		Expect(admin.Get(ctx, key, &deployment)).To(Succeed())
		finalizer = corev1.FinalizerName(argumentOf(&deployment, "finalizer-token"))
		Expect(finalizer).NotTo(BeEmpty())
		binary, err = gexec.Build("github.com/nslifecycle/nslifecycle/cmd")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(gexec.CleanupBuildArtifacts)
		agent = startAgent(ctx, binary, &deployment)
	}, NodeTimeout(5*time.Minute))

	It("meets the Pod Security Standard of its namespace", func(ctx context.Context) {
		// The API server enforces the Pod Security Standard of the namespace.
		pod := &corev1.Pod{Spec: deployment.Spec.Template.Spec}
		pod.Namespace, pod.Name = deployment.Namespace, "dry-run"
		Expect(admin.Create(ctx, pod, client.DryRunAll)).To(Succeed())
	})

	It("uses its own Lease for leader election", func(ctx context.Context) {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = deployment.Namespace, argumentOf(&deployment, "leader-elect-resource-name")
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
			g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
		}).WithContext(ctx).Should(Succeed())
	})

	It("has no unnecessary permissions", func(ctx context.Context) {
		for _, attributes := range []authorizationv1.ResourceAttributes{
			{Verb: "get", Resource: "secrets"},
			{Verb: "get", Resource: "pods", Subresource: "log"},
			{Verb: "get", Resource: "nodes", Subresource: "proxy"},
			{Verb: "create", Resource: "configmaps"},
			{Verb: "patch", Resource: "configmaps"},
			{Verb: "patch", Resource: "namespaces"},
			{Verb: "update", Resource: "namespaces"},
			{Verb: "initialize", Resource: "namespaces"},
			{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + deployment.Namespace + ":" + deployment.Spec.Template.Spec.ServiceAccountName,
				ResourceAttributes: &attributes,
			}}
			Expect(admin.Create(ctx, review)).To(Succeed())
			Expect(review.Status.Allowed).To(BeFalse(), "%+v", attributes)
		}
	})

	It("deletes the content of a namespace and removes only its own namespace finalizer", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "agent", finalizer)
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held, wrappers.MakeConfigMap(namespace.Name, "settings"))
		foreign := createNamespace(ctx, "foreign")
		kept := wrappers.MakeConfigMap(foreign.Name, "kept")
		create(ctx, kept)
		deleteObject(ctx, namespace)
		deleteObject(ctx, foreign)

		By("reporting the remaining finalizer in a condition and an Event")
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(And(
				HaveRemaining("configmaps. has 1 resource instances"),
				HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			))
			g.Expect(eventsAbout(g, ctx, namespace)).To(ContainElement("SomeFinalizersRemain"))
		}).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, held)

		By("keeping the other namespace finalizer")
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name).Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		}).WithContext(ctx).Should(Succeed())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
		expectKept(ctx, kept)
		Expect(get(Default, ctx, namespace.Name).Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
	})

	It("finalizes an initializing namespace together with the manager", func(ctx context.Context) {
		const configuration = "agent"
		create(ctx, wrappers.MakeConfiguration(configuration).Initializers("a.agent.example.com").Obj())
		expectInjected(ctx, true)
		namespace := createNamespace(ctx, "initializing", finalizer)
		create(ctx, wrappers.MakeConfigMap(namespace.Name, "settings"))
		deleteObject(ctx, wrappers.MakeConfiguration(configuration).Obj())
		expectInjected(ctx, false)
		Expect(get(Default, ctx, namespace.Name).Labels).To(HaveKey(v1alpha1.LabelInitializing))

		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
	})

	It("logs no Forbidden errors", func() {
		agent.Terminate().Wait(30 * time.Second)
		Expect(string(agent.Err.Contents())).NotTo(ContainSubstring("forbidden"))
	})
})

// argumentOf returns the value of a flag in the arguments of a Deployment's first container.
func argumentOf(deployment *appsv1.Deployment, name string) string {
	for _, argument := range deployment.Spec.Template.Spec.Containers[0].Args {
		if value, found := strings.CutPrefix(argument, "--"+name+"="); found {
			return value
		}
	}
	return ""
}

// startAgent runs the manager as the Deployment's Pods do.
func startAgent(ctx context.Context, binary string, deployment *appsv1.Deployment) *gexec.Session {
	GinkgoHelper()
	config := configOf(ctx, deployment.Namespace, deployment.Spec.Template.Spec.ServiceAccountName,
		corev1.FinalizerName(argumentOf(deployment, "finalizer-token")))
	command := framework.DeploymentCommand(deployment, binary, config)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return session
}

// expectInjected waits until the API server injects initializers into new namespaces, or stops
// injecting them.
func expectInjected(ctx context.Context, isExpected bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace(unique("probe")).Obj()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		_, isInjected := probe.Labels[v1alpha1.LabelInitializing]
		g.Expect(isInjected).To(Equal(isExpected))
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
}

// eventsAbout returns the reasons of the Events about a namespace.
func eventsAbout(g Gomega, ctx context.Context, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	var reasons []string
	for i := range list.Items {
		if list.Items[i].Regarding.UID == namespace.UID {
			reasons = append(reasons, list.Items[i].Reason)
		}
	}
	return reasons
}
