// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// replicas runs managers and restarts them when they exit.
type replicas struct {
	kubeconfig string
	flags      []string
	// offsets are the differences between the clocks of the managers and of the API server.
	offsets []time.Duration

	lock    sync.Mutex
	running []*gexec.Session
	starts  int
	stopped bool
	done    sync.WaitGroup
}

// startReplicas runs managers until the spec ends.
func startReplicas(config *rest.Config, count int, flags ...string) *replicas {
	GinkgoHelper()
	return startReplicasWithClocks(config, make([]time.Duration, count), flags...)
}

// startReplicasWithClocks is like startReplicas with a manager for each offset of the clock.
func startReplicasWithClocks(config *rest.Config, offsets []time.Duration, flags ...string) *replicas {
	GinkgoHelper()
	r := &replicas{
		kubeconfig: kubeconfigFile(config), flags: flags, offsets: offsets, running: make([]*gexec.Session, len(offsets)),
	}
	for index := range r.running {
		r.start(index)
		r.done.Go(func() { r.supervise(index) })
	}
	DeferCleanup(r.stop)
	return r
}

func (r *replicas) start(index int) {
	r.starts++
	r.running[index] = startProcessWithClock(r.offsets[index], r.kubeconfig, r.flags...)
}

// supervise restarts a manager when it exits.
func (r *replicas) supervise(index int) {
	defer GinkgoRecover()
	for {
		r.lock.Lock()
		session := r.running[index]
		r.lock.Unlock()
		<-session.Exited
		r.lock.Lock()
		stopped := r.stopped
		if !stopped {
			r.start(index)
		}
		r.lock.Unlock()
		if stopped {
			return
		}
		// The kubelet also delays restarts, but for a longer time.
		time.Sleep(time.Second)
	}
}

// random returns one of the sessions, which can have exited.
func (r *replicas) random() *gexec.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.running[random.IntN(len(r.running))]
}

func (r *replicas) stop() {
	r.lock.Lock()
	r.stopped = true
	for _, session := range r.running {
		session.Terminate()
	}
	r.lock.Unlock()
	r.done.Wait()
}

// leader waits until a manager logs that it was elected as leader, and returns its session.
func (r *replicas) leader(ctx context.Context) *gexec.Session {
	GinkgoHelper()
	var leader *gexec.Session
	Eventually(func() *gexec.Session {
		leader = r.currentLeader()
		return leader
	}).WithContext(ctx).ShouldNot(BeNil(), "no manager is the leader")
	return leader
}

// currentLeader returns the session of a manager that was elected as leader and has not exited, or nil.
func (r *replicas) currentLeader() *gexec.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, session := range r.running {
		if session.ExitCode() < 0 && isLeading(session.Err) {
			return session
		}
	}
	return nil
}

func isLeading(log *gbytes.Buffer) bool {
	matches, err := ContainSubstring("uccessfully acquired lease").Match(string(log.Contents()))
	return err == nil && matches
}

// managerConfig returns a client configuration for the manager's ServiceAccount.
func managerConfig(ctx context.Context) *rest.Config {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	return config
}

// runManager runs one manager until the spec ends.
func runManager(binary string, config *rest.Config, flags ...string) *gexec.Session {
	GinkgoHelper()
	session := startProcess(binary, kubeconfigFile(config), flags...)
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return session
}

func startProcess(binary, kubeconfig string, flags ...string) *gexec.Session {
	GinkgoHelper()
	return startCommand(exec.Command(binary), kubeconfig, flags...)
}

// startProcessWithClock starts a manager with another clock if offset is not 0.
func startProcessWithClock(offset time.Duration, kubeconfig string, flags ...string) *gexec.Session {
	GinkgoHelper()
	if offset == 0 {
		return startProcess(binary, kubeconfig, flags...)
	}
	command := exec.Command(binaryWithOffset)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", controlplane.ClockOffset, int(offset.Seconds())))
	return startCommand(command, kubeconfig, flags...)
}

func startCommand(command *exec.Cmd, kubeconfig string, flags ...string) *gexec.Session {
	GinkgoHelper()
	command.Args = append(command.Args, "--kubeconfig="+kubeconfig, "--health-probe-bind-address=0")
	command.Args = append(command.Args, flags...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return session
}

func kubeconfigFile(config *rest.Config) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(path, config)).To(Succeed())
	return path
}
