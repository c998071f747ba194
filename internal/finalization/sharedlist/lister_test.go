// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

var (
	podsType    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgetsType = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

	errOutage    = errors.New("the API server is down")
	errForbidden = apierrors.NewForbidden(widgetsType.GroupResource(), "", errors.New("no permission"))
	errTooOld    = apierrors.NewResourceExpired("the list is too old")
)

// clusterServer is a fake API server that lists objects in many namespaces, in a synctest bubble. It
// records requests as text.
type clusterServer struct {
	// objects contains the namespaces and names of each resource's objects, such as "x/a", in list order.
	objects map[string][]string
	// pageSize is the maximum number of objects on a page, regardless of the limit.
	pageSize int
	// hidesCount makes the server omit remainingItemCount, as the API allows.
	hidesCount bool
	// errors contains the errors that requests return, by the text of the request.
	errors map[string]error
	// silent contains the resources whose list requests get no response, also for one namespace, such as "widgets in x".
	silent map[string]bool
	// latency is the time until the response to a request.
	latency time.Duration

	lock sync.Mutex
	log  []string
	// requestedAt is the time of the last request.
	requestedAt time.Time
}

func (s *clusterServer) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return &clusterResource{server: s, resource: resource.Resource}
}

type clusterResource struct {
	metadata.Getter
	server              *clusterServer
	resource, namespace string
}

func (r *clusterResource) Namespace(name string) metadata.ResourceInterface {
	return &clusterResource{server: r.server, resource: r.resource, namespace: name}
}

func (r *clusterResource) List(
	ctx context.Context, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	words := r.resource + " cluster-wide"
	if r.namespace != "" {
		words = r.resource + " in " + r.namespace
	}
	if options.Continue != "" {
		words += " from " + options.Continue
	} else {
		words += fmt.Sprintf(", %d", options.Limit)
	}
	if options.ResourceVersion != "" || options.ResourceVersionMatch != "" {
		words += ", possibly from a cache"
	}
	return r.server.respond(ctx, words, r.resource, r.namespace, options)
}

func (s *clusterServer) respond(
	ctx context.Context, words, resource, namespace string, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	s.lock.Lock()
	s.log = append(s.log, words)
	s.requestedAt = time.Now()
	isSilent, latency, err := s.silent[resource] || s.silent[resource+" in "+namespace], s.latency, s.errors[words]
	s.lock.Unlock()
	if isSilent {
		latency = time.Hour
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var items []metav1.PartialObjectMetadata
	for _, path := range s.objects[resource] {
		in, name, _ := strings.Cut(path, "/")
		if namespace == "" || namespace == in {
			items = append(items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}})
		}
	}
	size := int(options.Limit)
	if s.pageSize > 0 {
		size = min(size, s.pageSize)
	}
	from, _ := strconv.Atoi(options.Continue)
	to := min(from+size, len(items))
	page := &metav1.PartialObjectMetadataList{Items: items[from:to]}
	page.ResourceVersion = "5"
	if left := len(items) - to; left > 0 {
		page.Continue = strconv.Itoa(to)
		if !s.hidesCount {
			page.RemainingItemCount = ptr.To(int64(left))
		}
	}
	return page, nil
}

// newRequests returns the requests since the last call, sorted.
func (s *clusterServer) newRequests() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	log := s.log
	s.log = nil
	slices.Sort(log)
	return log
}

func newLimiters() func(bool) *throttling.Limiter {
	limiters := map[bool]*throttling.Limiter{true: throttling.NewLimiter(64), false: throttling.NewLimiter(64)}
	return func(isAggregated bool) *throttling.Limiter { return limiters[isAggregated] }
}

func (s *clusterServer) lister() *Lister {
	return New(Options{
		Client: s, Clock: clock.RealClock{}, Limiter: newLimiters(), CountRequest: func() {},
		IsAggregated: func(schema.GroupVersion) bool { return false },
	})
}

