// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// upgradeFrom is the environment variable that contains the Git revision to upgrade from.
const upgradeFrom = "UPGRADE_FROM"

var _ = Describe("An upgrade from another version", func() {
	It("preserves the initialization and finalization of existing namespaces", func(ctx context.Context) {
		from := os.Getenv(upgradeFrom)
		if from == "" {
			Skip("no version to upgrade from: set " + upgradeFrom + " to a tag, or run `make test-upgrade`")
		}
		old := filepath.Join(GinkgoT().TempDir(), "old")
		git(ctx, "worktree", "add", "--detach", old, from)
		DeferCleanup(func(ctx context.Context) { git(ctx, "worktree", "remove", "--force", old) })

		By("installing the other version in a dedicated control plane")
		cluster, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
		clusterAdmin := framework.NewUser(cluster.Admin)
		apply := func(root string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, cluster.Admin, "apply", "-k", filepath.Join(root, "config", "default"))
			Expect(err).NotTo(HaveOccurred())
		}
		apply(old)
		Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
		oldBinary := filepath.Join(cluster.Dir, "old-manager")
		Expect(controlplane.Build(ctx, old, controlplane.ManagerProgram, oldBinary)).To(Succeed())
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		admission, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.AdmissionAccount)
		Expect(err).NotTo(HaveOccurred())
		oldManager := runManager(oldBinary, config, controlplane.WithoutAdmission, "--leader-elect")
		oldAdmission := runManager(oldBinary, admission, "--controllers=admission", "--leader-elect",
			"--leader-elect-resource-name=admission.nslifecycle.dev")

		By("creating one namespace at each stage")
		clusterAdmin.Creates(ctx, wrappers.MakeConfiguration("upgrade").Initializers(ownerInitializer).Obj())
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace("probe").Obj()
			g.Expect(clusterAdmin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		stages := map[string]*corev1.Namespace{}
		for _, stage := range []string{"waiting", "ready", "terminating"} {
			stages[stage] = wrappers.MakeNamespace(stage).Obj()
			clusterAdmin.Creates(ctx, stages[stage])
		}
		expectInitializing := func(stage string, status corev1.ConditionStatus, reason string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: stage}, stages[stage])).To(Succeed())
				g.Expect(stages[stage]).To(HaveCondition(v1alpha1.ConditionInitializing, status, reason))
			}).WithContext(ctx).Should(Succeed())
		}
		for _, stage := range []string{"ready", "terminating"} {
			emptyPendingList(ctx, cluster, stage)
			expectInitializing(stage, corev1.ConditionFalse, v1alpha1.ReasonInitialized)
		}
		held := wrappers.MakeConfigMap("terminating", "held")
		held.Finalizers = []string{"example.com/held"}
		clusterAdmin.Creates(ctx, held)
		clusterAdmin.Deletes(ctx, stages["terminating"])
		expectInitializing("waiting", corev1.ConditionTrue, v1alpha1.ReasonInitializing)
		before := stages["waiting"].DeepCopy()

		By("upgrading the objects and then replacing the manager, as a Deployment does")
		apply(controlplane.Root())
		runManager(binary, config, controlplane.WithoutAdmission, "--leader-elect")
		_, err = cluster.StartAdmission(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, process := range []*gexec.Session{oldManager, oldAdmission} {
			process.Terminate()
			Eventually(process).WithContext(ctx).Should(gexec.Exit(0))
		}

		By("checking that each namespace continues from its stage")
		Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: "waiting"}, stages["waiting"])).To(Succeed())
		Expect(stages["waiting"].Annotations).To(Equal(before.Annotations))
		user, err := cluster.User("developer")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Admin, "create", "clusterrolebinding", "developer", "--clusterrole=edit", "--user=developer")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, user, "--namespace=waiting", "create", "configmap", "early")
		Expect(err).To(MatchError(ContainSubstring("is being initialized")))
		emptyPendingList(ctx, cluster, "waiting")
		expectInitializing("waiting", corev1.ConditionFalse, v1alpha1.ReasonInitialized)
		expectInitializing("ready", corev1.ConditionFalse, v1alpha1.ReasonInitialized)
		clusterAdmin.Reads(ctx, held)
		held.Finalizers = nil
		clusterAdmin.Updates(ctx, held)
		for _, stage := range []string{"waiting", "ready"} {
			clusterAdmin.Deletes(ctx, stages[stage])
		}
		for stage := range stages {
			Eventually(func() bool {
				return apierrors.IsNotFound(clusterAdmin.Get(ctx, client.ObjectKey{Name: stage}, &corev1.Namespace{}))
			}).WithContext(ctx).Should(BeTrue(), stage)
		}
	}, SpecTimeout(10*time.Minute))
})

// emptyPendingList empties the pending list of a namespace as an administrator.
func emptyPendingList(ctx context.Context, cluster *controlplane.ControlPlane, name string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin, "annotate", "--overwrite", "namespace", name, v1alpha1.AnnotationPendingInitializers+"=")
	Expect(err).NotTo(HaveOccurred())
}

