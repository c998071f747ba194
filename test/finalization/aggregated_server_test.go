// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// aggregatedServer is an aggregated API server with in-memory storage.
type aggregatedServer struct {
	*framework.AggregatedServer
	lock      sync.Mutex
	resources map[string]*aggregatedResource
}

// aggregatedResource is a namespaced resource type.
type aggregatedResource struct {
	behavior
	objects map[types.NamespacedName]metav1.PartialObjectMetadata
	// needsUID makes deletions fail without the UID of the object as a precondition.
	needsUID bool
	// ended contains the namespaces in which the type no longer has its behavior.
	ended map[string]bool
}

// newAggregatedServer returns a server that is not registered yet. verbs maps each resource type to its verbs.
func newAggregatedServer(verbs map[string][]string) *aggregatedServer {
	server := &aggregatedServer{resources: map[string]*aggregatedResource{}}
	mux := http.NewServeMux()
	server.AggregatedServer = framework.NewAggregatedServer(mux.ServeHTTP)
	base := "/apis/" + server.Group + "/v1/"
	mux.HandleFunc("GET "+base+"{resource}", server.with("list"))
	mux.HandleFunc("GET "+base+"namespaces/{namespace}/{resource}", server.with("list"))
	mux.HandleFunc("DELETE "+base+"namespaces/{namespace}/{resource}", server.with("deletecollection"))
	mux.HandleFunc("DELETE "+base+"namespaces/{namespace}/{resource}/{name}", server.with("delete"))
	for name, list := range verbs {
		server.addResource(name, behavior{verbs: list}).needsUID = true
	}
	return server
}

func (s *aggregatedServer) addResource(name string, served behavior) *aggregatedResource {
	s.Types = append(s.Types, framework.MakeType(name, served.verbs...))
	s.resources[name] = &aggregatedResource{
		behavior: served, objects: map[types.NamespacedName]metav1.PartialObjectMetadata{}, ended: map[string]bool{},
	}
	return s.resources[name]
}

// serve serves the API group through the API server until the spec ends.
func (s *aggregatedServer) serve(ctx context.Context) *aggregatedServer {
	GinkgoHelper()
	s.Register(ctx, cluster)
	s.ExpectDiscovered(ctx)
	return s
}

