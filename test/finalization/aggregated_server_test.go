// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// aggregatedServer is an aggregated API server with one API group and in-memory storage.
type aggregatedServer struct {
	group     string
	priority  int64 // of its version within the group; 10 if zero
	isLegacy  bool  // without aggregated discovery
	address   string
	server    *httptest.Server
	service   *corev1.Service
	lock      sync.Mutex
	resources map[string]*aggregatedResource
}

// aggregatedResource is a namespaced resource type.
type aggregatedResource struct {
	verbs   []string
	objects map[types.NamespacedName]metav1.PartialObjectMetadata
	// behavior is nil for a type whose objects can be deleted only with their UID as a precondition.
	behavior *behavior
	// ended contains the namespaces in which the type no longer has its behavior.
	ended map[string]bool
	// listFails makes list requests fail with status 500.
	listFails bool
	// deleted is called after each deletion, while the server is locked.
	deleted func(types.NamespacedName)
}

// startAggregatedServer serves an API group through the API server until the spec ends. verbs maps
// each resource type to its verbs.
func startAggregatedServer(ctx context.Context, isLegacy bool, verbs map[string][]string) *aggregatedServer {
	GinkgoHelper()
	result := newAggregatedServer()
	result.isLegacy = isLegacy
	for name, list := range verbs {
		result.addResource(name, list, nil)
	}
	result.serve(ctx)
	return result
}

func newAggregatedServer() *aggregatedServer {
	return &aggregatedServer{
		group: unique("g") + ".aggregated.example.com", resources: map[string]*aggregatedResource{},
	}
}

func (s *aggregatedServer) addResource(name string, verbs []string, served *behavior) {
	s.resources[name] = &aggregatedResource{
		verbs: verbs, objects: map[types.NamespacedName]metav1.PartialObjectMetadata{},
		behavior: served, ended: map[string]bool{},
	}
}

// serve serves the API group through the API server until the spec ends.
func (s *aggregatedServer) serve(ctx context.Context) {
	GinkgoHelper()
	s.start()
	DeferCleanup(s.stop)

	system := createNamespace(ctx, "aggregated")
	s.service = &corev1.Service{}
	s.service.Namespace, s.service.Name = system.Name, "server"
	// The aggregator resolves this name, so the Service needs neither endpoints nor a cluster IP.
	s.service.Spec.Type, s.service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
	create(ctx, s.service)
	create(ctx, s.apiService())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, s.apiService()))).To(Succeed())
		Expect(client.IgnoreNotFound(admin.Delete(ctx, wrappers.MakeNamespace(system.Name).Obj()))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, isLegacy := range []bool{false, true} {
				groups, err := newDiscovery(isLegacy).ServerGroupsWithContext(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				for _, group := range groups.Groups {
					g.Expect(group.Name).NotTo(Equal(s.group))
				}
			}
		}).WithContext(ctx).Should(Succeed())
	})
	s.expectDiscovered(ctx)
}

// start listens on a free port, or on the previous port after a restart.
func (s *aggregatedServer) start() {
	GinkgoHelper()
	address := s.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	s.address = listener.Addr().String()
	s.server = httptest.NewUnstartedServer(s.handler())
	Expect(s.server.Listener.Close()).To(Succeed())
	s.server.Listener = listener
	s.server.StartTLS()
}

// stop closes the server and keeps its objects.
func (s *aggregatedServer) stop() {
	s.server.CloseClientConnections()
	s.server.Close()
}

