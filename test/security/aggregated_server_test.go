// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// hostileServer is an aggregated API server with responses that a spec chooses.
type hostileServer struct {
	group string
	// apiService registers the server.
	apiService *unstructured.Unstructured

	lock sync.Mutex
	// list handles list requests. remove handles DELETE requests.
	list, remove http.HandlerFunc
	// paths contains the received requests for objects, as "METHOD path".
	paths []string
	// credentials contains the values of the header Authorization.
	credentials []string
}

// makeDiscovered returns a namespaced resource type.
func makeDiscovered(name string, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: name, SingularResource: "thing", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
	}
}

// startHostileServer registers an aggregated API server until the spec ends. The server serves a
// namespaced resource type with the given name and verbs.
func startHostileServer(ctx context.Context, name string, verbs ...string) *hostileServer {
	GinkgoHelper()
	return startHostileServerWith(ctx, makeDiscovered(name, verbs...))
}

// startHostileServerWith is like startHostileServer for any discovered resource types.
func startHostileServerWith(ctx context.Context, discovered ...apidiscoveryv2.APIResourceDiscovery) *hostileServer {
	GinkgoHelper()
	hostile := &hostileServer{group: framework.Unique("g") + ".vendor.example.com"}
	for i := range discovered {
		if discovered[i].ResponseKind == nil {
			discovered[i].ResponseKind = &metav1.GroupVersionKind{Group: hostile.group, Version: "v1", Kind: "Thing"}
		}
	}
	hostile.serveItems()
	hostile.remove = func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
	server := httptest.NewTLSServer(hostile.handler(discovered))
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	hostile.register(ctx, server.Listener.Addr().String())
	return hostile
}

func (s *hostileServer) register(ctx context.Context, address string) {
	GinkgoHelper()
	// The aggregator resolves this name, so the Service needs neither endpoints nor a cluster IP.
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: framework.Unique("vendor")}}
	service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
	_, port, _ := strings.Cut(address, ":")
	s.apiService = &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",
		"metadata":{"name":"v1.`+s.group+`"},
		"spec":{"group":"`+s.group+`","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,
		"insecureSkipTLSVerify":true,
		"service":{"namespace":"default","name":"`+service.Name+`","port":`+port+`}}}`), s.apiService)).To(Succeed())
	// Cleanup functions run in reverse order: after the APIService is deleted, wait until discovery
	// no longer returns the group.
	DeferCleanup(s.expectDiscovered, false)
	for _, object := range []client.Object{service, s.apiService} {
		Expect(cluster.Admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
		})
	}
	s.expectDiscovered(ctx, true)
}

// expectDiscovered waits until discovery returns the group, or no longer returns it if want is
// false.
func (s *hostileServer) expectDiscovered(ctx context.Context, want bool) {
	GinkgoHelper()
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(cluster.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		_, lists, err := discoveryClient.ServerGroupsAndResources()
		g.Expect(err).NotTo(HaveOccurred())
		found := false
		for _, list := range lists {
			found = found || strings.HasPrefix(list.GroupVersion, s.group+"/") && len(list.APIResources) > 0
		}
		g.Expect(found).To(Equal(want))
	}).WithContext(ctx).WithTimeout(specTimeout).Should(Succeed())
}

func (s *hostileServer) handler(discovered []apidiscoveryv2.APIResourceDiscovery) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		group := apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: s.group},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{
				Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: discovered,
			}},
		}
		core := group.DeepCopy()
		core.Name = corev1.GroupName
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		writeJSON(w, http.StatusOK, &apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"},
			// The API server must ignore other groups.
			Items: []apidiscoveryv2.APIGroupDiscovery{*core, group},
		})
	})
	mux.HandleFunc("/apis/"+s.group+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, &metav1.APIResourceList{GroupVersion: s.group + "/v1"})
	})
	mux.HandleFunc("/apis/"+s.group+"/v1/", func(w http.ResponseWriter, r *http.Request) {
		s.lock.Lock()
		s.paths = append(s.paths, r.Method+" "+r.URL.Path)
		s.credentials = append(s.credentials, r.Header.Values("Authorization")...)
		answer := s.list
		if r.Method == http.MethodDelete {
			answer = s.remove
		}
		s.lock.Unlock()
		answer(w, r)
	})
	return mux
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
	s.set(func(w http.ResponseWriter, _ *http.Request) { writeList(w, metav1.ListMeta{}, items...) }, nil)
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

func writeList(w http.ResponseWriter, meta metav1.ListMeta, items ...metav1.PartialObjectMetadata) {
	meta.ResourceVersion = "1"
	writeJSON(w, http.StatusOK, &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: meta, Items: append([]metav1.PartialObjectMetadata{}, items...),
	})
}

func writeJSON(w http.ResponseWriter, code int, object any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
