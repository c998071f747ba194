// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// Permissions that initializers require in addition to serving.
var (
	working = rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch"},
	}
	publishing = rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"},
	}
	electing = rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "create", "update"},
	}
)

// points are the points at which a worker can kill itself.
var points = []string{"before-work", "after-work", "before-return", "before-patch", "after-patch"}

// buildWorker builds test/libraries/internal/worker.
func buildWorker(ctx context.Context) string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), "worker")
	Expect(controlplane.Build(ctx, controlplane.Root(), "./test/libraries/internal/worker", binary)).To(Succeed())
	return binary
}

// worker is an initializer that runs in consecutive processes.
type worker struct {
	binary, name, kubeconfig string
	flags                    []string
	eventLog                 string
}

func newWorker(ctx context.Context, binary, account, name string, flags ...string) *worker {
	GinkgoHelper()
	config := newAccount(ctx, account, serving, working, publishing, electing)
	dir := GinkgoT().TempDir()
	w := &worker{
		binary: binary, name: name, flags: flags,
		kubeconfig: filepath.Join(dir, "kubeconfig"), eventLog: filepath.Join(dir, "event.log"),
	}
	Expect(controlplane.WriteKubeconfig(w.kubeconfig, config)).To(Succeed())
	return w
}

// start runs a process until it is killed or the spec ends.
func (w *worker) start(flags ...string) *gexec.Session {
	GinkgoHelper()
	args := append([]string{"--kubeconfig=" + w.kubeconfig, "--name=" + w.name, "--event-log=" + w.eventLog}, w.flags...)
	session, err := gexec.Start(exec.Command(w.binary, append(args, flags...)...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait(time.Minute) })
	return session
}

// supervise restarts the worker repeatedly until the context is canceled. It kills the worker at
// random times, or lets the worker kill itself at each of the points in turn. It returns the number
// of times that it killed the worker.
func (w *worker) supervise(ctx context.Context, random *rand.Rand) int {
	killed := 0
	for life := 0; ctx.Err() == nil; life++ {
		session := w.start("--stop-at="+points[life%len(points)], fmt.Sprintf("--stop-after=%d", 1+random.IntN(10)))
		least := 0
		// Every third process might be killed before it starts its workers. The other processes must have
		// time to process namespaces, even on a slow machine.
		if life%3 != 0 {
			least = 1000
			select {
			case <-session.Err.Detect("Starting workers"):
			case <-session.Exited:
			case <-ctx.Done():
			}
			session.Err.CancelDetects()
		}
		// The maximum lifetime of a process is arbitrary.
		select {
		case <-session.Exited:
		case <-time.After(time.Duration(least+random.IntN(2000)) * time.Millisecond):
			session.Kill()
			<-session.Exited
			killed++
		case <-ctx.Done():
			session.Kill()
			<-session.Exited
		}
	}
	return killed
}

// entry is a line in the event log.
type entry struct{ pid, event, name, uid string }

// read returns the event log.
func (w *worker) read() []entry {
	GinkgoHelper()
	content, err := os.ReadFile(w.eventLog)
	Expect(err).NotTo(HaveOccurred())
	var entries []entry
	for line := range strings.Lines(string(content)) {
		fields := append(strings.Fields(line), "", "")
		entries = append(entries, entry{fields[0], fields[1], fields[2], fields[3]})
	}
	return entries
}

// successes counts the successful calls of the function, by UID.
func (w *worker) successes() map[string]int {
	GinkgoHelper()
	result := map[string]int{}
	for _, entry := range w.read() {
		if entry.event == "success" {
			result[entry.uid]++
		}
	}
	return result
}

