// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/controller"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

const (
	// The namespace of the controller in the manifests.
	exampleNamespace = "search-index"
	exampleAccount   = "controller"
	// requestTimeout is the timeout of the controller's requests.
	requestTimeout = 2 * time.Second
)

const (
	initialized = corev1.NamespaceConditionType(controller.InitializerName + v1alpha1.ConditionInitializedSuffix)
	released    = corev1.NamespaceConditionType(controller.Finalizer)
)

var (
	// service is a client of the server that bypasses the proxy.
	service *indexclient.Client
	between *proxy

	server, searchController *controlplane.Process
	// startServer and startController start or restart the programs.
	startServer, startController func()
)

var _ = Describe("The example search-index", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		startService(ctx)
		installExample(ctx)
	})
	AfterEach(func() { between.set(forward) })

	It("creates an index before a namespace is initialized, and deletes it with the namespace", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, admin, "search-plain")
		expectReady(ctx, namespace.Name)
		Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
		ready := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(ready.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes, controller.Finalizer))
		index := controller.IndexName(ready)

		By("publishing the index in the namespace")
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			initialized, corev1.ConditionTrue, "IndexReady", "index "+index+" is ready"))
		By("recording the requester in the index")
		expectFirstDocument(ctx, ready)

		By("keeping the index while the namespace has content")
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "settings", Finalizers: []string{"example.com/hold"},
		}}
		admin.Creates(ctx, settings)
		admin.Deletes(ctx, ready)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
			matchers.HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain"))
		Expect(indicesOf(ctx, namespace.Name)).To(HaveLen(1))
		Expect(service.Add(ctx, index, indexserver.Document{ID: "last", Text: "the last entry"})).To(Succeed())
		held := settings.DeepCopy()
		held.Finalizers = nil
		Expect(admin.Patch(ctx, held, client.MergeFrom(settings))).To(Succeed())
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
	})

	DescribeTable("keeps a namespace waiting while the service",
		func(ctx context.Context, name string, f fault, reason, text string) {
			between.set(f)
			namespace := framework.CreateNamespace(ctx, admin, "search-"+name)
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
				matchers.HaveCondition(initialized, corev1.ConditionFalse, reason, text))
			Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).To(
				HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, controller.InitializerName))
			between.set(forward)
			expectReady(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
			expectFirstDocument(ctx, cluster.GetNamespace(Default, ctx, namespace.Name))

			By("injecting the same fault during the deletion")
			between.set(f)
			admin.Deletes(ctx, namespace)
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
				matchers.HaveCondition(released, corev1.ConditionFalse, reason, text))
			Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Spec.Finalizers).To(Equal([]corev1.FinalizerName{controller.Finalizer}))
			between.set(forward)
			framework.ExpectDeleted(ctx, admin, namespace)
			Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
		},
		Entry("is unreachable", "down", fault(down), "Retrying", "is down: EOF"),
		Entry("returns Retry-After", "busy", returning(http.StatusServiceUnavailable, "1"), "ServiceBusy", "503 Service Unavailable"),
	)

	It("creates and deletes all indices even if both programs are killed", func(ctx context.Context) {
		const count = 20
		var namespaces []*corev1.Namespace
		for n := range count {
			namespaces = append(namespaces, framework.CreateNamespace(ctx, admin, fmt.Sprintf("search-kill-%02d", n)))
			switch n {
			case count / 4:
				Expect(server.Kill()).To(Succeed())
			case count / 2:
				Expect(searchController.Kill()).To(Succeed())
				startServer()
				startController()
			case 3 * count / 4:
				Expect(server.Kill()).To(Succeed())
				startServer()
			}
		}
		for _, namespace := range namespaces {
			expectReady(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
			expectFirstDocument(ctx, namespace)
		}
		for n, namespace := range namespaces {
			admin.Deletes(ctx, namespace)
			if n == count/2 {
				Expect(searchController.Kill()).To(Succeed())
				Expect(server.Kill()).To(Succeed())
				startServer()
				startController()
			}
		}
		for _, namespace := range namespaces {
			framework.ExpectDeleted(ctx, admin, namespace)
			Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
		}
	})

	It("does not leak an index if a namespace is deleted during its initialization", func(ctx context.Context) {
		arrived, letPass, passed := make(chan struct{}, 100), make(chan struct{}), make(chan int, 100)
		between.set(onlyFor(http.MethodPut, func(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
			// The original request reaches the server long after the client has timed out.
			body, _ := io.ReadAll(r.Body)
			arrived <- struct{}{}
			<-letPass
			passed <- serveLate(r, body, pass)
			panic(http.ErrAbortHandler)
		}))
		namespace := framework.CreateNamespace(ctx, admin, "search-middle")
		Eventually(ctx, arrived).Should(Receive())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Spec.Finalizers).To(ContainElement(controller.Finalizer))
		admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)

		close(letPass)
		Eventually(ctx, passed).Should(Receive(Equal(http.StatusGone)))
		Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
	})

	It("creates a new index for a recreated namespace", func(ctx context.Context) {
		old := framework.CreateNamespace(ctx, admin, "search-again")
		expectReady(ctx, old.Name)
		expectFirstDocument(ctx, old)
		admin.Deletes(ctx, old)
		framework.ExpectDeleted(ctx, admin, old)

		renewed := framework.CreateNamespace(ctx, admin, old.Name)
		expectReady(ctx, renewed.Name)
		Expect(indicesOf(ctx, renewed.Name)).To(Equal([]indexserver.Owner{ownerOf(renewed)}))
		Expect(renewed.UID).NotTo(Equal(old.UID))
		expectFirstDocument(ctx, renewed)
		found, err := service.Search(ctx, controller.IndexName(renewed), string(old.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Total).To(BeZero())
	})

	It("fails a namespace whose index the service rejects, without affecting other namespaces", func(ctx context.Context) {
		between.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPut && nameIn(r.URL.Path) == "search-bad" {
				w.Header().Set(indexserver.SignatureHeader, indexserver.Signature)
				returning(http.StatusUnprocessableEntity, "")(w, r, pass)
				return
			}
			forward(w, r, pass)
		})
		bad, good := framework.CreateNamespace(ctx, admin, "search-bad"), framework.CreateNamespace(ctx, admin, "search-good")
		framework.ExpectDeleted(ctx, admin, bad)
		expectReady(ctx, good.Name)
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(admin.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(SatisfyAll(
				HaveField("InvolvedObject.UID", bad.UID), HaveField("Reason", "InitializationFailed"),
				HaveField("Message", And(ContainSubstring("IndexRefused"), ContainSubstring("422"))))))
		}).WithContext(ctx).Should(Succeed())
	})

	It("complies with the restricted Pod Security Standard", func(ctx context.Context) {
		var deployments appsv1.DeploymentList
		Expect(admin.List(ctx, &deployments, client.InNamespace(exampleNamespace))).To(Succeed())
		Expect(deployments.Items).To(HaveLen(2))
		for _, deployment := range deployments.Items {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: exampleNamespace, Name: deployment.Name},
				Spec:       deployment.Spec.Template.Spec,
			}
			Expect(admin.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			// The API server enforces the standard.
			pod = &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: deployment.Spec.Template.Spec}
			pod.ResourceVersion, pod.UID = "", ""
			pod.Spec.SecurityContext.RunAsNonRoot = nil
			Expect(admin.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("runAsNonRoot")))
		}
	})
})

