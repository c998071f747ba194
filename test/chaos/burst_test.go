// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// namespacesVariable is the environment variable with the number of namespaces of a burst.
	namespacesVariable = "CHAOS_NAMESPACES"
	defaultNamespaces  = 500
	burstUsers         = 8
	// inBurst is the label of the namespaces of a burst. Its value is the initializer that selects them in addition to the
	// others, or "yes".
	inBurst         = "chaos.example.com/burst"
	lateInitializer = "late.chaos.example.com"
	betweenKills    = 200 * time.Millisecond
	// outage is the time without a manager after which refused creations have been counted.
	outage            = 5 * time.Second
	certificateSecret = "nslifecycle-webhook-certificate"
)

// managerFault disturbs two managers while namespaces are created. It returns when it is over, or when the creations are.
type managerFault func(ctx context.Context, managers *replicas, creating <-chan struct{})

// The bursts take minutes.
var _ = Describe("Many namespaces at once", Label("long"), Ordered, ContinueOnFailure, Serial, func() {
	var users []*framework.User

	BeforeAll(func(ctx context.Context) {
		for i := range burstUsers {
			users = append(users,
				cluster.AddUser(ctx, fmt.Sprintf("burst-%d@chaos.example.com", i), framework.VerbsButInitialize))
		}
	})

	DescribeTable("have their initializers, and no user writes early,", func(ctx context.Context, disturb managerFault) {
		managers := startReplicas(managerConfig(ctx), 2, "--leader-elect", "--metrics-bind-address=0")
		expectEnforced(ctx)
		expectNoFailure(ctx, users[0])
		createAtOnce(ctx, users, "yes", func(creating <-chan struct{}) { disturb(ctx, managers, creating) })
	},
		Entry("with two managers", SpecTimeout(20*time.Minute), managerFault(func(context.Context, *replicas, <-chan struct{}) {})),
		Entry("while both managers are killed repeatedly", SpecTimeout(20*time.Minute), managerFault(killAll)),
		Entry("while the managers are replaced one after the other", SpecTimeout(20*time.Minute), managerFault(rollOut)),
		Entry("when one of two managers never returns", SpecTimeout(20*time.Minute), managerFault(removeOne)),
		Entry("when the certificate expires and the leader never returns", SpecTimeout(20*time.Minute), managerFault(expireCertificate)),
		Entry("while no manager runs", SpecTimeout(20*time.Minute), managerFault(stopAll)),
	)

	// An initializer is registered that one manager has not observed, because its watch is late.
	It("have an initializer that one of two managers does not know", func(ctx context.Context) {
		proxy, err := faults.StartHTTPProxy(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Stop)
		config := managerConfig(ctx)
		flags := []string{"--leader-elect", "--metrics-bind-address=0"}
		leader := &replica{kubeconfig: framework.KubeconfigFile(config), flags: flags}
		late := &replica{kubeconfig: framework.KubeconfigFile(proxy.ConfigFor(config)), flags: flags}
		managers := runReplicas(config, leader, late)
		expectEnforced(ctx)
		// The other replica becomes the leader, or remains it.
		if managers.leader(ctx) == managers.session(late) {
			managers.session(late).Kill().Wait(stopTimeout)
			Eventually(func() *gexec.Session { return managers.leader(ctx) }).WithContext(ctx).
				Should(BeIdenticalTo(managers.session(leader)))
		}
		expectNoFailure(ctx, users[0])
		proxy.Set(func(r *faults.Request) faults.Fault {
			if r.Verb == "watch" && r.Resource == "namespaceinitializersets" {
				return silence
			}
			return nil
		})
		proxy.CloseWatches()

		running, err := initializers.Start(ctx, plane.Admin, lateInitializer, initializers.Nothing)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(running.Stop)
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("late").Initializer(lateInitializer,
			v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{inBurst: lateInitializer},
			}}))
		createAtOnce(ctx, users, lateInitializer, func(creating <-chan struct{}) {
			pause(creating, outage)
			proxy.Set(nil)
			proxy.CloseWatches()
		})
	}, SpecTimeout(20*time.Minute))
})

// expectNoFailure waits until creations do not depend on one manager only: after a start, replicas need their
// certificate and their cache.
func expectNoFailure(ctx context.Context, user client.Client) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for range 10 {
			g.Expect(user.Create(ctx, wrappers.MakeNamespace("probe").Obj(), client.DryRunAll)).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed())
}