var _ = Describe("Initializers that are killed at random", func() {
	// The spec takes a long time because it creates 200 namespaces and restarts the initializers many
	// times.
	It("initialize every namespace and change only their own objects", Label("long"), func(ctx context.Context) {
		const count = 200
		seed := uint64(GinkgoRandomSeed())
		By(fmt.Sprintf("killing with seed %d; repeat with -ginkgo.seed", seed))
		binary := buildWorker(ctx)
		workers := []*worker{
			newWorker(ctx, binary, "killed-first", "first.killed.example.com"),
			newWorker(ctx, binary, "killed-second", "second.killed.example.com", "--unordered"),
			newWorker(ctx, binary, "killed-third", "third.killed.example.com"),
		}
		owners := map[string]string{
			"first.killed.example.com": userOf("killed-first"), "second.killed.example.com": userOf("killed-second"),
			"third.killed.example.com": userOf("killed-third"),
		}
		cluster.Register(ctx, framework.Unique("suite"), workers[0].name, workers[1].name, workers[2].name)
		seen := record(ctx)

		lives, end := context.WithCancel(ctx)
		defer end()
		var running sync.WaitGroup
		killed := make([]int, len(workers))
		for i, w := range workers {
			running.Go(func() {
				defer GinkgoRecover()
				killed[i] = w.supervise(lives, rand.New(rand.NewPCG(seed, uint64(i))))
			})
		}
		namespaces := make([]*corev1.Namespace, count)
		names := make([]string, count)
		for i := range count {
			namespaces[i] = create(ctx, wrappers.MakeNamespace(framework.Unique("killed")))
			names[i] = namespaces[i].Name
			// Create the namespaces gradually, so that every process has namespaces to process.
			if i >= 10 {
				expectReady(ctx, names[i-10])
			}
		}
		expectReady(ctx, names...)
		end()
		running.Wait()

		By("verifying the result for each namespace")
		stopped := map[string]int{}
		var report strings.Builder
		for i, w := range workers {
			starts, repeats := 0, 0
			successes := w.successes()
			for _, entry := range w.read() {
				switch entry.event {
				case "start":
					starts++
				case "stopped":
					stopped[entry.name]++
				}
			}
			for _, namespace := range namespaces {
				Expect(successes[string(namespace.UID)]).To(BeNumerically(">=", 1), "%s, %s", w.name, namespace.Name)
				repeats += successes[string(namespace.UID)] - 1
				Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: w.name},
					&corev1.ConfigMap{})).To(Succeed())
			}
			fmt.Fprintf(&report, "%s: killed by the test %d times, called %d times, %d of these calls after a success\n",
				w.name, killed[i], starts, repeats)
		}
		removals := seen.combine(ctx)
		removals.expectOwners(owners, names...)
		writes := removals.expectNothingLate(owners, names...)
		fmt.Fprintf(&report, "points at which workers killed themselves: %v\n%d writes to %d namespaces, none of them late\n",
			stopped, writes, count)
		AddReportEntry("summary", report.String())
		for _, point := range points {
			Expect(stopped).To(HaveKey(point))
		}
	}, SpecTimeout(12*time.Minute))

	It("are taken over by the other replica when the leader is killed", func(ctx context.Context) {
		w := newWorker(ctx, buildWorker(ctx), "elected", "elected.killed.example.com", "--elect-in="+accounts)
		cluster.Register(ctx, framework.Unique("suite"), w.name)
		replicas := map[string]*gexec.Session{}
		for range 2 {
			session := w.start()
			replicas[fmt.Sprint(session.Command.Process.Pid)] = session
		}
		var names []string
		batch := func() {
			for range 20 {
				names = append(names, create(ctx, wrappers.MakeNamespace(framework.Unique("elected"))).Name)
			}
		}
		batch()
		expectReady(ctx, names[0])
		// Kill the leader while the function runs.
		leader := w.read()[0].pid
		replicas[leader].Kill()
		<-replicas[leader].Exited
		batch()
		expectReady(ctx, names...)

		Expect(w.successes()).To(HaveLen(len(names)))
		isHandedOver := false
		for _, entry := range w.read() {
			if entry.pid != leader {
				isHandedOver = true
			} else {
				Expect(isHandedOver).To(BeFalse(), "both replicas were active: %v", entry)
			}
		}
		Expect(isHandedOver).To(BeTrue())
	}, SpecTimeout(5*time.Minute))
})