func listObjects(ctx context.Context, lister *Lister, namespace string, notBefore time.Time, types ...schema.GroupVersionResource) []string {
	results, err := lister.List(ctx, namespace, types, notBefore)
	if err != nil {
		return []string{err.Error()}
	}
	var words []string
	for i, result := range results {
		gvr := types[i]
		if result.Err != nil {
			words = append(words, gvr.Resource+": "+result.Err.Error())
			continue
		}
		for _, object := range result.Page.Items {
			words = append(words, fmt.Sprintf("%s %s/%s", gvr.Resource, object.Namespace, object.Name))
		}
		if result.ListedAt.IsZero() || result.Page.ResourceVersion != "5" {
			words = append(words, gvr.Resource+" without time or resource version")
		}
	}
	slices.Sort(words)
	return words
}

// listConcurrently lists several namespaces in one batch.
func listConcurrently(lister *Lister, namespaces []string, types ...schema.GroupVersionResource) map[string][]string {
	result := map[string][]string{}
	var lock sync.Mutex
	var group sync.WaitGroup
	for _, namespace := range namespaces {
		group.Go(func() {
			words := listObjects(context.Background(), lister, namespace, time.Now(), types...)
			lock.Lock()
			defer lock.Unlock()
			if words != nil {
				result[namespace] = words
			}
		})
	}
	group.Wait()
	return result
}

func many(namespace string, count int) []string {
	var objects []string
	for i := range count {
		objects = append(objects, fmt.Sprintf("%s/%d", namespace, i))
	}
	return objects
}

// Additional list requests in each namespace would increase the load.
func TestListerDoesNotListPerNamespaceWhileThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		namespaces := []string{"x", "y", "z"}
		clusterWide := []string{"widgets cluster-wide, 1"}
		server := &clusterServer{errors: map[string]error{clusterWide[0]: apierrors.NewTooManyRequests("busy", 7)}}
		lister := server.lister()
		objects := listConcurrently(lister, namespaces, widgetsType)
		for _, namespace := range namespaces {
			g.Expect(objects[namespace]).To(Equal([]string{"widgets: busy"}))
		}
		g.Expect(server.newRequests()).To(Equal(clusterWide))

		// Throttling is not treated as a failure of the type, so the next list is cluster-wide again.
		server.errors = nil
		g.Expect(listConcurrently(lister, namespaces, widgetsType)).To(BeEmpty())
		g.Expect(server.newRequests()).To(Equal(clusterWide))
	})
}

func TestListerStopsListingAThrottledType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		// The Lister lists each namespace, because it cannot count the objects in the cluster.
		server := &clusterServer{
			objects: map[string][]string{"widgets": {"a/1", "b/2"}}, hidesCount: true,
			errors: map[string]error{}, latency: time.Second,
		}
		var namespaces []string
		for i := range 50 {
			namespace := fmt.Sprintf("n%d", i)
			namespaces = append(namespaces, namespace)
			server.errors["widgets in "+namespace+", 500"] = apierrors.NewTooManyRequests("busy", 7)
		}
		g.Expect(listConcurrently(server.lister(), namespaces, widgetsType)).To(HaveLen(50))
		g.Expect(len(server.newRequests())).To(BeNumerically("<=", 1+maxConcurrentPerType))
	})
}

