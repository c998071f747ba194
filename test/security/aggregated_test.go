// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// hostileServer is an aggregated API server with responses that a spec chooses.
type hostileServer struct {
	*framework.AggregatedServer

	lock sync.Mutex
	// list handles list requests. remove handles DELETE requests.
	list, remove http.HandlerFunc
	// paths contains the received requests for objects, as "METHOD path".
	paths []string
	// credentials contains the values of the header Authorization.
	credentials []string
}

// startHostileServer registers an aggregated API server with the given types until the spec or container ends.
func startHostileServer(ctx context.Context, served ...apidiscoveryv2.APIResourceDiscovery) *hostileServer {
	GinkgoHelper()
	hostile := &hostileServer{remove: func(w http.ResponseWriter, _ *http.Request) { framework.WriteStatus(w, nil) }}
	hostile.serveItems()
	hostile.AggregatedServer = framework.NewAggregatedServer(hostile.respond, served...)
	hostile.Register(ctx, cluster)
	hostile.ExpectDiscovered(ctx)
	return hostile
}

func (s *hostileServer) respond(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	s.paths = append(s.paths, r.Method+" "+r.URL.Path)
	s.credentials = append(s.credentials, r.Header.Values("Authorization")...)
	answer := s.list
	if r.Method == http.MethodDelete {
		answer = s.remove
	}
	s.lock.Unlock()
	answer(w, r)
}

// set changes the responses.
func (s *hostileServer) set(list, remove http.HandlerFunc) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if list != nil {
		s.list = list
	}
	if remove != nil {
		s.remove = remove
	}
}

// serveItems makes the server return the given objects for every namespace.
func (s *hostileServer) serveItems(items ...metav1.PartialObjectMetadata) {
	s.set(func(w http.ResponseWriter, _ *http.Request) { framework.WriteList(w, metav1.ListMeta{}, items...) }, nil)
}

// received returns the paths of the requests with the given method that the server received.
func (s *hostileServer) received(method string) []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	var paths []string
	for _, path := range s.paths {
		if rest, ok := strings.CutPrefix(path, method+" "); ok {
			paths = append(paths, rest)
		}
	}
	return paths
}

func makeThing(namespace, name string, uid types.UID) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid, ResourceVersion: "1",
	}}
}

// toConfigMaps returns a relative path from the objects of an aggregated type to the ConfigMaps in
// a namespace. /apis/<group>/v1/namespaces/<namespace>/<resource> has five segments before the
// resource.
func toConfigMaps(namespace string) string {
	return strings.Repeat("../", 5) + "api/v1/namespaces/" + namespace + "/configmaps"
}

// createVictim creates a ConfigMap in a namespace that exists until the spec ends.
func createVictim(ctx context.Context) *corev1.ConfigMap {
	GinkgoHelper()
	other := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("victim"))
	victim := wrappers.MakeConfigMap(other.Name, "precious")
	cluster.Admin.Creates(ctx, victim)
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, other)).To(Succeed()) })
	return victim
}

// terminate creates and deletes a namespace.
func terminate(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique(prefix))
	cluster.Admin.Deletes(ctx, namespace)
	return namespace
}

// expectTerminating checks for a few seconds that the operator does not finalize a namespace after it has searched
// for its content.
func expectTerminating(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(nsobject.FindCondition(now, corev1.NamespaceDeletionContentFailure)).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	Consistently(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(now.UID).To(Equal(namespace.UID))
		g.Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
	}).WithContext(ctx).WithTimeout(4 * time.Second).Should(Succeed())
}

var _ = Describe("A hostile aggregated API server that attacks the operator", func() {
	It("cannot exhaust memory with an endless body", func(ctx context.Context) {
		server := startHostileServer(ctx, framework.MakeType("things", "list", "delete"))
		const most = 256 << 20
		var sent atomic.Int64 // Bytes in the first response.
		isOver := make(chan struct{})
		var once sync.Once
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			size := 0
			defer once.Do(func() {
				sent.Store(int64(size))
				close(isOver)
			})
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[{"metadata":{"name":"`))
			chunk := bytes.Repeat([]byte("a"), 1<<20)
			for n := 0; n < most; n += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
				size += len(chunk)
			}
			_, _ = w.Write([]byte(`"}}]}`))
		}, nil)
		namespace := terminate(ctx, "body")
		Eventually(isOver).WithTimeout(time.Minute).Should(BeClosed())
		AddReportEntry("bytes sent", sent.Load())
		Eventually(func(g Gomega) *corev1.Namespace { return cluster.GetNamespace(g, ctx, namespace.Name) }).WithContext(ctx).
			Should(HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue,
				finalization.ReasonContentDeletionFailed, "things."+server.Group, "the response is larger than 16 MiB"))
		server.serveItems()
		Expect(sent.Load()).To(BeNumerically("<", most/4), "the operator must not read more than the limit")
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	It("cannot keep the operator busy with watch events", func(ctx context.Context) {
		server := startHostileServer(ctx, framework.MakeType("things", "list", "delete", "watch"))
		held := makeThing("", "held", "uid")
		held.DeletionTimestamp, held.Finalizers = new(metav1.Now()), []string{"vendor.example.com/held"}
		var events atomic.Int64
		server.set(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				framework.WriteList(w, metav1.ListMeta{}, held)
				return
			}
			object := held
			object.Namespace = strings.Split(server.received(http.MethodGet)[0], "/")[5]
			object.APIVersion, object.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil && events.Load() < 20000 {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": object})
				events.Add(1)
				w.(http.Flusher).Flush()
			}
		}, nil)
		namespace := terminate(ctx, "events")
		expectTerminating(ctx, namespace)
		lists := len(server.received(http.MethodGet))
		AddReportEntry("requests", lists)
		AddReportEntry("events", events.Load())
		Expect(lists).To(BeNumerically("<", 100))
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	It("cannot delay finalization with a long Retry-After after it recovers", func(ctx context.Context) {
		server := startHostileServer(ctx, framework.MakeType("things", "list", "delete"))
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			framework.WriteJSON(w, http.StatusTooManyRequests, apierrors.NewTooManyRequests("wait", 86400).Status())
		}, nil)
		namespace := terminate(ctx, "retryafter")
		expectTerminating(ctx, namespace)
		server.serveItems()
		// The operator limits the Retry-After to one minute.
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(3*specTimeout))
})
