// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"maps"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// settled is the number of rejections after which a started API server is considered to enforce a policy.
const settled = 50

// responses are the responses to one kind of request while API servers start.
type responses struct {
	lock sync.Mutex
	// counts are the numbers of responses by their reason.
	counts map[string]int
	// rejections is the number of rejections by the policy since the start of the API server.
	rejections int
	// admitted are the times of the admitted requests since the start.
	admitted []time.Time
}

func (r *responses) add(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	reason := "admitted"
	switch {
	case err == nil:
		r.admitted = append(r.admitted, time.Now())
	case strings.Contains(err.Error(), "nslifecycle-"+v1alpha1.PolicyTemplates):
		reason = "rejected by the policy"
		r.rejections++
	case strings.Contains(err.Error(), "connect"), strings.Contains(err.Error(), "EOF"):
		reason = "no connection"
	default:
		_, reason, _ = strings.Cut(err.Error(), ": ")
		reason = reason[:min(len(reason), 90)]
	}
	r.counts[reason]++
}

// start forgets the responses of the previous API server.
func (r *responses) start() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.rejections, r.admitted = 0, nil
}

func (r *responses) isEnforced() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.rejections >= settled
}

// The API server evaluates a policy without its parameter, or not at all, until it has read the
// policies and the set.
var _ = Describe("An API server that starts", Label("long"), func() {
	It("lets no user choose a restricted template", func(ctx context.Context) {
		restarts := 3
		if text := os.Getenv("TEMPLATES_RESTARTS"); text != "" {
			var err error
			restarts, err = strconv.Atoi(text)
			Expect(err).NotTo(HaveOccurred())
		}
		early := useRestartable(ctx)
		publish(ctx, v1alpha1.EffectiveTemplate{
			Name: "gold", Access: v1alpha1.AccessRestricted, NamespaceSelector: selecting("tier", "gold"),
		})
		open := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("relabelled"))
		attacks := map[string]func(context.Context) error{}
		for authorizer, user := range map[string]*framework.User{"RBAC": cluster.Ordinary, "ABAC": early} {
			for name, attack := range chooseRestricted(user.Clientset(), open.Name) {
				attacks[name+", "+authorizer] = attack
			}
		}
		all := map[string]*responses{}
		for name := range attacks {
			all[name] = &responses{counts: map[string]int{}}
		}
		late, longest := map[string]int{}, time.Duration(0)
		for range restarts {
			Expect(cluster.KillAPIServer(ctx)).To(Succeed())
			stop := attackAtStart(ctx, attacks, all)
			Expect(cluster.StartAPIServer()).To(Succeed())
			ready := time.Now()
			for name := range attacks {
				Eventually(all[name].isEnforced).WithContext(ctx).Should(BeTrue(), name)
			}
			stop()
			for name, one := range all {
				for _, at := range one.admitted {
					longest = max(longest, at.Sub(ready))
					if at.After(ready) {
						late[name]++
					}
				}
			}
		}
		admitted := 0
		for _, name := range slices.Sorted(maps.Keys(all)) {
			AddReportEntry(name, fmt.Sprintf("%v, %d after the API server is ready", all[name].counts, late[name]),
				ReportEntryVisibilityAlways)
			admitted += all[name].counts["admitted"]
		}
		AddReportEntry(fmt.Sprintf("%d restarts, last admission %s after the API server is ready", restarts, longest),
			ReportEntryVisibilityAlways)
		Expect(admitted).To(BeZero())
	}, SpecTimeout(40*time.Minute))
})

// earlyUser is authorized by a file. With RBAC, the API server rejects all requests of users until it has
// read the roles, and then it has often read the policies, too.
const earlyUser = "early@corp.example.com"

// useRestartable makes the spec use a new control plane whose API server can be restarted. It returns
// a user with all permissions on namespaces from the first request on, but without other ones.
func useRestartable(ctx context.Context) *framework.User {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	authority, err := controlplane.NewAuthority(dir)
	Expect(err).NotTo(HaveOccurred())
	permissions := filepath.Join(dir, "abac.jsonl")
	Expect(os.WriteFile(permissions, []byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",`+
		`"spec":{"user":"`+earlyUser+`","namespace":"*","resource":"namespaces","apiGroup":""}}`), 0o600)).To(Succeed())
	shared := cluster
	DeferCleanup(func() { cluster = shared })
	cluster = framework.Start(ctx, controlplane.WithRestarts(authority),
		controlplane.WithAPIServerFlag("authorization-mode", "RBAC,ABAC"),
		controlplane.WithAPIServerFlag("authorization-policy-file", permissions))
	cluster.Install(ctx, "default")
	config, err := cluster.User(earlyUser)
	Expect(err).NotTo(HaveOccurred())
	return framework.NewUser(config)
}

// chooseRestricted returns dry runs that choose the restricted template gold for a new or existing
// namespace.
func chooseRestricted(user kubernetes.Interface, existing string) map[string]func(context.Context) error {
	namespaces, dryRun := user.CoreV1().Namespaces(), []string{metav1.DryRunAll}
	attacks := map[string]func(context.Context) error{}
	for by, key := range map[string]string{"by name": v1alpha1.LabelTemplate, "with a selected label": "tier"} {
		attacks["create "+by] = func(ctx context.Context) error {
			_, err := namespaces.Create(ctx, wrappers.MakeNamespace("shop").Label(key, "gold").Obj(),
				metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		patch := []byte(`{"metadata":{"labels":{"` + key + `":"gold"}}}`)
		for path, subresources := range map[string][]string{"": nil, "/status": {"status"}} {
			attacks["patch"+path+" "+by] = func(ctx context.Context) error {
				_, err := namespaces.Patch(ctx, existing, types.MergePatchType, patch,
					metav1.PatchOptions{DryRun: dryRun}, subresources...)
				return err
			}
		}
	}
	return attacks
}

// attackAtStart repeats the attacks from the time at which the API server accepts connections, until the
// returned function is called.
func attackAtStart(
	ctx context.Context, attacks map[string]func(context.Context) error, all map[string]*responses,
) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	address, _ := url.Parse(cluster.Admin.Config.Host)
	var group sync.WaitGroup
	for name, do := range attacks {
		all[name].start()
		group.Go(func() {
			for ctx.Err() == nil {
				if connection, err := net.Dial("tcp", address.Host); err == nil {
					connection.Close()
					break
				}
				time.Sleep(time.Millisecond)
			}
			for ctx.Err() == nil {
				all[name].add(do(ctx))
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}