func TestListerRequests(t *testing.T) {
	three := []string{"x", "y", "z"}
	failing := map[string]error{
		"widgets cluster-wide, 1": errForbidden, "widgets in y, 500": errOutage,
	}
	tests := map[string]struct {
		namespaces   []string
		server       *clusterServer
		types        []schema.GroupVersionResource
		want         map[string][]string
		wantRequests []string
	}{
		"one namespace": {
			namespaces:   []string{"x"},
			server:       &clusterServer{objects: map[string][]string{"widgets": {"x/a", "y/b"}}},
			types:        []schema.GroupVersionResource{podsType, widgetsType},
			want:         map[string][]string{"x": {"widgets x/a"}},
			wantRequests: []string{"pods in x, 500", "widgets in x, 500"},
		},
		"two namespaces": {
			namespaces: []string{"x", "y"}, wantRequests: []string{"widgets in x, 500", "widgets in y, 500"},
		},
		"no types": {namespaces: three, types: []schema.GroupVersionResource{}},
		"no objects": {
			namespaces: three, types: []schema.GroupVersionResource{podsType, widgetsType},
			wantRequests: []string{"pods cluster-wide, 1", "widgets cluster-wide, 1"},
		},
		"one object, returned by the request that counts objects": {
			namespaces: three, server: &clusterServer{objects: map[string][]string{"widgets": {"z/a"}}},
			want: map[string][]string{"z": {"widgets z/a"}}, wantRequests: []string{"widgets cluster-wide, 1"},
		},
		"few objects, one in another namespace": {
			namespaces: three,
			server:     &clusterServer{objects: map[string][]string{"widgets": {"a/a", "x/a", "x/b", "y/a"}}},
			want:       map[string][]string{"x": {"widgets x/a", "widgets x/b"}, "y": {"widgets y/a"}},
			// The second list is not a continuation of the first one.
			wantRequests: []string{"widgets cluster-wide, 1", "widgets cluster-wide, 500"},
		},
		"few objects on several pages": {
			namespaces: three,
			server:     &clusterServer{pageSize: 2, objects: map[string][]string{"widgets": {"w/a", "x/a", "x/b", "x/c", "y/a"}}},
			want:       map[string][]string{"x": {"widgets x/a", "widgets x/b", "widgets x/c"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets cluster-wide from 2", "widgets cluster-wide from 4", "widgets cluster-wide, 1", "widgets cluster-wide, 500",
			},
		},
		"many objects in another namespace": {
			namespaces:   three,
			server:       &clusterServer{objects: map[string][]string{"widgets": append(many("other", 2000), "x/a")}},
			want:         map[string][]string{"x": {"widgets x/a"}},
			wantRequests: []string{"widgets cluster-wide, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"no remainingItemCount": {
			namespaces:   three,
			server:       &clusterServer{hidesCount: true, objects: map[string][]string{"widgets": {"x/a", "x/b"}}},
			want:         map[string][]string{"x": {"widgets x/a", "widgets x/b"}},
			wantRequests: []string{"widgets cluster-wide, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"the cluster-wide list is forbidden, and the list in one namespace fails": {
			namespaces:   three,
			server:       &clusterServer{errors: failing, objects: map[string][]string{"widgets": {"x/a"}}},
			want:         map[string][]string{"x": {"widgets x/a"}, "y": {"widgets: " + errOutage.Error()}},
			wantRequests: []string{"widgets cluster-wide, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"the cluster-wide list fails after the objects were counted": {
			namespaces: three,
			server: &clusterServer{
				errors:  map[string]error{"widgets cluster-wide, 500": errOutage},
				objects: map[string][]string{"widgets": {"x/a", "y/a"}},
			},
			want: map[string][]string{"x": {"widgets x/a"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets cluster-wide, 1", "widgets cluster-wide, 500",
				"widgets in x, 500", "widgets in y, 500", "widgets in z, 500",
			},
		},
		"the cluster-wide list expires, and its first page is discarded": {
			namespaces: three,
			server: &clusterServer{
				pageSize: 1, errors: map[string]error{"widgets cluster-wide from 1": errTooOld},
				objects: map[string][]string{"widgets": {"x/a", "y/a"}},
			},
			want: map[string][]string{"x": {"widgets x/a"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets cluster-wide from 1", "widgets cluster-wide, 1", "widgets cluster-wide, 500",
				"widgets in x, 500", "widgets in y, 500", "widgets in z, 500",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				if test.types == nil {
					test.types = []schema.GroupVersionResource{widgetsType}
				}
				if test.server == nil {
					test.server = &clusterServer{}
				}
				if test.want == nil {
					test.want = map[string][]string{}
				}
				g.Expect(listConcurrently(test.server.lister(), test.namespaces, test.types...)).To(Equal(test.want))
				g.Expect(test.server.newRequests()).To(Equal(test.wantRequests))
			})
		})
	}
}

// The age of a list is measured from its request, not from its response.
func TestListerReusesLists(t *testing.T) {
	tests := map[string]struct {
		// notBefore is the parameter of the later call of List, and later is the time of this call. Both
		// times are relative to the first request.
		notBefore time.Duration
		later     time.Duration
		want      []string
	}{
		"notBefore is earlier than the request": {notBefore: -time.Second, later: time.Second},
		"notBefore is the time of the request":  {notBefore: 0, later: time.Second},
		"notBefore is later than the request":   {notBefore: 1, later: time.Second, want: []string{"widgets in late, 500"}},
		"notBefore is the time of the response": {notBefore: 50 * time.Millisecond, later: time.Second, want: []string{"widgets in late, 500"}},
		"the list has almost expired":           {notBefore: -time.Second, later: listLifetime},
		"the list has expired":                  {notBefore: -time.Second, later: listLifetime + 1, want: []string{"widgets in late, 500"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := clusterServer{latency: 50 * time.Millisecond, objects: map[string][]string{"widgets": {"other/a"}}}
				lister := server.lister()
				listConcurrently(lister, []string{"x", "y", "z"}, widgetsType)
				g.Expect(server.newRequests()).To(HaveLen(1))
				requestedAt := server.requestedAt

				time.Sleep(test.later - time.Since(requestedAt))
				objects := listObjects(t.Context(), lister, "late", requestedAt.Add(test.notBefore), widgetsType)
				g.Expect(objects).To(BeEmpty())
				g.Expect(server.newRequests()).To(Equal(test.want))
			})
		})
	}
}

// A cluster-wide list keeps only the objects in the namespaces of its callers.
func TestListerListsObjectsThatWereNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{objects: map[string][]string{"widgets": {"late/a"}}}
		lister := server.lister()
		began := time.Now()
		listConcurrently(lister, []string{"x", "y", "z"}, widgetsType)
		server.newRequests()
		g.Expect(listObjects(t.Context(), lister, "late", began, widgetsType)).To(Equal([]string{"widgets late/a"}))
		g.Expect(server.newRequests()).To(Equal([]string{"widgets in late, 500"}))
	})
}