func git(ctx context.Context, arguments ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "git", arguments...)
	command.Dir = controlplane.Root()
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

const (
	// apiServersVariable is the environment variable with the minor versions of API servers, in the order of the upgrade.
	apiServersVariable = "CHAOS_API_SERVERS"
	// perStage is the number of namespaces that are created and removed through each API server at each stage.
	perStage = 10
	// untilInstalled is longer than the time after which the operator discovers the types of an API server.
	untilInstalled = 90 * time.Second
)

// slot is one of the API servers of a cluster. Clients reach it at the same address after an upgrade.
type slot struct {
	balancer *loadBalancer
	server   *framework.SecondAPIServer
	version  string
}

// The upgrade takes minutes.
var _ = Describe("API servers", Serial, func() {
	It("are upgraded and taken back while namespaces are created and deleted", func(ctx context.Context) {
		if len(apiServers) < 2 {
			Skip("no API servers to upgrade: set " + apiServersVariable + " to their versions")
		}
		slots := []*slot{startSlot(ctx, apiServers[0]), startSlot(ctx, apiServers[0])}
		managers := startManagerFor(ctx, slots)
		s := &scenario{admin: undisturbed.As(cluster.Admin), managers: managers}
		cluster.ExpectActive(ctx, "chaos")
		expectFail(ctx)
		s.createTemplate(ctx)
		for _, slot := range slots {
			slot.expectInjection(ctx, v1alpha1.TemplatesInitializer)
		}
		s.keep(ctx)
		waiting := s.createWaiting(ctx)

		user := addRequester(ctx)
		var all []*traffic
		for _, slot := range slots {
			all = append(all, startTrafficThrough(ctx, slot.configFor(user), map[string]string{provisioned: "yes"}))
		}
		stopChanges := s.changeContinuously(ctx)
		var stages []string
		order := append(slices.Clone(apiServers), reverse(apiServers)[1:]...)
		for i, directory := range order {
			for _, slot := range slots {
				if i > 0 {
					slot.replace(ctx, directory)
				}
				stages = append(stages, expectStage(ctx, slots, all))
				Expect(managers.starts).To(Equal(managers.count()), "a manager restarted")
			}
			expectMechanism(ctx, slots)
		}
		s.expectEndState(ctx, all[0], stopChanges, time.Now())
		all[1].stop()
		all[1].expectRemoved()
		AddReportEntry("stages", strings.Join(stages, "\n"), ReportEntryVisibilityAlways)

		after := &corev1.Namespace{}
		Expect(s.admin.Get(ctx, client.ObjectKeyFromObject(waiting), after)).To(Succeed())
		Expect(stateOf(after)).To(Equal(stateOf(waiting)), "the namespace lost state")
	}, SpecTimeout(40*time.Minute))

	// The webhooks never had rules, as after an installation on the newer version.
	DescribeTable("are taken back", func(ctx context.Context, enable bool) {
		if len(apiServers) < 2 {
			Skip("no API server to take back: set " + apiServersVariable + " to the versions")
		}
		only := startSlot(ctx, apiServers[1])
		patchWebhooks(ctx, removeRules)
		managers := startManagerFor(ctx, []*slot{only})
		cluster.ExpectActive(ctx, "chaos")
		if enable {
			patchWebhooks(ctx, addRules)
		}
		only.expectInjection(ctx, ownerInitializer)
		only.replace(ctx, apiServers[0])
		start, without := time.Now(), 0
		user := framework.NewUser(only.configFor(plane.Admin))
		Eventually(func() string {
			probe := wrappers.MakeNamespace("probe").Obj()
			if user.Create(ctx, probe, client.DryRunAll) == nil && framework.PendingOf(probe) == "" {
				without++
			}
			return framework.PendingOf(probe)
		}).WithContext(ctx).WithTimeout(untilInstalled).Should(ContainSubstring(ownerInitializer))
		AddReportEntry("gap", fmt.Sprintf("%s injects initializers after %.1f s, %d namespaces before", only.version,
			time.Since(start).Seconds(), without), ReportEntryVisibilityAlways)
		if enable {
			Expect(without).To(BeZero())
		}
		Expect(managers.starts).To(Equal(managers.count()), "a manager restarted")
	},
		Entry("and inject nothing until the operator discovers it", SpecTimeout(10*time.Minute), false),
		Entry("and inject initializers if an administrator has enabled the webhooks", SpecTimeout(10*time.Minute), true),
	)
})

// Patches of the webhooks: in the manifest, they have no rules, and an administrator can add them.
const (
	removeRules = `[{"op":"replace","path":"/webhooks/0/rules","value":[]},{"op":"replace","path":"/webhooks/1/rules","value":[]},
		{"op":"replace","path":"/webhooks/2/rules","value":[]}]`
	addRules = `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"},{"op":"add","path":"/webhooks/0/rules",
		"value":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["namespaces"]}]}]`
)

