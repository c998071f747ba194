// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AggregatedServer is an aggregated API server in the test process. It serves version v1 of a group.
type AggregatedServer struct {
	Group string
	Types []apidiscoveryv2.APIResourceDiscovery
	// Priority is the priority of the version within the group. The default is 10.
	Priority int64
	// IsLegacy disables aggregated discovery.
	IsLegacy bool
	// Intercept reports whether it has responded to a request. It can be nil.
	Intercept func(http.ResponseWriter, *http.Request) bool
	// Objects responds to requests for objects.
	Objects http.HandlerFunc
	// Service is the Service of the APIService.
	Service    *corev1.Service
	APIService *unstructured.Unstructured

	cluster *Cluster
	server  *httptest.Server
	address string
}

// MakeType returns a namespaced resource type.
func MakeType(name string, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: name, SingularResource: "thing", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
	}
}

// NewAggregatedServer returns an API server that is not registered yet.
func NewAggregatedServer(objects http.HandlerFunc, types ...apidiscoveryv2.APIResourceDiscovery) *AggregatedServer {
	s := &AggregatedServer{Group: Unique("g") + ".aggregated.example.com", Types: types, Objects: objects}
	s.Service = &corev1.Service{}
	s.Service.Namespace, s.Service.Name = metav1.NamespaceDefault, Unique("aggregated")
	// The aggregator resolves this name, so the Service needs neither endpoints nor a cluster IP.
	s.Service.Spec.Type, s.Service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
	return s
}

// Register starts the server unless it was started before, and registers it until the spec or container ends.
func (s *AggregatedServer) Register(ctx context.Context, c *Cluster) {
	GinkgoHelper()
	s.cluster = c
	for i := range s.Types {
		if s.Types[i].ResponseKind == nil {
			s.Types[i].ResponseKind = &metav1.GroupVersionKind{Group: s.Group, Version: "v1", Kind: "Thing"}
		}
	}
	if s.server == nil {
		s.Start()
	}
	DeferCleanup(s.Stop)
	port := s.server.Listener.Addr().(*net.TCPAddr).Port
	s.Service.Spec.Ports = []corev1.ServicePort{{Port: int32(port)}}
	s.APIService = &unstructured.Unstructured{}
	Expect(json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",
		"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":1000,
		"versionPriority":%[2]d,"insecureSkipTLSVerify":true,"service":{"namespace":%[3]q,"name":%[4]q,"port":%[5]d}}}`,
		s.Group, cmp.Or(s.Priority, 10), s.Service.Namespace, s.Service.Name, port), s.APIService)).To(Succeed())
	// Cleanup functions run in reverse order: wait after the deletion of the APIService.
	DeferCleanup(s.expectServed, false)
	for _, object := range []client.Object{s.Service.DeepCopy(), s.APIService} {
		c.Admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(c.Admin.Delete(ctx, object))).To(Succeed())
		})
	}
}

// ExpectDiscovered waits until discovery returns the types.
func (s *AggregatedServer) ExpectDiscovered(ctx context.Context) {
	GinkgoHelper()
	s.ExpectAvailable(ctx, "True")
	s.expectServed(ctx, true)
}

func (s *AggregatedServer) expectServed(ctx context.Context, want bool) {
	GinkgoHelper()
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(s.cluster.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	for _, isLegacy := range []bool{false, true} {
		discoveryClient.UseLegacyDiscovery = isLegacy
		Eventually(func(g Gomega) {
			_, lists, err := discoveryClient.ServerGroupsAndResourcesWithContext(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			isServed := false
			for _, list := range lists {
				isServed = isServed || list.GroupVersion == s.Group+"/v1" && len(list.APIResources) > 0
			}
			g.Expect(isServed).To(Equal(want))
		}).WithContext(ctx).Should(Succeed())
	}
}

// ExpectAvailable waits until the condition Available of the APIService has a status.
func (s *AggregatedServer) ExpectAvailable(ctx context.Context, status string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := s.APIService.DeepCopy()
		g.Expect(s.cluster.Admin.Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(
			And(HaveKeyWithValue("type", "Available"), HaveKeyWithValue("status", status))))
	}).WithContext(ctx).Should(Succeed())
}

// Start listens on a free port, or on the previous one after Stop.
func (s *AggregatedServer) Start() {
	GinkgoHelper()
	listener, err := net.Listen("tcp", cmp.Or(s.address, "127.0.0.1:0"))
	Expect(err).NotTo(HaveOccurred())
	s.address = listener.Addr().String()
	s.server = httptest.NewUnstartedServer(s)
	Expect(s.server.Listener.Close()).To(Succeed())
	s.server.Listener = listener
	s.server.StartTLS()
}

// Stop closes the server.
func (s *AggregatedServer) Stop() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// ServeHTTP implements http.Handler.
func (s *AggregatedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isAggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	base := "/apis/" + s.Group
	version := metav1.GroupVersionForDiscovery{GroupVersion: s.Group + "/v1", Version: "v1"}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"},
		Name:     s.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	switch {
	case s.Intercept != nil && s.Intercept(w, r):
	case strings.HasPrefix(r.URL.Path, base+"/v1/"):
		s.Objects(w, r)
	case r.URL.Path == "/apis" && isAggregated && s.IsLegacy:
		http.Error(w, "aggregated discovery is not supported", http.StatusNotAcceptable)
	case r.URL.Path == "/apis" && isAggregated:
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		WriteJSON(w, http.StatusOK, s.aggregatedDiscovery())
	case r.URL.Path == "/apis":
		WriteJSON(w, http.StatusOK, &metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{group},
		})
	case r.URL.Path == base:
		WriteJSON(w, http.StatusOK, &group)
	case r.URL.Path == base+"/v1":
		WriteJSON(w, http.StatusOK, s.resourceList())
	default:
		http.NotFound(w, r)
	}
}

func (s *AggregatedServer) aggregatedDiscovery() *apidiscoveryv2.APIGroupDiscoveryList {
	version := apidiscoveryv2.APIVersionDiscovery{
		Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: s.Types,
	}
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"},
	}
	// The API server must ignore other groups.
	for _, name := range []string{corev1.GroupName, s.Group} {
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscoveryv2.APIVersionDiscovery{version},
		})
	}
	return list
}

func (s *AggregatedServer) resourceList() *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: s.Group + "/v1",
	}
	for _, one := range s.Types {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: one.Resource, SingularName: one.SingularResource, Kind: one.ResponseKind.Kind, Verbs: one.Verbs,
			Namespaced: one.Scope == apidiscoveryv2.ScopeNamespace,
		})
	}
	return list
}

// WriteJSON responds with an object.
func WriteJSON(w http.ResponseWriter, code int, object any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// WriteList responds with a list of objects.
func WriteList(w http.ResponseWriter, meta metav1.ListMeta, items ...metav1.PartialObjectMetadata) {
	meta.ResourceVersion = cmp.Or(meta.ResourceVersion, "1")
	WriteJSON(w, http.StatusOK, &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: meta, Items: append([]metav1.PartialObjectMetadata{}, items...),
	})
}

// WriteStatus responds with an error, or with success if it is nil.
func WriteStatus(w http.ResponseWriter, err *apierrors.StatusError) {
	status := metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}
	if err != nil {
		status = err.ErrStatus
	}
	status.APIVersion, status.Kind = "v1", "Status"
	WriteJSON(w, int(status.Code), &status)
}
