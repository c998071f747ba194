// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// progressDeadline is the progress deadline of the managers in these specs.
const progressDeadline = 2 * time.Second

// startManager runs the manager with the permissions of its own ServiceAccount until the spec ends.
func startManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	withDefaults := func(options *manager.Options) {
		options.DiagnosisProgressDeadline, options.DiagnosisWorkers = progressDeadline, 2
	}
	running, err := plane.StartManager(ctx, append([]func(*manager.Options){withDefaults}, changes...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
}

// tenant returns the configuration of a user who can read all Namespaces, and nothing else.
func tenant(ctx context.Context) *rest.Config {
	GinkgoHelper()
	name := unique("tenant")
	create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}}},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	config, err := plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	return config
}

// only enables a single controller of the manager.
func only(name string) func(*manager.Options) {
	return func(options *manager.Options) { options.Controllers = manager.Controllers{name: true} }
}

func withProgressDeadline(deadline time.Duration) func(*manager.Options) {
	return func(options *manager.Options) { options.DiagnosisProgressDeadline = deadline }
}

// startNamespaceController runs the namespace controller of kube-controller-manager until the spec
// ends.
func startNamespaceController(ctx context.Context) {
	GinkgoHelper()
	controllerManager, err := plane.StartControllerManager(ctx, "--controllers=namespace-controller")
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controllerManager.Stop()).To(Succeed()) })
	Eventually(controllerManager.Log).WithContext(ctx).Should(ContainSubstring("Starting namespace controller"))
}

// diagnosisEvents returns the diagnosis Events for a namespace as "TYPE REASON NOTE". An Event with
// a count of n is returned n times.
func diagnosisEvents(g Gomega, ctx context.Context, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	events := []string{}
	for _, event := range list.Items {
		if event.Regarding.UID != namespace.UID || event.Action != "Diagnose" {
			continue
		}
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		for range times {
			events = append(events, event.Type+" "+event.Reason+" "+event.Note)
		}
	}
	return events
}

// countBlockedTransitions returns the number of times that the condition for a stage became True.
func countBlockedTransitions(states []*corev1.Namespace, stage diagnosis.Stage) int {
	times, isBlocked := 0, false
	for _, state := range states {
		if diagnosis.IsBlocked(state, stage) && !isBlocked {
			times++
		}
		isBlocked = diagnosis.IsBlocked(state, stage)
	}
	return times
}

const (
	deletionBlocked       = v1alpha1.ConditionDeletionBlocked
	initializationBlocked = v1alpha1.ConditionInitializationBlocked
)

