// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// startControllerManager runs kube-controller-manager until the spec ends.
func startControllerManager(ctx context.Context, controllers string) *controlplane.ControllerManager {
	GinkgoHelper()
	controllerManager, err := cluster.StartControllerManager(ctx, "--controllers="+controllers)
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controllerManager.Stop()).To(Succeed()) })
	Eventually(controllerManager.Log).WithContext(ctx).Should(ContainSubstring("Starting namespace controller"))
	return controllerManager
}

// variable matches the parts of a log line that differ between occurrences of the same message.
var variable = regexp.MustCompile(`peer-\w+-\d+|[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\b\d+(\.\d+)?m?s\b|0x[0-9a-f]+`)

// loggedErrors counts the error lines in a log by message. It ignores the variable parts of
// messages.
func loggedErrors(log string, errorLine *regexp.Regexp) map[string]int {
	found := map[string]int{}
	for line := range strings.Lines(log) {
		if match := errorLine.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			found[variable.ReplaceAllString(match[1], "*")]++
		}
	}
	return found
}

var (
	// managerErrors matches errors in the manager's log in development mode.
	managerErrors = regexp.MustCompile(`\t(ERROR\t.*?"error": .*|ERROR\t[^{]*)`)
	// upstreamErrors matches errors that klog writes: level, date, time, thread, file, message.
	upstreamErrors = regexp.MustCompile(`^E\d{4} \S+ +\d+ (\S+\] .*)`)
)

// createAndDeleteNamespaces creates namespaces that contain a few objects, and deletes them. A
// finalizer blocks every fifth namespace.
func createAndDeleteNamespaces(ctx context.Context, prefix string, count int) (free, held []*corev1.Namespace) {
	GinkgoHelper()
	namespaces := make([]*corev1.Namespace, count)
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(10)
	for i := range count {
		namespaces[i] = wrappers.MakeNamespace(unique(prefix)).Obj()
		group.Go(func() error {
			namespace := namespaces[i]
			objects := append([]client.Object{namespace}, makeConfigMaps(namespace.Name, "a", "b", "c")...)
			meta := func(name string) metav1.ObjectMeta {
				return metav1.ObjectMeta{Namespace: namespace.Name, Name: name}
			}
			objects = append(objects, &corev1.Secret{ObjectMeta: meta("secret")},
				&corev1.ServiceAccount{ObjectMeta: meta("account")},
				wrappers.MakePod(namespace.Name, "pod"),
				&corev1.Service{ObjectMeta: meta("service"), Spec: corev1.ServiceSpec{
					Ports: []corev1.ServicePort{{Port: 80}},
				}})
			if i%5 == 0 {
				objects = append(objects, withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held")))
			}
			for _, object := range objects {
				if err := admin.Create(groupContext, object); err != nil {
					return err
				}
			}
			return nil
		})
	}
	Expect(group.Wait()).To(Succeed())
	for i, namespace := range namespaces {
		if i%5 == 0 {
			held = append(held, namespace)
		} else {
			free = append(free, namespace)
		}
		deleteObject(ctx, namespace)
	}
	return free, held
}

// expectAllDeleted waits until namespaces are deleted.
func expectAllDeleted(ctx context.Context, namespaces []*corev1.Namespace, timeout time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) []string {
		var list corev1.NamespaceList
		g.Expect(admin.List(ctx, &list)).To(Succeed())
		remaining := []string{}
		for _, namespace := range namespaces {
			if slices.ContainsFunc(list.Items, func(other corev1.Namespace) bool { return other.UID == namespace.UID }) {
				remaining = append(remaining, namespace.Name)
			}
		}
		return remaining
	}).WithContext(ctx).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(BeEmpty())
}

// finalizeNamespaces creates and deletes namespaces. It removes the finalizers in the blocked
// namespaces after all other namespaces are deleted, and returns how long finalization took.
func finalizeNamespaces(ctx context.Context, prefix string, count int) time.Duration {
	GinkgoHelper()
	free, held := createAndDeleteNamespaces(ctx, prefix, count)
	begin := time.Now()
	expectAllDeleted(ctx, free, 3*time.Minute)
	for _, namespace := range held {
		framework.RemoveFinalizers(ctx, admin, wrappers.MakeConfigMap(namespace.Name, "held"))
	}
	expectAllDeleted(ctx, held, 3*time.Minute)
	return time.Since(begin).Round(time.Second)
}

