// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

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
	return r.behavior
}

func (b *behavior) serve(w http.ResponseWriter, r *http.Request, verb string, stored *aggregatedResource) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	var response any = success()
	var err error
	if b.authorize != nil {
		err = b.authorize(r, verb)
	}
	switch {
	case err != nil:
	case verb == "list":
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		list := b.listOf(stored, namespace, listOptions{limit: limit, continueToken: r.URL.Query().Get("continue")})
		list.APIVersion, list.Kind, list.ResourceVersion = "meta.k8s.io/v1", "PartialObjectMetadataList", "1"
		response = list
	case verb == "delete":
		err = b.deleteOf(stored, types.NamespacedName{Namespace: namespace, Name: name})
	default:
		err = b.deleteAllOf(stored, namespace)
	}
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		respondError(w, status)
	case err != nil:
		respondError(w, apierrors.NewInternalError(err))
	default:
		respond(w, http.StatusOK, response)
	}
}

func (b *behavior) listOf(stored *aggregatedResource, namespace string, options listOptions) *metav1.PartialObjectMetadataList {
	if b.list == nil {
		return &metav1.PartialObjectMetadataList{Items: stored.in(namespace)}
	}
	return b.list(stored, namespace, options)
}

// deleteOf ignores preconditions.
func (b *behavior) deleteOf(stored *aggregatedResource, key types.NamespacedName) error {
	if b.delete != nil {
		return b.delete(stored, key)
	}
	if _, exists := stored.objects[key]; !exists {
		return apierrors.NewNotFound(behaviorResource, key.Name)
	}
	delete(stored.objects, key)
	return nil
}

func (b *behavior) deleteAllOf(stored *aggregatedResource, namespace string) error {
	if b.deleteAll != nil {
		return b.deleteAll(stored, namespace)
	}
	for _, object := range stored.in(namespace) {
		delete(stored.objects, types.NamespacedName{Namespace: namespace, Name: object.Name})
	}
	return nil
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
	server := newAggregatedServer()
	for i := range behaviors {
		one := &behaviors[i]
		server.addResource(one.name, one.verbs, &one.behavior)
		if one.source == "" {
			continue
		}
		source := &behavior{verbs: collection}
		server.addResource(one.source, source.verbs, source)
		// The type is computed from the objects of its source.
		server.resources[one.name].objects = server.resources[one.source].objects
	}
	server.serve(ctx)
	Expect(server.resources).NotTo(BeEmpty())
	return server
}
