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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// origin is the namespace finalizer in the example of the namespaces design proposal.
const origin corev1.FinalizerName = "openshift.com/origin"

// finalizerOwner is a controller that owns an entry of spec.finalizers.
type finalizerOwner struct {
	finalizer corev1.FinalizerName
	config    *rest.Config
	writes    requestRecorder
}

func (p *finalizerOwner) start(ctx context.Context) *controlplane.Manager {
	GinkgoHelper()
	return startManager(ctx, p.writes.record(p.config), withNamespaceFinalizer(p.finalizer))
}

var _ = Describe("The namespace in the example of the design proposal", func() {
	var (
		openshift, upstream *finalizerOwner
		namespace           *corev1.Namespace
		held                *corev1.ConfigMap
		observed            *framework.History
	)

	BeforeEach(func(ctx context.Context) {
		cluster.PauseManager()
		openshift = &finalizerOwner{finalizer: origin, config: serviceAccountConfig(ctx, "origin", origin)}
		upstream = &finalizerOwner{finalizer: corev1.FinalizerKubernetes, config: managerConfig(ctx)}

		By("creating a namespace with two namespace finalizers")
		namespace = wrappers.MakeNamespace("development").Label("name", "development").Obj()
		namespace.Spec.Finalizers = []corev1.FinalizerName{origin, corev1.FinalizerKubernetes}
		admin.Creates(ctx, namespace)
		DeferCleanup(func(ctx context.Context) { framework.ExpectDeleted(ctx, admin, namespace) })
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name)).To(And(BeActive(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes), HaveNoFinalizationConditions()))
		observed = framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		admin.Creates(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
		held = withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		admin.Creates(ctx, held)

		By("deleting the namespace while no controller runs")
		admin.Deletes(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes), HaveNoFinalizationConditions())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(3))
	}, NodeTimeout(5*time.Minute))

	It("is finalized if Kubernetes finishes before OpenShift", func(ctx context.Context) {
		By("starting the first controller, which is blocked by a finalizer")
		upstream.start(ctx)
		eventuallyNamespace(ctx, namespace.Name,
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes),
			HaveRemaining("configmaps. has 1 resource instances"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(1))

		By("letting the first controller finish, and checking that it keeps the other namespace finalizer")
		framework.RemoveFinalizers(ctx, admin, held)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(origin))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin), HaveContentRemoved())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).To(HaveKeyWithValue("name", "development"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())

		By("letting the other controller finish")
		openshift.start(ctx)
		framework.ExpectDeleted(ctx, admin, namespace)
		observed.WaitForRemoval(ctx)

		By("checking the history")
		all := "[" + string(origin) + " " + string(corev1.FinalizerKubernetes) + "]"
		Expect(namespaceFinalizers(observed.States())).To(HaveExactElements(all, "["+string(origin)+"]"))
		content := "/namespaces/" + namespace.Name + "/"
		Expect(upstream.writes.matching(content+"configmaps")).To(ConsistOf(
			"DELETE /api/v1"+content+"configmaps/a (1)", "DELETE /api/v1"+content+"configmaps/b (1)",
			"DELETE /api/v1"+content+"configmaps/held (1)"), "the first controller must delete each object once")
		Expect(openshift.writes.matching(content+"configmaps")).To(BeEmpty(), "no objects must remain for the second controller")
		Expect(upstream.writes.matching(content + "finalize")).To(HaveLen(1))
		Expect(openshift.writes.matching(content + "finalize")).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))
})

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
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", path)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-k", path, "--wait=false", "--ignore-not-found")
			Expect(err).NotTo(HaveOccurred())
		})
		key := client.ObjectKey{Namespace: "origin-agent-system", Name: "origin-agent-finalization"}
		Expect(admin.Get(ctx, key, &deployment)).To(Succeed())
		finalizer = corev1.FinalizerName(argumentOf(&deployment, "namespace-finalizer"))
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
			admin.Creates(ctx, review)
			Expect(review.Status.Allowed).To(BeFalse(), "%+v", attributes)
		}
	})

	It("deletes the content of a namespace and removes only its own namespace finalizer", func(ctx context.Context) {
		cluster.PauseManager()
		namespace := createNamespace(ctx, "agent", finalizer)
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		admin.Creates(ctx, held, wrappers.MakeConfigMap(namespace.Name, "settings"))
		foreign := createNamespace(ctx, "foreign")
		kept := wrappers.MakeConfigMap(foreign.Name, "kept")
		admin.Creates(ctx, kept)
		admin.Deletes(ctx, namespace, foreign)

		By("reporting the remaining finalizer in a condition and an Event")
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(And(
				HaveRemaining("configmaps. has 1 resource instances"),
				HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			))
			g.Expect(cluster.EventsAbout(g, ctx, namespace, "")).To(ContainElement(ContainSubstring(" SomeFinalizersRemain ")))
		}).WithContext(ctx).Should(Succeed())
		framework.RemoveFinalizers(ctx, admin, held)

		By("keeping the other namespace finalizer")
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		}).WithContext(ctx).Should(Succeed())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
		expectKept(ctx, kept)
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
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
		corev1.FinalizerName(argumentOf(deployment, "namespace-finalizer")))
	return framework.StartProcess(framework.DeploymentCommand(deployment, binary, config))
}
