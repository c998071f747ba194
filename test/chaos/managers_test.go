// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// replicas runs managers, and one for the admission controller, and restarts them when they exit. They serve webhooks
// behind a load balancer, which the API server requires if it does not serve MutatingAdmissionPolicy v1.
type replicas struct {
	balancer *loadBalancer

	lock sync.Mutex
	all  []*replica
	// admission runs only the admission controller.
	admission *replica
	starts    int
	stopped   bool
	done      sync.WaitGroup
}

// replica is a manager.
type replica struct {
	kubeconfig string
	flags      []string
	running    *gexec.Session
}

// startReplicas runs managers until the spec ends.
func startReplicas(config *rest.Config, count int, flags ...string) *replicas {
	GinkgoHelper()
	kubeconfig := framework.KubeconfigFile(config)
	all := make([]*replica, count)
	for index := range all {
		all[index] = &replica{kubeconfig: kubeconfig, flags: flags}
	}
	return runReplicas(config, all...)
}

// runReplicas runs managers until the spec ends. The admission controller uses the connection of a configuration, and
// the URL of the first manager.
func runReplicas(config *rest.Config, all ...*replica) *replicas {
	GinkgoHelper()
	addresses := make([]string, len(all))
	for index := range all {
		addresses[index] = framework.FreeAddress()
	}
	r := &replicas{all: all, balancer: startLoadBalancer(addresses...)}
	DeferCleanup(r.stop)
	webhookURL := r.balancer.url()
	for _, flag := range all[0].flags {
		if value, isURL := strings.CutPrefix(flag, "--webhook-url="); isURL {
			webhookURL = value
		}
	}
	r.admission = &replica{
		kubeconfig: framework.KubeconfigFile(admissionConfig(config)), flags: admissionFlags(webhookURL),
	}
	for index, replica := range all {
		replica.flags = append([]string{controlplane.WithoutAdmission, "--webhook-bind-address=" + addresses[index]},
			replica.flags...)
	}
	for _, replica := range append([]*replica{r.admission}, all...) {
		r.start(replica)
		r.done.Go(func() { r.supervise(replica) })
	}
	return r
}

// admissionFlags gives the webhooks a URL, and returns the flags of a manager that runs only the admission controller.
func admissionFlags(url string) []string {
	GinkgoHelper()
	Expect(plane.SetWebhookURL(context.Background(), url)).To(Succeed())
	return []string{
		"--controllers=admission", "--leader-elect", "--leader-elect-resource-name=admission.nslifecycle.dev",
		"--metrics-bind-address=0", "--webhook-url=" + url,
	}
}

// admissionConfig returns a copy of a configuration with the ServiceAccount of the admission controller.
func admissionConfig(config *rest.Config) *rest.Config {
	GinkgoHelper()
	account, err := plane.ServiceAccountConfig(context.Background(), controlplane.SystemNamespace, controlplane.AdmissionAccount)
	Expect(err).NotTo(HaveOccurred())
	config = rest.CopyConfig(config)
	config.BearerToken = account.BearerToken
	return config
}

// count is the number of processes.
func (r *replicas) count() int { return len(r.all) + 1 }

func (r *replicas) start(replica *replica) {
	r.starts++
	session, err := gexec.Start(managerCommand(binary, replica.kubeconfig, replica.flags...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	replica.running = session
}

// supervise restarts a manager when it exits.
func (r *replicas) supervise(replica *replica) {
	defer GinkgoRecover()
	for {
		session := r.session(replica)
		<-session.Exited
		r.lock.Lock()
		isDone := r.stopped
		if !isDone {
			r.start(replica)
		}
		r.lock.Unlock()
		if isDone {
			return
		}
		// The kubelet also delays restarts, but for a longer time.
		time.Sleep(time.Second)
	}
}

func (r *replicas) session(replica *replica) *gexec.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	return replica.running
}

// random returns one of the sessions, which can have exited.
func (r *replicas) random() *gexec.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.all[random.IntN(len(r.all))].running
}

func (r *replicas) stop() {
	r.lock.Lock()
	r.stopped = true
	for _, replica := range append([]*replica{r.admission}, r.all...) {
		if replica.running != nil {
			replica.running.Terminate()
		}
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
	for _, replica := range r.all {
		if replica.running.ExitCode() < 0 && isLeading(replica.running.Err) {
			return replica.running
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
	return framework.StartProcess(managerCommand(binary, framework.KubeconfigFile(config), flags...))
}

func managerCommand(binary, kubeconfig string, flags ...string) *exec.Cmd {
	return exec.Command(binary, append([]string{"--kubeconfig=" + kubeconfig, "--health-probe-bind-address=0"}, flags...)...)
}