// Types of aggregated API servers are not listed cluster-wide. A failed cluster-wide list is not
// repeated until failureLifetime has passed.
func TestListerDoesNotListClusterWide(t *testing.T) {
	namespaces := []string{"x", "y", "z"}
	each := []string{"widgets in x, 500", "widgets in y, 500", "widgets in z, 500"}
	t.Run("for types of an aggregated API server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			server := clusterServer{}
			lister := server.lister()
			lister.IsAggregated = func(version schema.GroupVersion) bool { return version == widgetsType.GroupVersion() }
			listConcurrently(lister, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(ConsistOf("widgets in x, 0", "widgets in y, 0", "widgets in z, 0"))
			listConcurrently(lister, namespaces, podsType)
			g.Expect(server.newRequests()).To(HaveLen(1))
		})
	})
	t.Run("after a failure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			server := clusterServer{}
			lister := server.lister()
			lister.failures[widgetsType] = time.Now()
			listConcurrently(lister, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(ConsistOf(each))
			time.Sleep(failureLifetime + 1)
			listConcurrently(lister, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(HaveLen(1))
		})
	})
}

func TestListerListsOnlyMissingTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		lister := server.lister()
		began := time.Now()
		listConcurrently(lister, []string{"x", "y", "z"}, widgetsType)
		server.newRequests()
		listObjects(t.Context(), lister, "late", began, widgetsType, podsType)
		g.Expect(server.newRequests()).To(Equal([]string{"pods in late, 500"}))
	})
}

func TestListerServesPendingRequestsFromThePreviousBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: time.Second}
		lister := server.lister()
		began := time.Now()
		var group sync.WaitGroup
		group.Go(func() { listConcurrently(lister, []string{"x", "y", "z"}, widgetsType) })
		time.Sleep(batchDelay + 500*time.Millisecond) // The batch for x, y and z has started.
		group.Go(func() { listObjects(t.Context(), lister, "before", began, widgetsType) })
		group.Go(func() { listObjects(t.Context(), lister, "since", time.Now(), widgetsType) })
		group.Wait()
		g.Expect(server.newRequests()).To(Equal([]string{"widgets cluster-wide, 1", "widgets in since, 500"}))
	})
}

func TestListerDeletesExpiredLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		lister := server.lister()
		listConcurrently(lister, []string{"x", "y", "z"}, widgetsType)
		listCount := func() int {
			lister.lock.Lock()
			defer lister.lock.Unlock()
			return len(lister.lists)
		}
		g.Expect(listCount()).To(Equal(1))
		time.Sleep(2*listLifetime + time.Second)
		synctest.Wait()
		g.Expect(listCount()).To(BeZero())
	})
}

func TestListerBatchInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		lister := server.lister()
		took := func() time.Duration {
			began := time.Now()
			listConcurrently(lister, []string{"x"}, widgetsType)
			return time.Since(began)
		}
		g.Expect(took()).To(Equal(batchDelay))
		g.Expect(took()).To(Equal(batchInterval))
		time.Sleep(time.Minute)
		g.Expect(took()).To(Equal(batchDelay))
	})
}

// An unresponsive aggregated API server must not block requests for other types.
func TestListerDoesNotWaitForAnUnresponsiveType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{silent: map[string]bool{"widgets": true}}
		lister := server.lister()
		began := time.Now()
		var group sync.WaitGroup
		defer group.Wait()
		for _, namespace := range []string{"a", "b", "c", "d"} {
			group.Go(func() {
				words := listObjects(context.Background(), lister, namespace, began, widgetsType, podsType)
				g.Expect(words).To(Equal([]string{"widgets: context deadline exceeded"}))
				// No request waits for a second timeout.
				g.Expect(time.Since(began)).To(BeNumerically("<", 2*throttling.RequestTimeout+time.Second))
			})
		}
		group.Go(func() {
			listObjects(context.Background(), lister, "same-batch", began, podsType)
			g.Expect(time.Since(began)).To(Equal(batchDelay))
		})
		time.Sleep(time.Second)
		for _, namespace := range []string{"next-batch", "later-batch"} {
			asked := time.Now()
			g.Expect(listObjects(context.Background(), lister, namespace, asked, podsType)).To(BeEmpty())
			g.Expect(time.Since(asked)).To(BeNumerically("<=", batchTimeout+batchInterval))
		}
	})
}

// If an aggregated API server does not respond to requests for some namespaces, requests for the others must not wait,
// neither in the same batch nor in the next one.
func TestListerDoesNotWaitForUnresponsiveNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{silent: map[string]bool{}}
		var silent []string
		for i := range 20 {
			silent = append(silent, fmt.Sprintf("silent-%d", i))
			server.silent["widgets in "+silent[i]] = true
		}
		lister := server.lister()
		lister.IsAggregated = func(version schema.GroupVersion) bool { return version == widgetsType.GroupVersion() }
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			g.Expect(listConcurrently(lister, silent, widgetsType, podsType)).To(HaveLen(20))
		})
		synctest.Wait()
		for _, namespace := range []string{"same-batch", "next-batch"} {
			asked := time.Now()
			g.Expect(listObjects(context.Background(), lister, namespace, asked, widgetsType, podsType)).To(BeEmpty())
			g.Expect(time.Since(asked)).To(BeNumerically("<=", batchInterval), namespace)
		}
	})
}

// If the context of one caller is canceled, the shared request continues.
func TestListerContinuesForOtherCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: time.Second, objects: map[string][]string{"widgets": {"y/a"}}}
		lister := server.lister()
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			g.Expect(listObjects(ctx, lister, "x", time.Now(), widgetsType)).To(Equal([]string{"context canceled"}))
		})
		group.Go(func() {
			g.Expect(listConcurrently(lister, []string{"y", "z"}, widgetsType)).
				To(Equal(map[string][]string{"y": {"widgets y/a"}}))
		})
		time.Sleep(batchDelay + 500*time.Millisecond)
		cancel(errors.New("the caller has returned"))
		group.Wait()
		g.Expect(server.newRequests()).To(Equal([]string{"widgets cluster-wide, 1"}))
	})
}