// expectFirstDocument waits until the index contains the document about the initialization.
func expectFirstDocument(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := service.Search(ctx, controller.IndexName(namespace), "ready")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Total).To(Equal(1))
		g.Expect(found.Documents[0].Text).To(ContainSubstring("namespace %s is ready: admin created it", namespace.Name))
		g.Expect(found.Documents[0].Fields).To(HaveKeyWithValue("uid", string(namespace.UID)))
	}).WithContext(ctx).Should(Succeed())
}

// startService starts the server and the proxy.
func startService(ctx context.Context) {
	binary := filepath.Join(cluster.Dir, "index-server")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.IndexServerProgram, binary)).To(Succeed())
	address, err := controlplane.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	service, err = indexclient.New("http://"+address, 10*time.Second)
	Expect(err).NotTo(HaveOccurred())
	startServer = func() {
		GinkgoHelper()
		var err error
		server, err = controlplane.StartProcess(GinkgoWriter, binary,
			"--listen-address="+address, "--data-dir="+filepath.Join(cluster.Dir, "indices"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { _, err := service.List(context.Background()); return err }).Should(Succeed())
	}
	startServer()
	DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	var front *http.Server
	between, front, err = newProxy(listener, "http://"+address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(front.Close)
	proxyAddress := "http://" + listener.Addr().String()

	controllerBinary := filepath.Join(cluster.Dir, "search-controller")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.SearchControllerProgram, controllerBinary)).To(Succeed())
	kubeconfig := filepath.Join(cluster.Dir, "search-controller.kubeconfig")
	startController = func() {
		GinkgoHelper()
		var err error
		searchController, err = controlplane.StartProcess(GinkgoWriter, controllerBinary,
			"--kubeconfig="+kubeconfig, "--index-server="+proxyAddress, "--index-timeout="+requestTimeout.String())
		Expect(err).NotTo(HaveOccurred())
	}
}

