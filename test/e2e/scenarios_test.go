// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// e2eLabel is the label of the namespaces that the specs create.
	e2eLabel = "example.com/nslifecycle-e2e"

	ownerInitializer   = "owner.e2e.example.com"
	policyInitializer  = "policy.e2e.example.com"
	failingInitializer = "failing.e2e.example.com"
)

var _ = Describe("A namespace", func() {
	It("is initialized by two initializers before its user can write to it, and is deleted with all its content", func(ctx context.Context) {
		By("running two initializers with few permissions")
		applyText(ctx, initializers.OwnerManifest)
		applyText(ctx, initializers.PolicyManifest)
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "delete", "namespace,clusterrole,clusterrolebinding", initializers.OwnerAccount, initializers.PolicyAccount)
		}, NodeTimeout(2*time.Minute))
		isHeld := &atomic.Bool{}
		isHeld.Store(true)
		start(ctx, initializers.OwnerAccount, ownerInitializer, initializers.Owner)
		start(ctx, initializers.PolicyAccount, policyInitializer,
			func(ctx context.Context, clientset kubernetes.Interface, namespace *corev1.Namespace) error {
				if isHeld.Load() {
					return errors.New("held by the test")
				}
				return initializers.Policy(ctx, clientset, namespace)
			})
		register(ctx, ownerInitializer, policyInitializer)

		By("creating a namespace as a user")
		userConfig := user(ctx, "developer")
		asUser, err := controlplane.NewClient(userConfig)
		Expect(err).NotTo(HaveOccurred())
		namespace := createNamespace(ctx, "shop-", asUser)
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy,
			"system:serviceaccount:"+accounts+":developer"))
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			g.Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, policyInitializer))
		}).WithContext(ctx).Should(Succeed())
		// The user is already an administrator of the namespace, but must wait until it is initialized.
		early := make(chan error, 1)
		go func() { early <- asUser.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early")) }()
		Consistently(early).WithContext(ctx).WithTimeout(3 * time.Second).ShouldNot(Receive())
		isHeld.Store(false)
		Eventually(early).WithContext(ctx).Should(Receive(BeNil()))
		expectReady(ctx, namespace)

		By("running workloads in the namespace")
		for _, object := range shop(namespace.Name) {
			Expect(asUser.Create(ctx, object)).To(Succeed())
		}
		Eventually(func() []corev1.Pod { return runningPods(ctx, namespace.Name) }).WithContext(ctx).Should(HaveLen(4))

		By("deleting the namespace")
		_, err = plugin(ctx, "delete", namespace.Name, "--timeout=2m")
		Expect(err).NotTo(HaveOccurred())
		expectDeleted(ctx, namespace)
	}, SpecTimeout(6*time.Minute))

	It("is deleted if an initializer fails", func(ctx context.Context) {
		applyText(ctx, initializers.OwnerManifest)
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "delete", "namespace,clusterrole,clusterrolebinding", initializers.OwnerAccount)
		}, NodeTimeout(2*time.Minute))
		start(ctx, initializers.OwnerAccount, failingInitializer, fail)
		register(ctx, failingInitializer)
		expectDeleted(ctx, createNamespace(ctx, "failed-", nil))
	}, SpecTimeout(4*time.Minute))

	It("reports what blocks its deletion", func(ctx context.Context) {
		namespace := createNamespace(ctx, "stuck-", nil)
		expectReady(ctx, namespace)
		held := wrappers.MakeConfigMap(namespace.Name, "held")
		held.Finalizers = []string{"example.com/no-controller"}
		Expect(admin.Create(ctx, held)).To(Succeed())
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			g.Expect(namespace).To(HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue,
				"SomeFinalizersRemain", "example.com/no-controller"))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			output, _ := plugin(ctx, "explain", namespace.Name)
			g.Expect(output).To(And(ContainSubstring("held"), ContainSubstring("example.com/no-controller")))
		}).WithContext(ctx).Should(Succeed())
		kubectl(ctx, "--namespace="+namespace.Name, "patch", "configmap", "held", "--type=json",
			`--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(4*time.Minute))
})

// createNamespace creates a labeled namespace, as an administrator if the creator is nil.
func createNamespace(ctx context.Context, prefix string, creator client.Client) *corev1.Namespace {
	GinkgoHelper()
	if creator == nil {
		creator = admin
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "nslifecycle-e2e-" + prefix, Labels: map[string]string{e2eLabel: ""},
	}}
	Expect(creator.Create(ctx, namespace)).To(Succeed())
	return namespace
}

func expectReady(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	kubectl(ctx, "wait", "--for=condition=Ready", "namespace/"+namespace.Name, "--timeout=1m")
}

func expectDeleted(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue(), "namespace %q still exists", namespace.Name)
}

// start runs an initializer with a ServiceAccount that has the same name as its namespace.
func start(ctx context.Context, account, name string, work initializers.Work) {
	GinkgoHelper()
	initializer, err := initializers.Start(ctx, serviceAccount(ctx, account, account), name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(initializer.Stop)
}

// fail is an initializer function that reports a permanent failure.
func fail(ctx context.Context, clientset kubernetes.Interface, namespace *corev1.Namespace) error {
	result, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: "quota exceeded",
	})
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": namespace.UID, "annotations": map[string]string{v1alpha1.AnnotationInitializationResult: string(result)},
	}})
	if err != nil {
		return err
	}
	_, err = clientset.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	// If the function returned nil, the initializer would complete.
	return errors.Join(err, errors.New("failed permanently"))
}

// register registers initializers until the end of the spec.
func register(ctx context.Context, names ...string) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration("nslifecycle-e2e").Initializers(names...).Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(admin.Delete(ctx, configuration)).To(Succeed())
		Eventually(func(g Gomega) {
			var set internalv1alpha1.NamespaceInitializerSet
			g.Expect(admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, &set)).To(Succeed())
			g.Expect(set.Initializers).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	})
	kubectl(ctx, "wait", "--for=condition=Ready", "namespaceinitializerconfiguration/"+configuration.Name, "--timeout=2m")
}

func runningPods(ctx context.Context, namespace string) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(admin.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
	var running []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			running = append(running, pod)
		}
	}
	return running
}

// shop returns the objects of a typical application: a Deployment, a StatefulSet and a Job with
// four Pods in total, and related objects.
func shop(namespace string) []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	labels := func(app string) map[string]string { return map[string]string{"app": app} }
	template := func(app string, policy corev1.RestartPolicy) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels(app)},
			Spec: corev1.PodSpec{
				RestartPolicy: policy, TerminationGracePeriodSeconds: ptr.To[int64](5),
				Containers: []corev1.Container{{
					Name: "sleep", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
					// Use the manager's image, because no other image is guaranteed to be
					// available. Without permissions, it never becomes the leader, so it does
					// nothing until the Pod is stopped.
					Command: []string{
						"/manager", "--controllers=diagnosis", "--leader-elect", "--health-probe-bind-address=0",
					},
					// The initializer's quota requires resource requests.
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
					}},
				}},
			},
		}
	}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"color": "blue"}},
		&corev1.Secret{ObjectMeta: meta("password"), StringData: map[string]string{"password": "secret"}},
		&corev1.ServiceAccount{ObjectMeta: meta("robot")},
		&rbacv1.RoleBinding{
			ObjectMeta: meta("robots-see"), Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		},
		&corev1.Service{ObjectMeta: meta("front"), Spec: corev1.ServiceSpec{
			Selector: labels("front"), Ports: []corev1.ServicePort{{Port: 80}},
		}},
		&appsv1.Deployment{ObjectMeta: meta("front"), Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels("front")},
			Template: template("front", corev1.RestartPolicyAlways),
		}},
		&appsv1.StatefulSet{ObjectMeta: meta("store"), Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels("store")},
			Template: template("store", corev1.RestartPolicyAlways),
		}},
		&batchv1.Job{ObjectMeta: meta("report"), Spec: batchv1.JobSpec{
			Template: template("report", corev1.RestartPolicyNever),
		}},
	}
}