// These specs use a dedicated control plane, because the manager finalizes all deleted namespaces and
// counts all blocked ones.
var _ = Describe("The operator", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		sharedPlane, sharedAdmin := plane, admin
		dedicated, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		plane = dedicated
		DeferCleanup(func() {
			plane, admin = sharedPlane, sharedAdmin
			Expect(dedicated.Stop()).To(Succeed())
		})
		admin, err = controlplane.NewClient(dedicated.Admin)
		Expect(err).NotTo(HaveOccurred())
		Expect(dedicated.Install(ctx)).To(Succeed())
	})

	Describe("for a terminating namespace", func() {
		DescribeTable("reports the blocking cause and later progress,",
			func(ctx context.Context, start func(context.Context)) {
				start(ctx)
				// The first finalization can take longer than the deadline.
				earlier := createNamespace(ctx, "earlier")
				deleteObject(ctx, earlier)
				expectDeleted(ctx, earlier)
				namespace := createNamespace(ctx, "stuck")
				first, second := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "first")), withFinalizer(wrappers.MakeConfigMap(namespace.Name, "second"))
				create(ctx, first, second)
				deleteObject(ctx, namespace)
				eventuallyNamespace(ctx, namespace.Name, HaveCondition(deletionBlocked, corev1.ConditionTrue,
					string(diagnosis.CauseFinalizerPending), testFinalizer, "configmaps/first, configmaps/second"))
				Eventually(diagnosisEvents).WithContext(ctx).WithArguments(namespace).Should(
					ConsistOf(And(HavePrefix("Warning FinalizerPending "), ContainSubstring(testFinalizer))))

				By("checking that the cause is reported once")
				settled := get(Default, ctx, namespace.Name)
				Consistently(func(g Gomega) {
					g.Expect(diagnosisEvents(g, ctx, namespace)).To(HaveLen(1))
					g.Expect(nscondition.Find(get(g, ctx, namespace.Name), deletionBlocked)).To(
						Equal(nscondition.Find(settled, deletionBlocked)))
				}).WithContext(ctx).WithTimeout(8 * time.Second).Should(Succeed())

				By("diagnosing the namespace as a user who can read only the Namespace")
				config, asTenant := tenant(ctx), &diagnosis.Diagnosis{}
				// On a busy machine, failing requests of the manager can change the conditions for some time.
				Eventually(func() diagnosis.State {
					asTenant = rules.Diagnose(collectFacts(ctx, config, namespace.Name, 0))
					return asTenant.State
				}).WithContext(ctx).Should(Equal(diagnosis.Blocked))
				Expect(asTenant.Unread).NotTo(BeEmpty())
				Expect(asTenant.Findings).To(HaveExactElements(And(
					HaveField("Cause", diagnosis.CauseFinalizerPending), HaveField("Rank", diagnosis.RankPublished),
					HaveField("Message", nscondition.Find(settled, deletionBlocked).Message))))

				By("removing a finalizer")
				states := framework.WatchNamespace(ctx, plane.Admin, settled)
				removeFinalizers(ctx, first)
				Eventually(states.States).WithContext(ctx).Should(ContainElement(HaveCondition(
					deletionBlocked, corev1.ConditionFalse, v1alpha1.ReasonProgressing, "deletion")))
				eventuallyNamespace(ctx, namespace.Name, HaveCondition(deletionBlocked, corev1.ConditionTrue,
					string(diagnosis.CauseFinalizerPending), `configmaps "second"`))
				removeFinalizers(ctx, second)
				expectDeleted(ctx, namespace)
			},
			Entry("finalized by the manager", func(ctx context.Context) { startManager(ctx) }, SpecTimeout(5*time.Minute)),
			Entry("finalized by kube-controller-manager", func(ctx context.Context) {
				startNamespaceController(ctx)
				// The namespace controller starts after 5 s. A shorter deadline results in the cause
				// NamespaceControllerUnresponsive.
				startManager(ctx, only(manager.Diagnosis), withProgressDeadline(8*time.Second))
			}, SpecTimeout(5*time.Minute)),
		)

		It("reports nothing while a slow finalization makes progress", func(ctx context.Context) {
			// The whole finalization takes longer than the deadline, but each step takes less time,
			// even if the machine is busy.
			const progressDeadline = 15 * time.Second
			startManager(ctx, withProgressDeadline(progressDeadline))
			namespace := createNamespace(ctx, "slow")
			var objects []client.Object
			for i := range 12 {
				objects = append(objects, withFinalizer(wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%02d", i))))
			}
			create(ctx, objects...)
			states := framework.WatchNamespace(ctx, plane.Admin, get(Default, ctx, namespace.Name))
			deleteObject(ctx, namespace)
			begin := time.Now()
			Eventually(func() []client.Object {
				removeFinalizers(ctx, objects[0])
				objects = objects[1:]
				return objects
			}).WithContext(ctx).WithPolling(progressDeadline / 8).Should(BeEmpty())
			Expect(time.Since(begin)).To(BeNumerically(">", progressDeadline))
			states.WaitForRemoval(ctx)
			Expect(states.States()).To(And(Not(BeEmpty()), HaveEach(Satisfy(func(state *corev1.Namespace) bool {
				return nscondition.Find(state, deletionBlocked) == nil
			}))))
			Expect(diagnosisEvents(Default, ctx, namespace)).To(BeEmpty())
		}, SpecTimeout(5*time.Minute))

		// Both controllers update conditions and disagree about pods: kube-controller-manager reports no
		// remaining content while it waits for pods.
		// Long: this spec observes several resync periods of both controllers.
		DescribeTable("does not repeatedly change the condition while kube-controller-manager is also running", Label("long"),
			func(ctx context.Context, make func(namespace string) client.Object) {
				namespace := createNamespace(ctx, "both")
				held := withFinalizer(make(namespace.Name))
				create(ctx, held)
				startNamespaceController(ctx)
				startManager(ctx)
				states := framework.WatchNamespace(ctx, plane.Admin, get(Default, ctx, namespace.Name))
				deleteObject(ctx, namespace)
				blocked := Satisfy(func(state *corev1.Namespace) bool {
					return diagnosis.IsBlocked(state, diagnosis.StageTerminating)
				})
				eventuallyNamespace(ctx, namespace.Name, blocked)
				// kube-controller-manager starts after 5 s and retries every 8 s. The diagnosis
				// might treat its first update as progress.
				time.Sleep(15 * time.Second)
				before := countBlockedTransitions(states.States(), diagnosis.StageTerminating)
				Consistently(func(g Gomega) {
					g.Expect(get(g, ctx, namespace.Name)).To(blocked)
					g.Expect(countBlockedTransitions(states.States(), diagnosis.StageTerminating)).To(Equal(before))
				}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
				Expect(before).To(BeNumerically("<=", 3))
				removeFinalizers(ctx, held)
				expectDeleted(ctx, namespace)
			},
			Entry("if a ConfigMap blocks the deletion", func(namespace string) client.Object {
				return wrappers.MakeConfigMap(namespace, "held")
			}, SpecTimeout(5*time.Minute)),
			Entry("if a Pod blocks the deletion", func(namespace string) client.Object {
				return &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "held"},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "example.com/none"}}},
				}
			}, SpecTimeout(5*time.Minute)),
		)
	})

	Describe("for an initializing namespace", func() {
		It("reports an initializer that is not running, until the pending list is empty", func(ctx context.Context) {
			startManager(ctx)
			const initializer = "absent.test.example.com"
			configuration := wrappers.MakeConfiguration(unique("absent")).Initializers(initializer).Obj()
			create(ctx, configuration)
			Eventually(func(g Gomega) {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
				g.Expect(configuration.Status.Conditions).To(ContainElement(HaveField("Reason", v1alpha1.ReasonEnforced)))
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())

			namespace := createNamespace(ctx, "waiting")
			eventuallyNamespace(ctx, namespace.Name, HaveCondition(initializationBlocked, corev1.ConditionTrue,
				string(diagnosis.CauseInitializerNotRunning), initializer))
			Eventually(diagnosisEvents).WithContext(ctx).WithArguments(namespace).Should(
				ConsistOf(HavePrefix("Warning InitializerNotRunning ")))

			patch := client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationPendingInitializers+`":""}}}`))
			Expect(admin.Patch(ctx, namespace, patch)).To(Succeed())
			eventuallyNamespace(ctx, namespace.Name, And(
				HaveCondition(initializationBlocked, corev1.ConditionFalse, v1alpha1.ReasonProgressing, ""),
				HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted)))
		}, SpecTimeout(5*time.Minute))
	})

	Describe("metrics", func() {
		It("include the number of blocked namespaces", func(ctx context.Context) {
			scrape := startProcess(ctx, "--controllers=finalization,diagnosis", "--diagnosis-progress-deadline="+progressDeadline.String())
			namespace := createNamespace(ctx, "blocked")
			held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
			create(ctx, held)
			deleteObject(ctx, namespace)
			const blocked = `nslifecycle_namespaces_blocked{cause="FinalizerPending",stage="Terminating"} `
			Eventually(scrape).WithContext(ctx).Should(And(
				ContainElement(blocked+"1"), ContainElement(HavePrefix(`nslifecycle_diagnoses_total{result="blocked"} `)),
				ContainElement(HavePrefix("nslifecycle_diagnosis_duration_seconds_count ")),
				ContainElement(MatchRegexp(`^nslifecycle_diagnosis_requests_total [1-9]`))))
			AddReportEntry("metrics", strings.Join(scrape(Default), "\n"))
			removeFinalizers(ctx, held)
			expectDeleted(ctx, namespace)
			Eventually(scrape).WithContext(ctx).Should(ContainElement(blocked + "0"))
		}, SpecTimeout(5*time.Minute))
	})
})

// startProcess runs the manager binary until the spec ends. It returns a function that scrapes the
// metrics of this project.
func startProcess(ctx context.Context, flags ...string) func(Gomega) []string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())

	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())
	address := framework.FreeAddress()
	session, err := gexec.Start(exec.Command(binary, append(flags, "--kubeconfig="+kubeconfig,
		"--health-probe-bind-address=0", "--metrics-bind-address="+address, "--metrics-secure=false")...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return func(g Gomega) []string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		if err != nil { // The manager is still starting.
			return nil
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		lines := []string{}
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "nslifecycle_") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
}