func (s *aggregatedServer) add(resource, namespace string, names ...string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, name := range names {
		s.resources[resource].put(namespace, name)
	}
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

func (r *aggregatedResource) put(namespace, name string) {
	object := metav1.PartialObjectMetadata{}
	object.Namespace, object.Name, object.UID = namespace, name, types.UID(unique("uid"))
	object.ResourceVersion = "1"
	r.objects[types.NamespacedName{Namespace: namespace, Name: name}] = object
}

// count returns the number of objects of a type in a namespace.
func (s *aggregatedServer) count(resource, namespace string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.resources[resource].in(namespace))
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

// with returns a handler of requests with a verb.
func (s *aggregatedServer) with(verb string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resource, isWatch := s.resources[r.PathValue("resource")], r.URL.Query().Get("watch") != ""
		switch {
		case resource == nil:
			http.NotFound(w, r)
		case isWatch && slices.Contains(resource.verbs, "watch"):
			sendNoEvents(w, r)
		case isWatch || !slices.Contains(resource.verbs, verb):
			framework.WriteStatus(w, apierrors.NewMethodNotSupported(behaviorResource, verb))
		default:
			s.lock.Lock()
			defer s.lock.Unlock()
			resource.serve(w, r, verb)
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

func (r *aggregatedResource) serve(w http.ResponseWriter, request *http.Request, verb string) {
	namespace, name := request.PathValue("namespace"), request.PathValue("name")
	b := r.behaviorIn(request.PathValue("resource"), namespace)
	var err error
	if b.authorize != nil {
		err = b.authorize(request, verb)
	}
	switch {
	case err != nil:
	case verb == "list":
		limit, _ := strconv.Atoi(request.URL.Query().Get("limit"))
		list := &metav1.PartialObjectMetadataList{Items: r.in(namespace)}
		if b.list != nil {
			list = b.list(r, namespace, listOptions{limit: limit, continueToken: request.URL.Query().Get("continue")})
		}
		framework.WriteList(w, list.ListMeta, list.Items...)
		return
	case verb == "delete":
		var options metav1.DeleteOptions
		key := types.NamespacedName{Namespace: namespace, Name: name}
		switch err = json.NewDecoder(request.Body).Decode(&options); {
		case err != nil:
		case r.needsUID && (options.Preconditions == nil || options.Preconditions.UID == nil || *options.Preconditions.UID != r.objects[key].UID):
			err = apierrors.NewBadRequest("the request does not have the UID of the object as a precondition")
		case b.delete != nil:
			err = b.delete(r, key)
		default:
			if _, exists := r.objects[key]; !exists {
				err = apierrors.NewNotFound(behaviorResource, name)
			}
			delete(r.objects, key)
		}
	case b.deleteAll != nil:
		err = b.deleteAll(r, namespace)
	default:
		for _, object := range r.in(namespace) {
			delete(r.objects, types.NamespacedName{Namespace: namespace, Name: object.Name})
		}
	}
	var status *apierrors.StatusError
	if err != nil && !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	framework.WriteStatus(w, status)
}

// behavior is how an aggregated API server serves a type. A function that is nil behaves as in kube-apiserver. The
// functions are called while the server is locked.
type behavior struct {
	verbs []string
	// authorize returns the error of a request that the server does not allow.
	authorize func(r *http.Request, verb string) error
	// list returns the response to a list request in a namespace.
	list func(stored *aggregatedResource, namespace string, options listOptions) *metav1.PartialObjectMetadataList
	// delete and deleteAll return errors of requests for one object and for all objects in a namespace.
	delete    func(stored *aggregatedResource, key types.NamespacedName) error
	deleteAll func(stored *aggregatedResource, namespace string) error
}

// listOptions are the options of a list request. The limit is 0 if the client set none.
type listOptions struct {
	limit         int
	continueToken string
}

var behaviorResource = schema.GroupResource{Resource: "objects"}

// behaviorIn returns the behavior of a type in a namespace. The type behaves as in kube-apiserver, except in namespaces
// that are named after it, so that one server can serve all behaviors.
func (r *aggregatedResource) behaviorIn(name, namespace string) *behavior {
	if !strings.HasPrefix(namespace, name+"-") || r.ended[namespace] {
		return &behavior{}
	}
	return &r.behavior
}

// each returns a list function that changes each stored object.
func each(change func(*metav1.PartialObjectMetadata)) func(*aggregatedResource, string, listOptions) *metav1.PartialObjectMetadataList {
	return func(stored *aggregatedResource, namespace string, _ listOptions) *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{Items: stored.in(namespace)}
		for i := range list.Items {
			change(&list.Items[i])
		}
		return list
	}
}

func withoutUID(object *metav1.PartialObjectMetadata) { object.UID = "" }

func notSupported(*aggregatedResource, types.NamespacedName) error {
	return apierrors.NewMethodNotSupported(behaviorResource, "delete")
}

func notFound(_ *aggregatedResource, key types.NamespacedName) error {
	return apierrors.NewNotFound(behaviorResource, key.Name)
}

// needsGet returns an authorize function that also requires get for a resource of Calico, as its API server does.
func needsGet(resource string) func(*http.Request, string) error {
	return func(r *http.Request, _ string) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.Header.Get("X-Remote-User"), Groups: r.Header["X-Remote-Group"],
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Group: "projectcalico.org", Resource: resource, Name: "default",
			},
		}}
		if err := admin.Create(r.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return apierrors.NewForbidden(behaviorResource, "", errors.New("the user cannot get "+resource))
		}
		return nil
	}
}

// aggregatedBehavior is a case of the comparison with kube-controller-manager. Its stub stores three objects.
type aggregatedBehavior struct {
	name string
	behavior
	// source stores three objects from which the type is computed.
	source string
	// byManager and byUpstream report whether the manager and kube-controller-manager finalize the namespace. docs/parity.md
	// gives the reasons for each difference.
	byManager, byUpstream bool
}

var (
	oneByOne   = []string{"delete", "list"}
	collection = []string{"delete", "deletecollection", "list"}
	watched    = []string{"delete", "deletecollection", "list", "watch"}
)