func describe(loggedErrors map[string]int) string {
	lines := []string{}
	for _, text := range slices.Sorted(maps.Keys(loggedErrors)) {
		lines = append(lines, fmt.Sprintf("%d x %s", loggedErrors[text], text))
	}
	return strings.Join(lines, "\n")
}

// raceLost matches the errors that a controller logs if another controller has already finalized
// the namespace.
var raceLost = regexp.MustCompile(`not found|has been modified|Precondition failed`)

// onlyIn returns the errors that are in after but not in before, except errors that raceLost
// matches.
func onlyIn(after, before map[string]int) []string {
	texts := []string{}
	for text := range after {
		if before[text] == 0 && !raceLost.MatchString(text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// These specs take a long time because they finalize hundreds of namespaces.
var _ = Describe("In a cluster with kube-controller-manager", Label("long"), func() {
	BeforeEach(stopManager)

	DescribeTable("the manager finalizes all namespaces without additional errors in either log,",
		func(ctx context.Context, controllers string, count int) {
			By("running the manager alone")
			logged := captureLog()
			alone := startManager(ctx, managerConfig(ctx), withGracePeriod(5*time.Second))
			AddReportEntry("manager alone, 20 namespaces", finalizeNamespaces(ctx, "peer-manager", 20).String())
			Expect(alone.Stop()).To(Succeed())
			managerAlone := loggedErrors(string(logged.Contents()), managerErrors)

			By("running kube-controller-manager alone")
			first := startControllerManager(ctx, controllers)
			AddReportEntry("kube-controller-manager alone, 20 namespaces", finalizeNamespaces(ctx, "peer-upstream", 20).String())
			upstreamLog, err := first.Log()
			Expect(err).NotTo(HaveOccurred())
			upstreamAlone := loggedErrors(upstreamLog, upstreamErrors)

			By("running both")
			// The grace period equals kube-controller-manager's delay, so both finalize namespaces
			// concurrently.
			startManager(ctx, managerConfig(ctx), withGracePeriod(5*time.Second))
			AddReportEntry(fmt.Sprintf("together, %d namespaces", count), finalizeNamespaces(ctx, "peer-both", count).String())
			managerTogether := loggedErrors(string(logged.Contents()), managerErrors)
			upstreamLog, err = first.Log()
			Expect(err).NotTo(HaveOccurred())
			upstreamTogether := loggedErrors(upstreamLog, upstreamErrors)
			AddReportEntry("errors logged by the manager alone", describe(managerAlone))
			AddReportEntry("errors logged by the manager in total", describe(managerTogether))
			AddReportEntry("errors logged by kube-controller-manager alone", describe(upstreamAlone))
			AddReportEntry("errors logged by kube-controller-manager in total", describe(upstreamTogether))
			Expect(onlyIn(managerTogether, managerAlone)).To(BeEmpty(), "errors that the manager logs only if kube-controller-manager is running")
			Expect(onlyIn(upstreamTogether, upstreamAlone)).To(BeEmpty(), "errors that kube-controller-manager logs only if the manager is running")
		},
		Entry("with its namespace controller", "namespace-controller", 200),
		Entry("with other controllers of kube-controller-manager", "namespace-controller,garbage-collector-controller,"+
			"serviceaccount-controller,resourcequota-controller,endpointslice-controller,pod-garbage-collector-controller", 60),
	)
})

// These specs take a long time because they observe several resync periods of both controllers.
var _ = Describe("A stuck namespace in a cluster with kube-controller-manager", Label("long"), func() {
	DescribeTable("is not updated repeatedly while it is blocked",
		func(ctx context.Context, make func(namespace string) client.Object, most int) {
			stopManager()
			namespace := createNamespace(ctx, "peer-stuck")
			held := withFinalizer(make(namespace.Name))
			create(ctx, append(makeConfigMaps(namespace.Name, "a", "b"), held)...)
			DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
			startControllerManager(ctx, "namespace-controller")
			startManager(ctx, managerConfig(ctx))
			deleteObject(ctx, namespace)

			By("waiting until both controllers have updated the conditions")
			observed := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
			eventuallyNamespace(ctx, namespace.Name, HaveRemaining(), HaveFinalizersRemaining())
			// kube-controller-manager starts after 5 s and retries every 8 s. The manager retries
			// every 15 s.
			Consistently(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
			}).WithContext(ctx).WithTimeout(15 * time.Second).Should(Succeed())

			By("counting the updates")
			before := len(observed.States())
			Consistently(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
			}).WithContext(ctx).WithTimeout(32 * time.Second).Should(Succeed())
			states := observed.States()
			for _, state := range states {
				GinkgoWriter.Println("conditions at", state.ResourceVersion, state.Status.Conditions)
			}
			AddReportEntry("updates in total, updates in the last 32 s", fmt.Sprintf("%d, %d", len(states), len(states)-before))
			Expect(len(states) - before).To(BeNumerically("<=", most))

			framework.RemoveFinalizers(ctx, admin, held)
			expectDeleted(ctx, namespace)
		},
		Entry("by a ConfigMap", func(namespace string) client.Object {
			return wrappers.MakeConfigMap(namespace, "held")
		}, 0),
		Entry("by a Service", func(namespace string) client.Object {
			return &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "held"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}
		}, 0),
		Entry("by a Pod", func(namespace string) client.Object {
			// While kube-controller-manager waits for Pods, it reports that no content remains
			// (kubernetes/kubernetes PR 138209), but the manager reports the remaining content.
			// Each controller updates the conditions on its own schedule, not in response to the
			// other controller.
			return wrappers.MakePod(namespace, "held")
		}, 9),
	)
})

