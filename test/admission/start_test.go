// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// settled is the number of rejections after which a started API server is considered to enforce a policy.
const settled = 20

// latencies are added to each direction of the connections to etcd, one for each restart. They delay the informers
// of policies, CustomResourceDefinitions and the set.
var latencies = []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond}

// startAttack is one kind of request that is repeated while API servers start.
type startAttack struct {
	name string
	do   func(context.Context) error
	// message is part of the message with which the policy rejects the request after it has read the set.
	message string

	lock sync.Mutex
	// rejections is the number of these rejections since the start of the API server.
	rejections int
	// counts are the numbers of responses of all API servers by their reason.
	counts map[string]int
}

// repeat sends requests until the context is done, or the API server enforces the policy. The pause leaves processor time
// for its start.
func (a *startAttack) repeat(ctx context.Context) {
	for ; ctx.Err() == nil && !a.isRejected(); time.Sleep(2 * time.Millisecond) {
		err := a.do(ctx)
		a.lock.Lock()
		switch {
		case err == nil:
			a.counts["admitted"]++
		case strings.Contains(err.Error(), a.message):
			a.rejections++
			a.counts["rejected with the set"]++
		case strings.Contains(err.Error(), "nslifecycle-"):
			a.counts["rejected without the set"]++
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

// The policies have the failurePolicy that the operator sets. A start of the API server takes about 10 s.
var _ = Describe("An API server that starts", Ordered, ContinueOnFailure, func() {
	var early *framework.User
	var etcd *faults.TCPProxy

	BeforeAll(func(ctx context.Context) { early, etcd = startRestartable(ctx) })

	DescribeTable("admits no restricted template, waiting subject or confined initializer before it has read the set", func(
		ctx context.Context, restarts int,
	) {
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) {
			set.Templates = []internalv1alpha1.EffectiveTemplate{{
				Name: "gold", Access: v1alpha1.AccessRestricted, NamespaceSelector: selecting("tier", "gold"),
			}}
			set.WaitingSubjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: earlyUser}}
		})
		setFailurePolicy(ctx, "Fail", slices.Concat(readTemplates, readSubjects))
		existing := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("existing")).Name
		attacks := slices.Concat(chooseRestricted("RBAC", cluster.Ordinary, existing),
			chooseRestricted("ABAC", early, existing), ignoreSubjects(early, existing), ignoreConfinement(ctx))
		control := createConfigMap(early, metav1.NamespaceDefault)
		for restart := range restarts {
			etcd.SetLatency(latencies[restart%len(latencies)])
			Expect(cluster.KillAPIServer(ctx)).To(Succeed())
			stop := repeatFromStart(ctx, append(attacks, control))
			Expect(cluster.StartAPIServer()).To(Succeed())
			for _, attack := range attacks {
				Eventually(attack.isRejected).WithContext(ctx).Should(BeTrue(), attack.name)
			}
			stop()
			etcd.SetLatency(0)
		}
		for _, attack := range attacks {
			AddReportEntry(attack.name, fmt.Sprintf("%d restarts: %v", restarts, attack.counts), ReportEntryVisibilityAlways)
			Expect(attack.counts).NotTo(HaveKey("admitted"), attack.name)
		}
		AddReportEntry(control.name, fmt.Sprintf("%d restarts: %v", restarts, control.counts), ReportEntryVisibilityAlways)
		Expect(control.counts).To(HaveKey("admitted"))
		Expect(control.counts).NotTo(Or(HaveKey("rejected with the set"), HaveKey("rejected without the set")))
	}, Entry("2 times", 2), Entry("30 times", Label("long"), 30))

	It("allows writes to namespaces and their finalization while the CRD of the set is missing", func(ctx context.Context) {
		publish(ctx)
		initialized := makePlain(ctx, cluster.Ordinary, "initialized")
		initializing := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initializing"))
		blocked := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("blocked"))
		setFailurePolicy(ctx, "Fail", readTemplates)
		setFailurePolicy(ctx, "Ignore", readSubjects)
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "crd", "namespaceinitializersets."+internalv1alpha1.GroupVersion.Group)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.KillAPIServer(ctx)).To(Succeed())
		Expect(cluster.StartAPIServer()).To(Succeed())
		rejectedBy := func(policy string) OmegaMatcher {
			return MatchError(And(ContainSubstring(policy), ContainSubstring("failed to find resource")))
		}
		Eventually(tryPatch).WithContext(ctx).WithArguments(cluster.Ordinary, initialized.Name, "labels", "note", new("x")).
			Should(rejectedBy("nslifecycle-templates"))
		finalize(ctx, initializing.Name)

		By("setting failurePolicy Fail of the policies for subjects")
		setFailurePolicy(ctx, "Fail", readSubjects)
		create := func(namespace string) error {
			return cluster.Admin.Create(ctx, wrappers.MakeConfigMap(namespace, "content"), client.DryRunAll)
		}
		Eventually(create).WithContext(ctx).WithArguments(blocked.Name).Should(rejectedBy("nslifecycle-waiting-subjects"))
		Expect(create(initialized.Name)).To(Succeed())
		Expect(create(metav1.NamespaceSystem)).To(Succeed())
		finalize(ctx, initialized.Name)
	})
})