// This test detects races and lost requests.
func TestListerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: 30 * time.Millisecond, objects: map[string][]string{}}
		for i := range 100 {
			server.objects["widgets"] = append(server.objects["widgets"], fmt.Sprintf("n%d/a", i))
		}
		lister := server.lister()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				time.Sleep(time.Duration(i%7) * 50 * time.Millisecond)
				for range 3 {
					words := listObjects(t.Context(), lister, fmt.Sprintf("n%d", i), time.Now(), widgetsType, podsType)
					g.Expect(words).To(Equal([]string{fmt.Sprintf("widgets n%d/a", i)}))
				}
			})
		}
		group.Wait()
	})
}

func TestListerAcceptsDuplicateTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := clusterServer{objects: map[string][]string{"widgets": {"x/a"}}}
		objects := listObjects(t.Context(), server.lister(), "x", time.Now(), widgetsType, widgetsType)
		NewWithT(t).Expect(objects).To(Equal([]string{"widgets x/a", "widgets x/a"}))
	})
}

func TestListerCountsRequests(t *testing.T) {
	three := []string{"x", "y", "z"}
	tests := map[string]struct {
		namespaces []string
		errors     map[string]error
		want       int
	}{
		"one namespace":                 {namespaces: []string{"x"}, want: 2},
		"two namespaces":                {namespaces: []string{"x", "y"}, want: 4},
		"three namespaces share a list": {namespaces: three, want: 2},
		"failed requests are counted": {
			namespaces: three, want: 5,
			errors: map[string]error{"pods cluster-wide, 1": errForbidden, "pods in y, 500": errOutage},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &clusterServer{errors: test.errors}
				lister := server.lister()
				var count atomic.Int64
				lister.CountRequest = func() { count.Add(1) }
				listConcurrently(lister, test.namespaces, podsType, widgetsType)
				g.Expect(server.newRequests()).To(HaveLen(test.want))
				g.Expect(count.Load()).To(BeEquivalentTo(test.want))

				if test.errors == nil && len(test.namespaces) > maxUncounted {
					// A later call uses the existing list.
					listObjects(t.Context(), lister, "late", time.Now().Add(-time.Second), podsType)
					g.Expect(count.Load()).To(BeEquivalentTo(test.want))
				}
			})
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsClusterWideCheaper(t *testing.T) {
	tests := map[string]struct {
		namespaces int
		objects    int64
		want       bool
	}{
		"no objects":                                    {namespaces: 3, objects: 0, want: true},
		"no objects, one namespace":                     {namespaces: 1, objects: 0, want: true},
		"one object, one namespace":                     {namespaces: 1, objects: 1, want: false},
		"one object, two namespaces":                    {namespaces: 2, objects: 1, want: true},
		"a full page, three namespaces":                 {namespaces: 3, objects: 500, want: true},
		"a full page, two namespaces":                   {namespaces: 2, objects: 500, want: false},
		"one object on a second page, three namespaces": {namespaces: 3, objects: 501, want: false},
		"one object on a second page, four namespaces":  {namespaces: 4, objects: 501, want: false},
		"one object on a second page, five namespaces":  {namespaces: 5, objects: 501, want: true},
		"many objects, few namespaces":                  {namespaces: 20, objects: 10000, want: false},
		"many objects, many namespaces":                 {namespaces: 200, objects: 10000, want: true},
		"equal cost":                                    {namespaces: 200, objects: 33250, want: true},
		"slightly higher cost":                          {namespaces: 200, objects: 33251, want: false},
		"an impossibly large number of objects":         {namespaces: 10000, objects: 1 << 60, want: false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isClusterWideCheaper(test.namespaces, test.objects)).To(Equal(test.want))
		})
	}
}
