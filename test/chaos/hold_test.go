// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const heldInitializer = "held.chaos.example.com"

var _ = Describe("Held writes", Ordered, Serial, func() {
	const writes = 20
	var (
		user     kubernetes.Interface
		sessions []*gexec.Session
		balancer *loadBalancer
	)

	BeforeAll(func(ctx context.Context) {
		user = cluster.AddUser(ctx, "held@chaos.example.com", framework.VerbsButInitialize).Clientset()
		registerHeld(ctx)
	})

	BeforeEach(func(ctx context.Context) {
		installHold(ctx)
		balancer = startLoadBalancer(framework.FreeAddress(), framework.FreeAddress())
		config := managerConfig(ctx)
		sessions = nil
		for _, address := range balancer.backends {
			sessions = append(sessions, runManager(binary, config, controlplane.WithoutAdmission, "--leader-elect",
				"--webhook-bind-address="+address, "--hold-max-writes-per-user=25"))
		}
		runManager(binary, admissionConfig(config), admissionFlags(balancer.url())...)
		Expect(plane.WaitForHold(ctx, balancer.url())).To(Succeed())
		By("waiting until the leader and the other replica serve the certificate")
		for _, address := range balancer.backends {
			expectServed(ctx, address)
		}
		cluster.ExpectActive(ctx, "held")
	})

	It("move to the other replica when their replica is killed", func(ctx context.Context) {
		name, results := startWrites(ctx, user, writes)
		sessions[0].Kill()
		time.Sleep(time.Second)
		finishHeld(ctx, name)
		outcomes := map[string]int{}
		for range writes {
			outcomes[outcomeOf(<-results)]++
		}
		AddReportEntry("outcomes", fmt.Sprint(outcomes))
		// The API server might also send the second call of a write through a connection to the killed
		// replica. Then the gate rejects the write.
		Expect(outcomes["created"]).To(BeNumerically(">", writes/2))
		Expect(outcomes["created"] + outcomes["Forbidden"]).To(Equal(writes))
	})
})

// expectServed waits until a manager serves webhooks with its certificate.
func expectServed(ctx context.Context, address string) {
	GinkgoHelper()
	Eventually(func() error {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			err = connection.Close()
		}
		return err
	}).WithContext(ctx).Should(Succeed())
}

// registerHeld registers the initializer until the spec or the container ends.
func registerHeld(ctx context.Context) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration("held").Initializer(heldInitializer, v1alpha1.InitializerSettings{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"held": "true"}},
	}).Obj()
	admin.Creates(ctx, configuration)
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, configuration)).To(Succeed()) })
}

// installHold installs the webhooks until the spec ends.
func installHold(ctx context.Context) {
	GinkgoHelper()
	Expect(plane.InstallHold(ctx, "default")).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		admin.Deletes(ctx, &admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.HoldConfiguration},
		})
		admin.Deletes(ctx, &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.TemplatesConfiguration},
		})
	})
}

// startWrites creates an initializing namespace and starts writes to it. It returns when they are
// held.
func startWrites(ctx context.Context, user kubernetes.Interface, number int) (string, <-chan error) {
	GinkgoHelper()
	name := framework.Unique("held")
	_, err := user.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"held": "true"}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	results := make(chan error, number)
	for i := range number {
		go func() {
			_, err := user.CoreV1().ConfigMaps(name).Create(ctx, wrappers.MakeConfigMap(name, fmt.Sprint(i)), metav1.CreateOptions{})
			results <- err
		}()
	}
	Consistently(results).WithContext(ctx).ShouldNot(Receive())
	return name, results
}

// finishHeld waits for the other initializers, and completes the initialization.
func finishHeld(ctx context.Context, name string) {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(plane.Admin)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		namespace, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if framework.PendingOf(namespace) != heldInitializer {
			return fmt.Errorf("pending: %s", framework.PendingOf(namespace))
		}
		return initializers.Finish(ctx, clientset, namespace, heldInitializer)
	}).WithContext(ctx).Should(Succeed())
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "created"
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return string(apierrors.ReasonForError(err))
	}
	return "connection error"
}

// loadBalancer forwards each connection to the next backend that accepts it, like a Service.
type loadBalancer struct {
	listener net.Listener
	next     atomic.Uint32

	lock        sync.Mutex
	backends    []string
	connections map[net.Conn]struct{}
}

func startLoadBalancer(backends ...string) *loadBalancer {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	balancer := &loadBalancer{listener: listener, backends: backends, connections: map[net.Conn]struct{}{}}
	DeferCleanup(listener.Close)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go balancer.forward(connection)
		}
	}()
	return balancer
}

func (b *loadBalancer) address() string { return b.listener.Addr().String() }

func (b *loadBalancer) url() string {
	_, port, _ := net.SplitHostPort(b.listener.Addr().String())
	return "https://localhost:" + port
}

// replace replaces a backend, and closes all connections.
func (b *loadBalancer) replace(index int, backend string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.backends[index] = backend
	for connection := range b.connections {
		_ = connection.Close()
	}
}

func (b *loadBalancer) forward(client net.Conn) {
	defer client.Close()
	b.lock.Lock()
	b.connections[client] = struct{}{}
	backends := slices.Clone(b.backends)
	b.lock.Unlock()
	defer func() {
		b.lock.Lock()
		defer b.lock.Unlock()
		delete(b.connections, client)
	}()
	for range backends {
		server, err := net.Dial("tcp", backends[int(b.next.Add(1))%len(backends)])
		if err != nil {
			continue
		}
		defer server.Close()
		var copies sync.WaitGroup
		copies.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		copies.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		copies.Wait()
		return
	}
}