// finalize deletes a namespace and finalizes it.
func finalize(ctx context.Context, name string) {
	GinkgoHelper()
	namespaces := cluster.Admin.Clientset().CoreV1().Namespaces()
	Expect(namespaces.Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	deleted, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	deleted.Spec.Finalizers = nil
	_, err = namespaces.Finalize(ctx, deleted, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = namespaces.Get(ctx, name, metav1.GetOptions{})
	Expect(err).To(Satisfy(apierrors.IsNotFound))
}

// The policies whose failurePolicy the operator sets to Fail: with templates, and with subjects.
var (
	readTemplates = []string{"mutatingadmissionpolicy/nslifecycle-inject", "validatingadmissionpolicy/nslifecycle-templates"}
	readSubjects  = []string{
		"validatingadmissionpolicy/nslifecycle-waiting-subjects",
		"validatingadmissionpolicy/nslifecycle-waiting-subjects-resources-named-namespaces",
		"validatingadmissionpolicy/nslifecycle-initializer-subjects",
	}
)

// setFailurePolicy sets the failurePolicy of policies, like the operator.
func setFailurePolicy(ctx context.Context, failurePolicy string, names []string) {
	GinkgoHelper()
	for _, policy := range names {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "patch", policy, "--type=merge",
			`--patch={"spec":{"failurePolicy":"`+failurePolicy+`"}}`)
		Expect(err).NotTo(HaveOccurred())
	}
}

// These users are authorized by a file. With RBAC, the API server rejects all requests of users until it has
// read the roles, and then it has often read the policies, too.
const (
	earlyUser = "early@corp.example.com"
	// confinedUser is a ServiceAccount, with a certificate, and a subject of an initializer with a confinement.
	confinedUser = "system:serviceaccount:corp:confined"
)

// startRestartable starts a control plane whose API server can be restarted. It returns
// a user with all permissions on namespaces and ConfigMaps from the first request on, but without other ones.
// There is no observer, because its watches would require another API server, and all attacks are dry runs.
func startRestartable(ctx context.Context) (*framework.User, *faults.TCPProxy) {
	GinkgoHelper()
	address := framework.FreeAddress()
	etcd, err := faults.StartTCPProxy(address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(etcd.Stop)
	dir := GinkgoT().TempDir()
	authority, err := controlplane.NewAuthority(dir)
	Expect(err).NotTo(HaveOccurred())
	permissions := filepath.Join(dir, "abac.jsonl")
	var lines string
	for _, resource := range []string{"namespaces", "configmaps"} {
		for _, user := range []string{earlyUser, confinedUser} {
			lines += `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
				`"spec":{"user":"` + user + `","namespace":"*","resource":"` + resource + `","apiGroup":""}}` + "\n"
		}
	}
	Expect(os.WriteFile(permissions, []byte(lines), 0o600)).To(Succeed())
	cluster = framework.Start(ctx, controlplane.WithRestarts(authority), controlplane.WithEtcdAddress(address),
		controlplane.WithAPIServerFlag("etcd-servers", "http://"+etcd.Address()),
		controlplane.WithAPIServerFlag("authorization-mode", "RBAC,ABAC"),
		controlplane.WithAPIServerFlag("authorization-policy-file", permissions))
	framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no manager runs, which would answer the webhooks")
	install(ctx)
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
		attacks = append(attacks, &startAttack{name: name + ", " + authorizer, do: do, message: "is not allowed to use template",
			counts: map[string]int{}})
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

// ignoreSubjects returns dry runs of a waiting subject that holds the verb initialize.
func ignoreSubjects(user *framework.User, namespace string) []*startAttack {
	clientset, dryRun := user.Clientset().CoreV1(), []string{metav1.DryRunAll}
	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationPendingInitializers + `":""}}}`)
	return []*startAttack{
		createConfigMap(user, namespace),
		{
			name: "complete an initialization", message: "is not allowed to change the initialization",
			counts: map[string]int{},
			do: func(ctx context.Context) error {
				_, err := clientset.Namespaces().Patch(ctx, namespace, types.MergePatchType, patch,
					metav1.PatchOptions{DryRun: dryRun})
				return err
			},
		},
	}
}

// ignoreConfinement confines a user, like the operator, and returns dry runs in a namespace that is not initializing.
func ignoreConfinement(ctx context.Context) []*startAttack {
	GinkgoHelper()
	for _, object := range (policies.ConfinedSubjects{confinedUser: {"a.test.example.com"}}).Render() {
		Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object.DeepCopy()))).To(Succeed())
		cluster.Admin.Creates(ctx, object)
	}
	config, err := cluster.User(confinedUser)
	Expect(err).NotTo(HaveOccurred())
	attack := createConfigMap(framework.NewUser(config), metav1.NamespaceDefault)
	attack.name, attack.message = "ignore the confinement", "is a subject of an initializer with a confinement"
	Eventually(attack.do).WithContext(ctx).Should(MatchError(ContainSubstring(attack.message)))
	return []*startAttack{attack}
}

// createConfigMap returns dry runs of a waiting subject that must wait if the namespace is initializing.
func createConfigMap(user *framework.User, namespace string) *startAttack {
	return &startAttack{
		name: "create in namespace " + namespace, message: "must wait", counts: map[string]int{},
		do: func(ctx context.Context) error {
			_, err := user.Clientset().CoreV1().ConfigMaps(namespace).Create(ctx, wrappers.MakeConfigMap(namespace, "early"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
	}
}

// repeatFromStart repeats the attacks from the time at which the API server accepts connections, until the
// returned function is called.
func repeatFromStart(ctx context.Context, attacks []*startAttack) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	address, err := url.Parse(cluster.Admin.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	for _, attack := range attacks {
		attack.rejections = 0
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