// aggregatedBehaviors are the behaviors of widely used aggregated API servers, and those that the API conventions
// leave open.
func aggregatedBehaviors() []aggregatedBehavior {
	return []aggregatedBehavior{
		{name: "plain", behavior: behavior{verbs: collection}, byManager: true, byUpstream: true},
		// Calico
		{name: "tiered", behavior: behavior{verbs: collection, authorize: needsGet("tiers")}, byManager: true, byUpstream: true},
		{name: "vaulted", behavior: behavior{verbs: collection, authorize: needsGet("vaults")}, byUpstream: true},
		// packages of kapp-controller: objects that a namespace shows but does not contain
		{name: "shownuntilcollection", behavior: behavior{verbs: collection, delete: notFound}, byManager: true, byUpstream: true},
		{name: "shownalways", behavior: behavior{
			verbs: collection, delete: notFound, deleteAll: func(*aggregatedResource, string) error { return nil },
		}},
		{name: "shownwithoutcollection", behavior: behavior{verbs: oneByOne, delete: notFound}},
		// image stream tags of OpenShift
		{name: "tags", source: "streams", behavior: behavior{verbs: oneByOne, delete: notFound, list: each(func(object *metav1.PartialObjectMetadata) {
			object.UID = "stream-uid"
		})}, byManager: true, byUpstream: true},
		// generated network policies of Kubescape
		{name: "computed", source: "profiles", behavior: behavior{
			verbs: collection, list: each(withoutUID), deleteAll: func(stored *aggregatedResource, namespace string) error {
				if len(stored.in(namespace)) > 0 {
					return apierrors.NewConflict(behaviorResource, "", errors.New("operation not supported"))
				}
				return nil
			},
		}, byManager: true, byUpstream: true},
		{name: "withoutuid", behavior: behavior{verbs: collection, list: each(withoutUID)}, byManager: true, byUpstream: true},
		{name: "withoutuidonebyone", behavior: behavior{verbs: oneByOne, list: each(withoutUID)}, byUpstream: true},
		{name: "newuids", behavior: behavior{
			verbs: collection, delete: func(_ *aggregatedResource, key types.NamespacedName) error {
				return apierrors.NewConflict(behaviorResource, key.Name, errors.New("the UID precondition was not met"))
			},
			list: each(func(object *metav1.PartialObjectMetadata) { object.UID = types.UID(unique("computed-uid")) }),
		}, byManager: true, byUpstream: true},
		{name: "undeletables", behavior: behavior{verbs: collection, delete: notSupported}, byManager: true, byUpstream: true},
		{name: "ineffective", behavior: behavior{verbs: collection, delete: func(*aggregatedResource, types.NamespacedName) error {
			return nil
		}}, byManager: true, byUpstream: true},
		// image stream tags of OpenShift: the server applies the limit before it filters, and drops the continue token
		{name: "limited", behavior: behavior{verbs: oneByOne, list: func(
			stored *aggregatedResource, namespace string, options listOptions,
		) *metav1.PartialObjectMetadataList {
			if options.limit > 0 {
				return &metav1.PartialObjectMetadataList{}
			}
			return &metav1.PartialObjectMetadataList{Items: stored.in(namespace)}
		}}, byManager: true, byUpstream: true},
		// Kubescape: pages of a size of its own, also for requests without a limit
		{name: "paged", behavior: behavior{verbs: oneByOne, list: func(
			stored *aggregatedResource, namespace string, options listOptions,
		) *metav1.PartialObjectMetadataList {
			items := slices.DeleteFunc(stored.in(namespace), func(object metav1.PartialObjectMetadata) bool {
				return object.Name <= options.continueToken
			})
			list := &metav1.PartialObjectMetadataList{Items: items[:min(2, len(items))]}
			if len(list.Items) == 2 {
				list.Continue = list.Items[1].Name
			}
			return list
		}}, byManager: true, byUpstream: true},
		{name: "repeating", behavior: behavior{verbs: collection, list: func(
			stored *aggregatedResource, namespace string, _ listOptions,
		) *metav1.PartialObjectMetadataList {
			list := &metav1.PartialObjectMetadataList{Items: stored.in(namespace)}
			list.Continue = "again"
			return list
		}}, byUpstream: true},
		{name: "miscounted", behavior: behavior{verbs: collection, list: func(
			stored *aggregatedResource, namespace string, _ listOptions,
		) *metav1.PartialObjectMetadataList {
			list := &metav1.PartialObjectMetadataList{Items: stored.in(namespace)}
			list.RemainingItemCount = ptr.To(int64(7))
			return list
		}}, byManager: true, byUpstream: true},
		// Kubescape: watches of one namespace never send events
		{name: "unwatched", behavior: behavior{verbs: watched}, byManager: true, byUpstream: true},
	}
}

// serveBehaviors serves a type for each behavior until the spec ends.
func serveBehaviors(ctx context.Context, behaviors []aggregatedBehavior) *aggregatedServer {
	GinkgoHelper()
	server := newAggregatedServer(nil)
	for _, one := range behaviors {
		resource := server.addResource(one.name, one.behavior)
		if one.source != "" {
			// The type is computed from the objects of its source.
			resource.objects = server.addResource(one.source, behavior{verbs: collection}).objects
		}
	}
	return server.serve(ctx)
}