// silence responds to a watch without events, until the client ends it.
func silence(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// pause waits for a time, or until the creations are over.
func pause(creating <-chan struct{}, duration time.Duration) {
	select {
	case <-creating:
	case <-time.After(duration):
	}
}

// killAll kills all managers when they serve requests again, until all namespaces exist.
func killAll(ctx context.Context, managers *replicas, creating <-chan struct{}) {
	for kills := 0; ; kills++ {
		select {
		case <-creating:
			AddReportEntry("kills", fmt.Sprint(kills), ReportEntryVisibilityAlways)
			Expect(kills).To(BeNumerically(">", 0))
			return
		default:
		}
		for _, replica := range managers.all {
			managers.session(replica).Kill().Wait(stopTimeout)
		}
		for _, address := range managers.balancer.backends {
			expectServed(ctx, address)
		}
		pause(creating, betweenKills)
	}
}

// rollOut terminates each manager while the other one answers requests. As the endpoints of a Service, the load balancer
// does not use a manager that terminates.
func rollOut(ctx context.Context, managers *replicas, _ <-chan struct{}) {
	addresses := slices.Clone(managers.balancer.backends)
	for index, replica := range managers.all {
		managers.balancer.route(index, addresses[1-index])
		old := managers.session(replica)
		old.Terminate().Wait(stopTimeout)
		Eventually(func() *gexec.Session { return managers.session(replica) }).WithContext(ctx).ShouldNot(BeIdenticalTo(old))
		expectServed(ctx, addresses[index])
		managers.balancer.route(index, addresses[index])
	}
}

func removeOne(_ context.Context, managers *replicas, _ <-chan struct{}) {
	managers.remove(managers.all[0])
}

// stopAll leaves no manager for a time. Exempt namespaces can be created.
func stopAll(ctx context.Context, managers *replicas, creating <-chan struct{}) {
	for _, replica := range managers.all {
		managers.remove(replica)
	}
	pause(creating, outage)
	for _, name := range []string{metav1.NamespaceSystem, controlplane.SystemNamespace} {
		err := admin.Create(ctx, wrappers.MakeNamespace(name).Obj(), client.DryRunAll)
		Expect(err).To(Satisfy(apierrors.IsAlreadyExists), "the webhooks selected the namespace")
	}
	for _, replica := range managers.all {
		managers.restore(replica)
	}
}

// expireCertificate removes the leader, and replaces the certificate by one that has expired. The other manager renews it
// when it is the leader.
func expireCertificate(ctx context.Context, managers *replicas, _ <-chan struct{}) {
	leader := managers.leader(ctx)
	for _, replica := range managers.all {
		if managers.session(replica) == leader {
			managers.remove(replica)
		}
	}
	secret := &corev1.Secret{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: certificateSecret}, secret)).To(Succeed())
	Expect(expire(secret)).To(Succeed())
	Expect(admin.Update(ctx, secret)).To(Succeed())
	managers.balancer.cut()
}

// addresses matches what differs between errors of the same kind: addresses, ports and times.
var addresses = regexp.MustCompile(`127\.0\.0\.1:[0-9]+(->127\.0\.0\.1:[0-9]+)?|:[0-9]+/|current time .*`)

// outcomes counts the responses to requests by their errors.
type outcomes struct {
	lock   sync.Mutex
	counts map[string]int
}

func (o *outcomes) add(err error, names ...string) {
	text := "success"
	if err != nil {
		text = fmt.Sprintf("%s: %s", apierrors.ReasonForError(err), err)
		for _, name := range names {
			text = strings.ReplaceAll(text, name, "…")
		}
		text = addresses.ReplaceAllString(text, "…")
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.counts == nil {
		o.counts = map[string]int{}
	}
	o.counts[text]++
}

func (o *outcomes) reset() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.counts = nil
}

func (o *outcomes) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	var lines []string
	for _, text := range slices.Sorted(maps.Keys(o.counts)) {
		lines = append(lines, fmt.Sprintf("%6d %s", o.counts[text], text))
	}
	return strings.Join(lines, "\n")
}

// createAtOnce creates namespaces until all exist, while the users write to each of them before it exists and with each
// of its events, until all have written to all of them. Meanwhile, it calls disturb with a channel that is closed when all
// namespaces exist.
func createAtOnce(ctx context.Context, users []*framework.User, value string, disturb func(creating <-chan struct{})) {
	GinkgoHelper()
	prefix := framework.Unique("burst")
	number, err := strconv.Atoi(cmp.Or(os.Getenv(namespacesVariable), strconv.Itoa(defaultNamespaces)))
	Expect(err).NotTo(HaveOccurred())
	names := make([]string, number)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	var created, written outcomes
	writers := startWriters(ctx, users, prefix, &written)
	creating := make(chan struct{})
	var disturbance, creations sync.WaitGroup
	start := time.Now()
	disturbance.Go(func() {
		defer GinkgoRecover()
		disturb(creating)
	})
	durations := make([]time.Duration, len(names)) // Of the last attempts.
	for i, name := range names {
		creations.Go(func() {
			writers.add(name)
			namespace := wrappers.MakeNamespace(name).Label(inBurst, value).Label(burstPrefix, prefix).Obj()
			until(ctx, func() bool {
				sent := time.Now()
				err := users[i%len(users)].Create(ctx, namespace.DeepCopy())
				durations[i] = time.Since(sent)
				created.add(err, name)
				return err == nil || apierrors.IsAlreadyExists(err)
			})
		})
	}
	creations.Wait()
	close(creating)
	took := time.Since(start)
	disturbance.Wait()
	writers.expectAll(ctx, names)
	slices.Sort(durations)
	AddReportEntry("burst", fmt.Sprintf("all created after %.1f s, median %.2f s, longest %.2f s; all written to after %.1f s\n"+
		"creations:\n%s\nwrites:\n%s", took.Seconds(), durations[len(durations)/2].Seconds(), durations[len(durations)-1].Seconds(),
		time.Since(start).Seconds(), created.String(), written.String()), ReportEntryVisibilityAlways)

	list := &corev1.NamespaceList{}
	Expect(admin.List(ctx, list, client.MatchingLabels{burstPrefix: prefix})).To(Succeed())
	Expect(list.Items).To(HaveLen(len(names)))
	for _, namespace := range list.Items {
		Expect(namespace.Annotations[v1alpha1.AnnotationRequestedBy]).To(HavePrefix("burst-"), namespace.Name)
		Expect(namespace.Annotations).To(HaveKey(v1alpha1.AnnotationInitializers), namespace.Name)
	}
}

// expire replaces the certificate in a Secret by one of the same CA that has expired.
func expire(secret *corev1.Secret) error {
	ca, err := tls.X509KeyPair(secret.Data["ca.crt"], secret.Data["ca.key"])
	if err != nil {
		return err
	}
	current, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return err
	}
	expired := current[0]
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, expired, ca.Leaf, expired.PublicKey, ca.PrivateKey)
	if err != nil {
		return err
	}
	secret.Data[corev1.TLSCertKey] = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw})
	return nil
}