func patchWebhooks(ctx context.Context, patch string) {
	GinkgoHelper()
	_, err := plane.Kubectl(ctx, plane.Admin, "patch", "mutatingwebhookconfiguration", internalv1alpha1.InjectConfiguration, "--type=json",
		"--patch="+patch)
	Expect(err).NotTo(HaveOccurred())
}

// startManagerFor starts a manager that uses all API servers. Without leader election, it does not exit while it cannot
// reach an API server, so it must never exit.
func startManagerFor(ctx context.Context, slots []*slot) *replicas {
	GinkgoHelper()
	var addresses []string
	for _, slot := range slots {
		addresses = append(addresses, slot.balancer.address())
	}
	config := managerConfig(ctx)
	config.Host = startLoadBalancer(addresses...).url()
	return startReplicas(config, 1, "--leader-elect=false", "--metrics-bind-address=0")
}

func reverse(directories []string) []string {
	directories = slices.Clone(directories)
	slices.Reverse(directories)
	return directories
}

func startSlot(ctx context.Context, directory string) *slot {
	GinkgoHelper()
	s := &slot{balancer: startLoadBalancer("")}
	s.replace(ctx, directory)
	return s
}

// replace starts an API server, and then kills the current one.
func (s *slot) replace(ctx context.Context, directory string) {
	GinkgoHelper()
	old := s.server
	s.server = cluster.StartAPIServerFrom(ctx, directory, "--etcd-servers="+members.URLs())
	s.balancer.replace(0, strings.TrimPrefix(s.server.ConfigFor(plane.Admin).Host, "https://"))
	if old != nil {
		Expect(old.Stop()).To(Succeed())
	}
	api, err := discovery.NewDiscoveryClientForConfig(s.configFor(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	version, err := api.ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	s.version = version.GitVersion
}

func (s *slot) configFor(user *rest.Config) *rest.Config {
	user = rest.CopyConfig(user)
	user.Host = s.balancer.url()
	return user
}

// expectInjection waits until the API server adds an initializer to new namespaces, and the webhooks are complete.
func (s *slot) expectInjection(ctx context.Context, initializer string) {
	GinkgoHelper()
	api := framework.NewUser(s.configFor(plane.Admin))
	Eventually(func(g Gomega) {
		webhooks := &admissionv1.MutatingWebhookConfiguration{}
		g.Expect(api.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, webhooks)).To(Succeed())
		if inject := webhooks.Webhooks[0]; len(inject.Rules) > 0 {
			g.Expect(inject.ClientConfig.URL).To(HaveValue(ContainSubstring("/inject/")))
		}
		probe := makeProvisioned("probe")
		g.Expect(api.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(initializer))
	}).WithContext(ctx).Should(Succeed())
}

// createWaiting creates a namespace that waits for an initializer that is not running.
func (s *scenario) createWaiting(ctx context.Context) *corev1.Namespace {
	GinkgoHelper()
	registerHeld(ctx)
	cluster.ExpectActive(ctx, "held")
	namespace := wrappers.MakeNamespace(framework.Unique("waiting")).Label("held", "true").Obj()
	admin.Creates(ctx, namespace)
	Eventually(func(g Gomega) {
		g.Expect(s.admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		g.Expect(framework.PendingOf(namespace)).To(Equal(heldInitializer))
	}).WithContext(ctx).Should(Succeed())
	return namespace
}

// stateOf returns the labels and annotations of a namespace.
func stateOf(namespace *corev1.Namespace) map[string]string {
	state := maps.Clone(namespace.Labels)
	maps.Copy(state, namespace.Annotations)
	return state
}

// expectStage waits until namespaces have been created and removed through each API server, and describes the stage.
func expectStage(ctx context.Context, slots []*slot, all []*traffic) string {
	GinkgoHelper()
	start := time.Now()
	var versions, recoveries []string
	for i, traffic := range all {
		before := traffic.count()
		initialized, _ := traffic.recovery(ctx, start)
		Eventually(traffic.count).WithContext(ctx).WithTimeout(waitTimeout).Should(BeNumerically(">=", before+perStage))
		versions = append(versions, slots[i].version)
		recoveries = append(recoveries, fmt.Sprintf("%.1f s", initialized.Seconds()))
	}
	return fmt.Sprintf("%s: next initialized after %s, %.0f s", strings.Join(versions, " and "), strings.Join(recoveries, " and "),
		time.Since(start).Seconds())
}

// expectMechanism waits until the policies are installed if all API servers serve their type.
func expectMechanism(ctx context.Context, slots []*slot) {
	GinkgoHelper()
	for _, slot := range slots {
		if !framework.ServesPolicies(ctx, slot.configFor(plane.Admin)) {
			return
		}
	}
	Eventually(func() error {
		return framework.NewUser(slots[0].configFor(plane.Admin)).Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration},
			&admissionv1.MutatingAdmissionPolicy{})
	}).WithContext(ctx).WithTimeout(untilInstalled).Should(Succeed())
}
