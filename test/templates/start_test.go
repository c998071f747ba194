// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/faults"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// settled is the number of rejections after which a started API server is considered to enforce a policy.
const settled = 20

// latencies are added to each direction of the connections to etcd. They delay the informers of policies,
// CustomResourceDefinitions and the set.
var latencies = []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

// startAttack is one kind of request that is repeated while API servers start.
type startAttack struct {
	name string
	do   func(context.Context) error

	lock sync.Mutex
	// rejections is the number of rejections by the policy since the start of the API server.
	rejections int
	// admitted are the times of the admitted requests since the start.
	admitted []time.Time
	// counts are the numbers of responses of all API servers by their reason.
	counts map[string]int
}

// repeat sends requests until the context is done.
func (a *startAttack) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		err := a.do(ctx)
		a.lock.Lock()
		switch {
		case err == nil:
			a.admitted = append(a.admitted, time.Now())
			a.counts["admitted"]++
		case strings.Contains(err.Error(), "nslifecycle-"+v1alpha1.PolicyTemplates):
			a.rejections++
			a.counts["rejected by the policy"]++
		case apierrors.IsForbidden(err):
			a.counts["rejected by RBAC"]++
		default:
			a.counts["failed"]++
		}
		a.lock.Unlock()
	}
}

func (a *startAttack) isRejected() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.rejections >= settled
}

// A policy with failurePolicy Ignore is not enforced until the API server knows the type of its parameter and
// has read the parameter. If etcd is slow, the API server admits requests in the meantime, even when it is
// ready (a known limit). The policy inject also has failurePolicy Ignore here, because no manager runs. A start
// of the API server takes about 10 s.
var _ = Describe("An API server that starts", Label("long"), func() {
	It("rejects restricted templates after it has read the set (a known limit)", func(ctx context.Context) {
		restarts := 4
		if text := os.Getenv("TEMPLATES_RESTARTS"); text != "" {
			var err error
			restarts, err = strconv.Atoi(text)
			Expect(err).NotTo(HaveOccurred())
		}
		early, etcd := useRestartable(ctx)
		publish(ctx, v1alpha1.EffectiveTemplate{
			Name: "gold", Access: v1alpha1.AccessRestricted, NamespaceSelector: selecting("tier", "gold"),
		})
		open := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("relabelled"))
		attacks := slices.Concat(chooseRestricted("RBAC", cluster.Ordinary, open.Name), chooseRestricted("ABAC", early, open.Name))
		late := 0
		for restart := range restarts {
			etcd.SetLatency(latencies[restart%len(latencies)])
			Expect(cluster.KillAPIServer(ctx)).To(Succeed())
			stop := attackAtStart(ctx, attacks)
			Expect(cluster.StartAPIServer()).To(Succeed())
			ready := time.Now()
			for _, attack := range attacks {
				Eventually(attack.isRejected).WithContext(ctx).Should(BeTrue(), attack.name)
			}
			stop()
			etcd.SetLatency(0)
			for _, attack := range attacks {
				for _, at := range attack.admitted {
					if at.After(ready) {
						late++
					}
					GinkgoWriter.Printf("restart %d: %s admitted %s after the API server was ready\n", restart, attack.name, at.Sub(ready))
				}
			}
		}
		for _, attack := range attacks {
			AddReportEntry(attack.name, fmt.Sprintf("%d restarts: %v", restarts, attack.counts), ReportEntryVisibilityAlways)
		}
		AddReportEntry("admitted after the API server was ready", late, ReportEntryVisibilityAlways)
	}, SpecTimeout(40*time.Minute))
})

// earlyUser is authorized by a file. With RBAC, the API server rejects all requests of users until it has
// read the roles, and then it has often read the policies, too.
const earlyUser = "early@corp.example.com"

// useRestartable makes the spec use a new control plane whose API server can be restarted. It returns
// a user with all permissions on namespaces from the first request on, but without other ones.
func useRestartable(ctx context.Context) (*framework.User, *faults.TCPProxy) {
	GinkgoHelper()
	address := framework.FreeAddress()
	etcd, err := faults.StartTCPProxy(address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(etcd.Stop)
	dir := GinkgoT().TempDir()
	authority, err := controlplane.NewAuthority(dir)
	Expect(err).NotTo(HaveOccurred())
	permissions := filepath.Join(dir, "abac.jsonl")
	Expect(os.WriteFile(permissions, []byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",`+
		`"spec":{"user":"`+earlyUser+`","namespace":"*","resource":"namespaces","apiGroup":""}}`), 0o600)).To(Succeed())
	shared := cluster
	DeferCleanup(func() { cluster = shared })
	cluster = framework.Start(ctx, controlplane.WithRestarts(authority), controlplane.WithEtcdAddress(address),
		controlplane.WithAPIServerFlag("etcd-servers", "http://"+etcd.Address()),
		controlplane.WithAPIServerFlag("authorization-mode", "RBAC,ABAC"),
		controlplane.WithAPIServerFlag("authorization-policy-file", permissions))
	cluster.Install(ctx, "default")
	config, err := cluster.User(earlyUser)
	Expect(err).NotTo(HaveOccurred())
	return framework.NewUser(config), etcd
}

// chooseRestricted returns dry runs that choose the restricted template gold for a new or existing
// namespace.
func chooseRestricted(authorizer string, user *framework.User, existing string) []*startAttack {
	namespaces, dryRun := user.Clientset().CoreV1().Namespaces(), []string{metav1.DryRunAll}
	var attacks []*startAttack
	add := func(name string, do func(context.Context) error) {
		attacks = append(attacks, &startAttack{name: name + ", " + authorizer, do: do, counts: map[string]int{}})
	}
	for by, key := range map[string]string{"by name": v1alpha1.LabelTemplate, "with a selected label": "tier"} {
		add("create "+by, func(ctx context.Context) error {
			_, err := namespaces.Create(ctx, wrappers.MakeNamespace("shop").Label(key, "gold").Obj(),
				metav1.CreateOptions{DryRun: dryRun})
			return err
		})
		patch := []byte(`{"metadata":{"labels":{"` + key + `":"gold"}}}`)
		for path, subresources := range map[string][]string{"": nil, "/status": {"status"}} {
			add("patch"+path+" "+by, func(ctx context.Context) error {
				_, err := namespaces.Patch(ctx, existing, types.MergePatchType, patch,
					metav1.PatchOptions{DryRun: dryRun}, subresources...)
				return err
			})
		}
	}
	return attacks
}

// attackAtStart repeats the attacks from the time at which the API server accepts connections, until the
// returned function is called.
func attackAtStart(ctx context.Context, attacks []*startAttack) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	address, err := url.Parse(cluster.Admin.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	for _, attack := range attacks {
		attack.rejections, attack.admitted = 0, nil
		group.Go(func() {
			for ctx.Err() == nil {
				if connection, err := net.Dial("tcp", address.Host); err == nil {
					connection.Close()
					break
				}
				time.Sleep(time.Millisecond)
			}
			attack.repeat(ctx)
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}