// installExample applies the manifests, runs the controller, and registers the initializer.
func installExample(ctx context.Context) {
	manifests := filepath.Join(controlplane.Root(), "examples", "search-index", "manifests")
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", manifests)
	Expect(err).NotTo(HaveOccurred())
	config, err := cluster.ServiceAccountConfig(ctx, exampleNamespace, exampleAccount)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(cluster.Dir, "search-controller.kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())
	Expect(os.Stat(kubeconfig)).Error().NotTo(HaveOccurred())
	startController()
	DeferCleanup(func() { Expect(searchController.Stop()).To(Succeed()) })

	configuration := filepath.Join(manifests, "configuration.yaml")
	_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", configuration)
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "wait", "--for=condition=Ready", "--timeout=60s", "-f", configuration)
	Expect(err).NotTo(HaveOccurred())
	// Delete the configuration before the manager stops, so that no namespace remains initializing.
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-f", configuration)
		Expect(err).NotTo(HaveOccurred())
		cluster.ExpectDeregistered(ctx, "search-index")
	})
}

// indicesOf returns the owners of all indices of Namespaces with the given name, even if the
// Namespaces are deleted.
func indicesOf(ctx context.Context, name string) []indexserver.Owner {
	GinkgoHelper()
	all, err := service.List(ctx)
	Expect(err).NotTo(HaveOccurred())
	owners := []indexserver.Owner{}
	for _, index := range all {
		if index.Owner.Namespace == name {
			owners = append(owners, index.Owner)
		}
	}
	return owners
}

func ownerOf(namespace *corev1.Namespace) indexserver.Owner {
	return indexserver.Owner{Namespace: namespace.Name, UID: string(namespace.UID)}
}

// fault handles a request in place of the server, and can forward the request to the server.
type fault func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// proxy forwards requests from the controller to the server, or injects a fault.
type proxy struct {
	fault atomic.Pointer[fault]
	to    http.Handler
}

// newProxy starts a proxy that forwards requests from a listener to a server. If the server is
// unreachable, the proxy closes the connection without a response.
func newProxy(listener net.Listener, server string) (*proxy, *http.Server, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, nil, err
	}
	reverse := httputil.NewSingleHostReverseProxy(target)
	reverse.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p := &proxy{to: reverse}
	p.set(forward)
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*p.fault.Load())(w, r, p.to)
	})}
	go func() { _ = front.Serve(listener) }()
	return p, front, nil
}

func (p *proxy) set(f fault) { p.fault.Store(&f) }

func forward(w http.ResponseWriter, r *http.Request, pass http.Handler) { pass.ServeHTTP(w, r) }

// down closes the connection without a response.
func down(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// returning returns a fault that responds with a status and, optionally, Retry-After.
func returning(status int, retryAfter string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

// onlyFor limits a fault to one method.
func onlyFor(method string, f fault) fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == method {
			f(w, r, pass)
		} else {
			forward(w, r, pass)
		}
	}
}

// serveLate forwards a request whose client has timed out, and returns the status of the response.
func serveLate(r *http.Request, body []byte, pass http.Handler) int {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	return answer.Code
}

// nameIn returns the name of the Namespace that owns the index in a path.
func nameIn(path string) string {
	index := strings.Split(strings.TrimPrefix(path, "/indices/"), "/")[0]
	return index[:max(0, strings.LastIndex(index, "-"))]
}