// This spec takes a long time because it creates thousands of objects.
var _ = Describe("A large namespace", Label("long"), func() {
	It("is finalized, and its conditions report the progress", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		const (
			settings, widgets = 5000, 1000
			// removalTime is how long the simulated controller takes to remove all finalizers.
			removalTime = 20 * time.Second
		)
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "volume")
		dynamicClient := newDynamic()
		resource := dynamicClient.Resource(custom.resource()).Namespace(namespace.Name)
		Expect(parallel(settings+widgets, func(i int) error {
			if i < settings {
				return admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, fmt.Sprint("settings-", i)))
			}
			held := withFinalizer(custom.object(namespace.Name, fmt.Sprint("widget-", i-settings)))
			_, err := resource.Create(ctx, held, metav1.CreateOptions{})
			return err
		})).To(Succeed())

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 5000 resource instances", custom.remaining(widgets)))

		done := make(chan error, 1)
		go func() { // This goroutine simulates the controller that removes the finalizers.
			ticker := time.NewTicker(removalTime / widgets)
			defer ticker.Stop()
			for i := range widgets {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					done <- ctx.Err()
					return
				}
				_, err := resource.Patch(ctx, fmt.Sprint("widget-", i), types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		counts := collectCounts(ctx, namespace, custom)
		Expect(done).To(Receive(BeNil()))
		GinkgoWriter.Println("counts of the custom resources:", counts)
		Expect(len(counts)).To(BeNumerically(">=", 5), "%v", counts)
		for i := 1; i < len(counts); i++ {
			Expect(counts[i]).To(BeNumerically("<", counts[i-1]), "%v", counts)
		}
		expectNoObjects(ctx, namespace.Name)
	})
})

// collectCounts watches the namespace until it no longer exists, and returns the successive numbers
// of remaining custom resources that the conditions report.
func collectCounts(ctx context.Context, namespace *corev1.Namespace, custom customType) []int {
	GinkgoHelper()
	var counts []int
	pattern := regexp.MustCompile(regexp.QuoteMeta(custom.plural+"."+custom.group) + ` has (\d+) resource instances`)
	Eventually(func() error {
		now := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), now); err != nil {
			return err
		}
		found := pattern.FindStringSubmatch(framework.ConditionMessage(now, corev1.NamespaceContentRemaining))
		if len(found) == 2 {
			count, err := strconv.Atoi(found[1])
			if err != nil {
				return err
			}
			if len(counts) == 0 || counts[len(counts)-1] != count {
				counts = append(counts, count)
			}
		}
		return nil
	}).WithContext(ctx).WithTimeout(3 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
	return counts
}
