// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// tickingClock is a clock that advances each time it is read.
type tickingClock struct {
	lock sync.Mutex
	time time.Time
}

func newTickingClock() *tickingClock { return &tickingClock{time: now} }

func (c *tickingClock) Now() time.Time {
	c.advance(time.Millisecond)
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.time
}

func (c *tickingClock) Since(start time.Time) time.Duration { return c.Now().Sub(start) }

func (c *tickingClock) advance(duration time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.time = c.time.Add(duration)
}

// discoverer is a fake that returns its results in order and then repeats the last one.
type discoverer struct {
	results []discoveryResult
	// delay is the duration of each discovery. It can be set only in a synctest bubble.
	delay time.Duration

	lock  sync.Mutex
	count int
}

type discoveryResult struct {
	lists []*metav1.APIResourceList
	err   error
}

func (d *discoverer) ServerPreferredNamespacedResourcesWithContext(
	ctx context.Context,
) ([]*metav1.APIResourceList, error) {
	d.lock.Lock()
	result := d.results[min(d.count, len(d.results)-1)]
	d.count++
	d.lock.Unlock()
	if d.delay > 0 {
		select {
		case <-time.After(d.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return result.lists, result.err
}

var allVerbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// served returns the discovery result for the given types. An example is "v1/pods", or
// "example.com/v1/widgets:list,delete" for a type with only these verbs. If no type is in the core
// group, served adds a deletable one, because every API server has such a type.
func served(resources ...string) []*metav1.APIResourceList {
	if !slices.ContainsFunc(resources, func(text string) bool { return strings.HasPrefix(text, "v1/") }) {
		resources = append([]string{"v1/unseen:delete"}, resources...)
	}
	return servedOnly(resources...)
}

// servedOnly is like served, but adds no type.
func servedOnly(resources ...string) []*metav1.APIResourceList {
	var lists []*metav1.APIResourceList
	for _, text := range resources {
		name, verbs, hasVerbs := strings.Cut(text, ":")
		index := strings.LastIndex(name, "/")
		resource := metav1.APIResource{Name: name[index+1:], Namespaced: true, Verbs: allVerbs}
		if hasVerbs {
			resource.Verbs = strings.Split(verbs, ",")
		}
		lists = append(lists, &metav1.APIResourceList{
			GroupVersion: name[:index], APIResources: []metav1.APIResource{resource},
		})
	}
	return lists
}

// resourceType returns an ordinary type as the discovery cache returns it.
func resourceType(group, version, resource string) ResourceType {
	return ResourceType{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
		CanList:              true, CanDeleteCollection: true, CanWatch: true,
	}
}

var (
	podsType       = resourceType("", "v1", "pods")
	configMapsType = resourceType("", "v1", "configmaps")
	eventsType     = resourceType("", "v1", "events")
	widgetsType    = resourceType("example.com", "v1", "widgets")
)

// isAggregated reports whether an aggregated API server serves a group version.
func isAggregated(groupVersion schema.GroupVersion) bool {
	return groupVersion.Group == "aggregated.example.com"
}

func terminating() *corev1.Namespace {
	return wrappers.MakeNamespace("x").UID("x-uid").Terminating(now).Obj()
}

// namespaceReader is a NamespaceGetter that returns a fixed Namespace and error.
type namespaceReader struct {
	namespace *corev1.Namespace
	err       error
	log       func(string)
}

func (r *namespaceReader) Get(_ context.Context, name string) (*corev1.Namespace, error) {
	r.log("get namespace " + name)
	return r.namespace, r.err
}

func object(name string, finalizers ...string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "x", Name: name, UID: types.UID(name + "-uid"), Finalizers: finalizers,
	}}
}

func deleted(deletionTimestamp time.Time, name string, finalizers ...string) metav1.PartialObjectMetadata {
	result := object(name, finalizers...)
	result.DeletionTimestamp = ptr.To(metav1.NewTime(deletionTimestamp))
	return result
}

// contentServer simulates an API server with objects in namespaces, behind client-go's fake metadata
// client. It records requests as text. Unlike the object tracker of the fake client, it supports pages,
// UIDs and finalizers.
type contentServer struct {
	clock *tickingClock
	// objects contains the objects of each resource. An object without finalizers is deleted
	// immediately.
	objects map[string][]metav1.PartialObjectMetadata
	// grace contains the deletion grace periods of objects, by resource.
	grace map[string]time.Duration
	// errors contains the errors that requests return, by the recorded text of the request.
	errors map[string]error
	// hooks contains functions that are called before the response, by the recorded text of the request.
	hooks map[string]func()
	// isLocal makes confirmAggregated return false for all group versions, as if the cache was stale.
	isLocal bool
	// pageSize is the maximum number of objects on a page, regardless of the limit.
	pageSize int
	// isEmptyPageFirst makes every list start with an empty page.
	isEmptyPageFirst bool
	// emptyPages is the number of the other empty pages.
	emptyPages int

	lock sync.Mutex
	log  []string
	// watches contains all watches, open or closed, in the order in which they were started.
	watches []*watch.FakeWatcher
	// fake is client-go's fake metadata client.
	fake *metadatafake.FakeMetadataClient
}

func (s *contentServer) client() metadata.Interface {
	s.fake = metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	s.fake.PrependReactor("*", "*", s.react)
	s.fake.PrependWatchReactor("*", s.watch)
	return &contentClient{Interface: s.fake, server: s}
}

func (s *contentServer) confirmAggregated(_ context.Context, groupVersion schema.GroupVersion) (bool, error) {
	s.record("get apiservice " + groupVersion.String())
	return isAggregated(groupVersion) && !s.isLocal, s.errors["get apiservice"]
}

func (s *contentServer) record(words string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.log = append(s.log, words)
}

// recorded returns the recorded requests whose text starts with one of the given verbs.
func (s *contentServer) recorded(verbs ...string) []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	var result []string
	for _, words := range s.log {
		if slices.ContainsFunc(verbs, func(verb string) bool { return strings.HasPrefix(words, verb) }) {
			result = append(result, words)
		}
	}
	return result
}

