// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/controller"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

const (
	// The namespace of the controller in the manifests.
	exampleNamespace = "search-index"
	exampleAccount   = "controller"
	// requestTimeout is the timeout of the controller's requests.
	requestTimeout = 300 * time.Millisecond
)

const (
	initialized = corev1.NamespaceConditionType(controller.InitializerName + v1alpha1.ConditionInitializedSuffix)
	released    = corev1.NamespaceConditionType(controller.Finalizer)
)

var (
	plane *controlplane.ControlPlane
	admin client.Client
	// service is a client of the server that bypasses the proxy.
	service *indexclient.Client
	between *proxy

	server, searchController *controlplane.Process
	// startServer and startController start or restart the programs.
	startServer, startController func()
)

func TestSearchIndex(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Example search-index")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster := framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	Expect(plane.Install(ctx)).To(Succeed())
	manager, err := plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(manager.Stop()).To(Succeed()) })

	startService(ctx)
	installExample(ctx)
})

// startService starts the server and the proxy.
func startService(ctx context.Context) {
	binary := filepath.Join(plane.Dir, "index-server")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.IndexServerProgram, binary)).To(Succeed())
	address, err := controlplane.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	service, err = indexclient.New("http://"+address, 10*time.Second)
	Expect(err).NotTo(HaveOccurred())
	startServer = func() {
		GinkgoHelper()
		var err error
		server, err = controlplane.StartProcess(GinkgoWriter, binary,
			"--listen-address="+address, "--data-dir="+filepath.Join(plane.Dir, "indices"))
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

	controllerBinary := filepath.Join(plane.Dir, "search-controller")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.SearchControllerProgram, controllerBinary)).To(Succeed())
	kubeconfig := filepath.Join(plane.Dir, "search-controller.kubeconfig")
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
	_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", manifests)
	Expect(err).NotTo(HaveOccurred())
	config, err := plane.ServiceAccountConfig(ctx, exampleNamespace, exampleAccount)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(plane.Dir, "search-controller.kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())
	Expect(os.Stat(kubeconfig)).Error().NotTo(HaveOccurred())
	startController()
	DeferCleanup(func() { Expect(searchController.Stop()).To(Succeed()) })

	configuration := filepath.Join(manifests, "configuration.yaml")
	_, err = plane.Kubectl(ctx, plane.Admin, "apply", "-f", configuration)
	Expect(err).NotTo(HaveOccurred())
	_, err = plane.Kubectl(ctx, plane.Admin, "wait", "--for=condition=Active", "--timeout=60s", "-f", configuration)
	Expect(err).NotTo(HaveOccurred())
	// Delete the configuration before the manager stops, so that no namespace remains initializing.
	DeferCleanup(func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, plane.Admin, "delete", "-f", configuration)
		Expect(err).NotTo(HaveOccurred())
	})
}

// create creates a Namespace.
func create(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	var namespace corev1.Namespace
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &namespace)).To(Succeed())
	return &namespace
}

func expectReady(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(get).WithContext(ctx).WithArguments(ctx, name).Should(matchers.HaveCondition(
		v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
}

func expectDeleted(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue())
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