func (s *aggregatedServer) apiService() *unstructured.Unstructured {
	port := s.address[strings.LastIndex(s.address, ":")+1:]
	object := fromJSON(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",
		"spec":{"version":"v1","groupPriorityMinimum":1000,"insecureSkipTLSVerify":true,
		"service":{"name":"server","port":` + port + `}}}`)
	object.SetName("v1." + s.group)
	namespace := "none"
	if s.service != nil {
		namespace = s.service.Namespace
	}
	Expect(unstructured.SetNestedField(object.Object, s.group, "spec", "group")).To(Succeed())
	Expect(unstructured.SetNestedField(object.Object, cmp.Or(s.priority, 10), "spec", "versionPriority")).To(Succeed())
	Expect(unstructured.SetNestedField(object.Object, namespace, "spec", "service", "namespace")).To(Succeed())
	return object
}

// expectDiscovered waits until discovery returns the resource types.
func (s *aggregatedServer) expectDiscovered(ctx context.Context) {
	GinkgoHelper()
	expectAvailable(ctx, s.apiService(), "True")
	Eventually(func(g Gomega) {
		lists, err := newDiscovery(false).ServerPreferredNamespacedResourcesWithContext(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
			return list.GroupVersion == s.group+"/v1" && len(list.APIResources) == len(s.resources)
		})).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// expectAvailable waits until the Available condition of an APIService has the given status.
func expectAvailable(ctx context.Context, apiService *unstructured.Unstructured, status string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := apiService.DeepCopy()
		g.Expect(admin.Get(ctx, keyOf(apiService), now)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Available"),
			HaveKeyWithValue("status", status))), "%v", conditions)
	}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
}

func (s *aggregatedServer) add(resource, namespace string, names ...string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, name := range names {
		s.resources[resource].put(namespace, name)
	}
}

// onDelete registers a callback that runs after each deletion of an object of the given type.
func (s *aggregatedServer) onDelete(resource string, deleted func(*aggregatedResource, types.NamespacedName)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.resources[resource].deleted = func(key types.NamespacedName) { deleted(s.resources[resource], key) }
}

// remove deletes an object regardless of its finalizers.
func (s *aggregatedServer) remove(resource, namespace, name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.resources[resource].objects, types.NamespacedName{Namespace: namespace, Name: name})
}

// removeAll deletes all objects of a type in a namespace, and ends the behavior of the type there.
func (s *aggregatedServer) removeAll(resource, namespace string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.resources[resource].ended[namespace] = true
	for _, object := range s.resources[resource].in(namespace) {
		delete(s.resources[resource].objects, types.NamespacedName{Namespace: namespace, Name: object.Name})
	}
}

func (r *aggregatedResource) put(namespace, name string, finalizers ...string) {
	object := metav1.PartialObjectMetadata{}
	object.Namespace, object.Name, object.UID = namespace, name, types.UID(unique("uid"))
	object.ResourceVersion, object.Finalizers = "1", finalizers
	r.objects[types.NamespacedName{Namespace: namespace, Name: name}] = object
}

// count returns the number of objects of a type in a namespace.
func (s *aggregatedServer) count(resource, namespace string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.resources[resource].in(namespace))
}

func (s *aggregatedServer) setListFails(resource string, fails bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.resources[resource].listFails = fails
}

func (s *aggregatedServer) groupResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: s.group, Resource: resource}
}

func (r *aggregatedResource) in(namespace string) []metav1.PartialObjectMetadata {
	items := []metav1.PartialObjectMetadata{}
	for key, object := range r.objects {
		if namespace == "" || key.Namespace == namespace {
			items = append(items, object)
		}
	}
	slices.SortFunc(items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return items
}

func (s *aggregatedServer) handler() http.Handler {
	mux := http.NewServeMux()
	base := "/apis/" + s.group
	mux.HandleFunc("GET /apis", s.serveGroups)
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, s.apiGroup()) })
	mux.HandleFunc("GET "+base+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, s.resourceList())
	})
	mux.HandleFunc("GET "+base+"/v1/{resource}", s.with("list", s.list))
	mux.HandleFunc("GET "+base+"/v1/namespaces/{namespace}/{resource}", s.with("list", s.list))
	mux.HandleFunc("DELETE "+base+"/v1/namespaces/{namespace}/{resource}", s.with("deletecollection", s.deleteAll))
	mux.HandleFunc("DELETE "+base+"/v1/namespaces/{namespace}/{resource}/{name}", s.with("delete", s.deleteOne))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		respondError(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
	})
	return mux
}

// with returns a handler that calls f if the resource type supports the verb.
func (s *aggregatedServer) with(
	verb string, f func(http.ResponseWriter, *http.Request, *aggregatedResource),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		gr := s.groupResource(r.PathValue("resource"))
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
			if resource := s.resources[gr.Resource]; resource != nil && slices.Contains(resource.verbs, verb) {
				sendNoEvents(w, r)
				return
			}
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		resource := s.resources[gr.Resource]
		switch {
		case resource == nil:
			respondError(w, apierrors.NewNotFound(gr, ""))
		case !slices.Contains(resource.verbs, verb):
			respondError(w, apierrors.NewMethodNotSupported(gr, verb))
		case resource.behavior != nil:
			resource.behaviorIn(gr.Resource, r.PathValue("namespace")).serve(w, r, verb, resource)
		default:
			f(w, r, resource)
		}
	}
}

// sendNoEvents keeps a watch open until the client closes it.
func sendNoEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (s *aggregatedServer) list(w http.ResponseWriter, r *http.Request, resource *aggregatedResource) {
	if resource.listFails {
		respondError(w, apierrors.NewInternalError(errStorage))
		return
	}
	list := &metav1.PartialObjectMetadataList{Items: resource.in(r.PathValue("namespace"))}
	list.APIVersion, list.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	list.ResourceVersion = "1"
	respond(w, http.StatusOK, list)
}

func (s *aggregatedServer) deleteAll(w http.ResponseWriter, r *http.Request, resource *aggregatedResource) {
	for _, object := range resource.in(r.PathValue("namespace")) {
		delete(resource.objects, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	}
	respond(w, http.StatusOK, success())
}

func (s *aggregatedServer) deleteOne(w http.ResponseWriter, r *http.Request, resource *aggregatedResource) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	gr := s.groupResource(r.PathValue("resource"))
	object, exists := resource.objects[key]
	var options metav1.DeleteOptions
	err := json.NewDecoder(r.Body).Decode(&options)
	switch {
	case err != nil:
		respondError(w, apierrors.NewBadRequest("failed to decode the DeleteOptions: "+err.Error()))
	case !exists:
		respondError(w, apierrors.NewNotFound(gr, key.Name))
	case options.Preconditions == nil || options.Preconditions.UID == nil || *options.Preconditions.UID != object.UID:
		respondError(w, apierrors.NewBadRequest("the request has no UID precondition"))
	case len(object.Finalizers) > 0:
		object.DeletionTimestamp = new(metav1.Now())
		resource.objects[key] = object
		respond(w, http.StatusAccepted, success())
	default:
		delete(resource.objects, key)
		respond(w, http.StatusOK, success())
		if resource.deleted != nil {
			resource.deleted(key)
		}
	}
}

func (s *aggregatedServer) serveGroups(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	switch {
	case !strings.Contains(accept, "as=APIGroupDiscoveryList"):
		list := &metav1.APIGroupList{Groups: []metav1.APIGroup{*s.apiGroup()}}
		list.APIVersion, list.Kind = "v1", "APIGroupList"
		respond(w, http.StatusOK, list)
	case s.isLegacy:
		http.Error(w, "aggregated discovery is not supported", http.StatusNotAcceptable)
	default:
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		respond(w, http.StatusOK, s.aggregatedDiscovery())
	}
}

func (s *aggregatedServer) apiGroup() *metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: s.group + "/v1", Version: "v1"}
	group := &metav1.APIGroup{
		Name: s.group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	group.APIVersion, group.Kind = "v1", "APIGroup"
	return group
}

func (s *aggregatedServer) resourceList() *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: s.group + "/v1"}
	list.APIVersion, list.Kind = "v1", "APIResourceList"
	for name, resource := range s.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, SingularName: name, Namespaced: true, Kind: "Aggregated", Verbs: resource.verbs,
		})
	}
	return list
}

func (s *aggregatedServer) aggregatedDiscovery() *apidiscoveryv2.APIGroupDiscoveryList {
	version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for name, resource := range s.resources {
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: name, SingularResource: name, Scope: apidiscoveryv2.ScopeNamespace, Verbs: resource.verbs,
			ResponseKind: &metav1.GroupVersionKind{Group: s.group, Version: "v1", Kind: "Aggregated"},
		})
	}
	group := apidiscoveryv2.APIGroupDiscovery{Versions: []apidiscoveryv2.APIVersionDiscovery{version}}
	group.Name = s.group
	list := &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group}}
	list.APIVersion, list.Kind = "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"
	return list
}

func success() *metav1.Status {
	status := &metav1.Status{Status: metav1.StatusSuccess}
	status.APIVersion, status.Kind = "v1", "Status"
	return status
}

func respondError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.APIVersion, status.Kind = "v1", "Status"
	respond(w, int(status.Code), &status)
}

func respond(w http.ResponseWriter, code int, object any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