func (s *contentServer) react(action clienttesting.Action) (bool, runtime.Object, error) {
	resource := action.GetResource().Resource
	words := action.GetVerb() + " " + resource
	if list, isList := action.(clienttesting.ListActionImpl); isList && list.ListOptions.Continue != "" {
		words += " from " + list.ListOptions.Continue
	}
	deletion, isDeletion := action.(clienttesting.DeleteActionImpl)
	if isDeletion {
		words += "/" + deletion.Name
	}
	if hook := s.hooks[words]; hook != nil {
		hook()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case isDeletion:
		options := deletion.GetDeleteOptions()
		s.log = append(s.log, fmt.Sprintf("%s of %s, %s", words, ptr.Deref(options.Preconditions.UID, "any UID"),
			ptr.Deref(options.PropagationPolicy, "as it comes")))
	case action.GetNamespace() == "":
		s.log = append(s.log, words+" cluster-wide")
	default:
		s.log = append(s.log, words)
	}
	if err := s.errors[words]; err != nil {
		return true, nil, err
	}
	switch {
	case isDeletion:
		return true, nil, s.delete(resource, deletion)
	case action.GetVerb() == "list":
		return true, s.list(resource, action.(clienttesting.ListActionImpl).ListOptions), nil
	default:
		return true, nil, nil
	}
}

func (s *contentServer) list(resource string, options metav1.ListOptions) runtime.Object {
	objects := s.objects[resource]
	from, _ := strconv.Atoi(options.Continue)
	size := cmp.Or(int(options.Limit), len(objects))
	if s.pageSize > 0 {
		size = s.pageSize
	}
	page := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}
	if s.isEmptyPageFirst && options.Continue == "" {
		page.Continue = "0"
		return page
	}
	if s.emptyPages > 0 {
		s.emptyPages--
		page.Continue = options.Continue + "0"
		return page
	}
	to := min(from+size, len(objects))
	for i := min(from, to); i < to; i++ {
		page.Items = append(page.Items, *objects[i].DeepCopy())
	}
	if left := len(objects) - to; left > 0 {
		page.Continue, page.RemainingItemCount = strconv.Itoa(to), ptr.To(int64(left))
	}
	return page
}

func (s *contentServer) delete(resource string, action clienttesting.DeleteActionImpl) error {
	groupResource := schema.GroupResource{Resource: resource}
	index := slices.IndexFunc(s.objects[resource], func(object metav1.PartialObjectMetadata) bool {
		return object.Name == action.Name
	})
	if index < 0 {
		return apierrors.NewNotFound(groupResource, action.Name)
	}
	// Copy the slice, because test cases may share it.
	objects := slices.Clone(s.objects[resource])
	s.objects[resource] = objects
	target := &objects[index]
	if *action.DeleteOptions.Preconditions.UID != target.UID {
		return apierrors.NewConflict(groupResource, action.Name, fmt.Errorf("the object has the UID %s", target.UID))
	}
	if *action.DeleteOptions.PropagationPolicy == metav1.DeletePropagationBackground {
		target.Finalizers = slices.DeleteFunc(slices.Clone(target.Finalizers), func(finalizer string) bool {
			return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
		})
	}
	if grace := s.grace[resource]; len(target.Finalizers) == 0 && grace == 0 {
		s.objects[resource] = slices.Delete(objects, index, index+1)
	} else if target.DeletionTimestamp == nil {
		target.DeletionTimestamp = ptr.To(metav1.NewTime(s.clock.Now().Add(grace)))
	}
	return nil
}

func (s *contentServer) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	words := "watch " + action.GetResource().Resource
	s.log = append(s.log, words+" from "+action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
	if err := s.errors[words]; err != nil {
		return true, nil, err
	}
	watcher := watch.NewFake()
	s.watches = append(s.watches, watcher)
	return true, watcher, nil
}

// fail makes the server return err for all later requests that are recorded as words, for example
// "watch pods". If err is nil, these requests succeed again.
func (s *contentServer) fail(words string, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.errors == nil {
		s.errors = map[string]error{}
	}
	s.errors[words] = err
}

// newest returns the most recently started watch.
func (s *contentServer) newest() *watch.FakeWatcher {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.watches[len(s.watches)-1]
}

// contentClient adds features that client-go's fake lacks: the options of list and deletecollection
// requests, and stopping a watch when its context is canceled.
type contentClient struct {
	metadata.Interface
	server *contentServer
}

func (c *contentClient) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return &contentGetter{Getter: c.Interface.Resource(resource), resource: resource, server: c.server}
}

type contentGetter struct {
	metadata.Getter
	resource schema.GroupVersionResource
	server   *contentServer
}

func (g *contentGetter) Namespace(name string) metadata.ResourceInterface {
	return &contentResource{ResourceInterface: g.Getter.Namespace(name), getter: g, namespace: name}
}

func (g *contentGetter) List(
	_ context.Context, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	return g.list("", options)
}

func (g *contentGetter) list(
	namespace string, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	action := clienttesting.NewListAction(g.resource, schema.GroupVersionKind{}, namespace, options)
	action.ListOptions = options
	response, err := g.server.fake.Invokes(action, nil)
	if err != nil {
		return nil, err
	}
	return response.(*metav1.PartialObjectMetadataList), nil
}

func (g *contentGetter) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watcher, err := g.Getter.Watch(ctx, options)
	if err == nil {
		context.AfterFunc(ctx, watcher.Stop)
	}
	return watcher, err
}

type contentResource struct {
	metadata.ResourceInterface
	getter    *contentGetter
	namespace string
}

func (r *contentResource) List(
	_ context.Context, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	return r.getter.list(r.namespace, options)
}

func (r *contentResource) DeleteCollection(
	ctx context.Context, options metav1.DeleteOptions, listOptions metav1.ListOptions,
) error {
	resource := r.getter.resource.Resource
	r.getter.server.record(fmt.Sprintf("deletecollection %s, %s", resource, *options.PropagationPolicy))
	if hook := r.getter.server.hooks["deletecollection "+resource]; hook != nil {
		hook()
	}
	if err := r.getter.server.errors["deletecollection "+resource]; err != nil {
		return err
	}
	return r.ResourceInterface.DeleteCollection(ctx, options, listOptions)
}
