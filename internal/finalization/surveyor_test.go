// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// clusterServer plays the API server's part for lists in many namespaces, in a bubble of
// synctest, and records in words what is asked of it.
type clusterServer struct {
	// objects are those of each resource, such as "x/a", in the order of a list.
	objects map[string][]string
	// pageSize is how many objects are on a page at most, whatever is asked for.
	pageSize int
	// hidesCount makes lists not tell how many objects remain, as the API allows.
	hidesCount bool
	// errors are what requests are answered with, by the words that are recorded.
	errors map[string]error
	// silent are the resources that no answer ever comes for.
	silent map[string]bool
	// latency is how long an answer takes.
	latency time.Duration

	lock sync.Mutex
	log  []string
	// asked is when the last request came.
	asked time.Time
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
	words := r.resource + " everywhere"
	if r.namespace != "" {
		words = r.resource + " in " + r.namespace
	}
	if options.Continue != "" {
		words += " from " + options.Continue
	} else {
		words += fmt.Sprintf(", %d", options.Limit)
	}
	if options.ResourceVersion != "" || options.ResourceVersionMatch != "" {
		words += ", and maybe from a cache"
	}
	return r.server.answer(ctx, words, r.resource, r.namespace, options)
}

func (s *clusterServer) answer(
	ctx context.Context, words, resource, namespace string, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	s.lock.Lock()
	s.log = append(s.log, words)
	s.asked = time.Now()
	isSilent, latency, err := s.silent[resource], s.latency, s.errors[words]
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

// newRequests returns what was asked since the last call, sorted.
func (s *clusterServer) newRequests() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	log := s.log
	s.log = nil
	slices.Sort(log)
	return log
}

func (s *clusterServer) surveyor() *surveyor {
	return newSurveyor(s, clock.RealClock{}, semaphore.NewWeighted(requestsAtOnce), nil)
}

// lookFor returns in words what there is of some types in a namespace.
func lookFor(ctx context.Context, s *surveyor, namespace string, notBefore time.Time, types ...ResourceType) []string {
	found, err := s.look(ctx, namespace, types, notBefore)
	if err != nil {
		return []string{err.Error()}
	}
	var words []string
	for resourceType, finding := range found {
		if finding.err != nil {
			words = append(words, resourceType.Resource+": "+finding.err.Error())
			continue
		}
		for _, object := range finding.page.Items {
			words = append(words, fmt.Sprintf("%s %s/%s", resourceType.Resource, object.Namespace, object.Name))
		}
		if finding.listedAt.IsZero() || finding.page.ResourceVersion != "5" {
			words = append(words, resourceType.Resource+" at an unknown time")
		}
	}
	slices.Sort(words)
	return words
}

// lookTogether looks in several namespaces in one round.
func lookTogether(s *surveyor, namespaces []string, types ...ResourceType) map[string][]string {
	result := map[string][]string{}
	var lock sync.Mutex
	var group sync.WaitGroup
	for _, namespace := range namespaces {
		group.Go(func() {
			words := lookFor(context.Background(), s, namespace, time.Now(), types...)
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

// many returns so many objects of a namespace.
func many(namespace string, count int) []string {
	var objects []string
	for i := range count {
		objects = append(objects, fmt.Sprintf("%s/%d", namespace, i))
	}
	return objects
}

// A list of each namespace would be more of what the API server has too much of.
func TestSurveyorAsksForLessWhereRequestsArePutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		namespaces := []string{"x", "y", "z"}
		everywhere := []string{"widgets everywhere, 1"}
		server := &clusterServer{errors: map[string]error{everywhere[0]: apierrors.NewTooManyRequests("busy", 7)}}
		surveyor := server.surveyor()
		found := lookTogether(surveyor, namespaces, widgetsType)
		for _, namespace := range namespaces {
			g.Expect(found[namespace]).To(Equal([]string{"widgets: busy"}))
		}
		g.Expect(server.newRequests()).To(Equal(everywhere))

		// It is no failure of the type: the whole cluster is asked as soon as it can be.
		server.errors = nil
		g.Expect(lookTogether(surveyor, namespaces, widgetsType)).To(BeEmpty())
		g.Expect(server.newRequests()).To(Equal(everywhere))
	})
}

func TestSurveyorStopsAskingForATypeThatIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		// Of more than one object, and no word of how many, so that each namespace is asked for.
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
		g.Expect(lookTogether(server.surveyor(), namespaces, widgetsType)).To(HaveLen(50))
		g.Expect(len(server.newRequests())).To(BeNumerically("<=", 1+requestsOfType))
	})
}

func TestSurveyorAsks(t *testing.T) {
	three := []string{"x", "y", "z"}
	failing := map[string]error{
		"widgets everywhere, 1": errForbidden, "widgets in y, 500": errOutage,
	}
	tests := map[string]struct {
		namespaces   []string
		server       *clusterServer
		types        []ResourceType
		want         map[string][]string
		wantRequests []string
	}{
		"one namespace asks for itself, each type once": {
			namespaces:   []string{"x"},
			server:       &clusterServer{objects: map[string][]string{"widgets": {"x/a", "y/b"}}},
			types:        []ResourceType{podsType, widgetsType},
			want:         map[string][]string{"x": {"widgets x/a"}},
			wantRequests: []string{"pods in x, 500", "widgets in x, 500"},
		},
		"so do two": {
			namespaces: []string{"x", "y"}, wantRequests: []string{"widgets in x, 500", "widgets in y, 500"},
		},
		"nobody wants to know anything": {namespaces: three, types: []ResourceType{}},
		"nothing is there, which is one small answer for all": {
			namespaces: three, types: []ResourceType{podsType, widgetsType},
			wantRequests: []string{"pods everywhere, 1", "widgets everywhere, 1"},
		},
		"there is one object, and it is known already": {
			namespaces: three, server: &clusterServer{objects: map[string][]string{"widgets": {"z/a"}}},
			want: map[string][]string{"z": {"widgets z/a"}}, wantRequests: []string{"widgets everywhere, 1"},
		},
		"few objects, some of them nobody's": {
			namespaces: three,
			server:     &clusterServer{objects: map[string][]string{"widgets": {"a/a", "x/a", "x/b", "y/a"}}},
			want:       map[string][]string{"x": {"widgets x/a", "widgets x/b"}, "y": {"widgets y/a"}},
			// The second list is a new one, not what follows the first.
			wantRequests: []string{"widgets everywhere, 1", "widgets everywhere, 500"},
		},
		"few objects on several pages": {
			namespaces: three,
			server:     &clusterServer{pageSize: 2, objects: map[string][]string{"widgets": {"w/a", "x/a", "x/b", "x/c", "y/a"}}},
			want:       map[string][]string{"x": {"widgets x/a", "widgets x/b", "widgets x/c"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets everywhere from 2", "widgets everywhere from 4", "widgets everywhere, 1", "widgets everywhere, 500",
			},
		},
		"many objects elsewhere": {
			namespaces:   three,
			server:       &clusterServer{objects: map[string][]string{"widgets": append(many("other", 2000), "x/a")}},
			want:         map[string][]string{"x": {"widgets x/a"}},
			wantRequests: []string{"widgets everywhere, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"nobody says how many there are": {
			namespaces:   three,
			server:       &clusterServer{hidesCount: true, objects: map[string][]string{"widgets": {"x/a", "x/b"}}},
			want:         map[string][]string{"x": {"widgets x/a", "widgets x/b"}},
			wantRequests: []string{"widgets everywhere, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"the list of all namespaces is refused, and that of one fails": {
			namespaces:   three,
			server:       &clusterServer{errors: failing, objects: map[string][]string{"widgets": {"x/a"}}},
			want:         map[string][]string{"x": {"widgets x/a"}, "y": {"widgets: " + errOutage.Error()}},
			wantRequests: []string{"widgets everywhere, 1", "widgets in x, 500", "widgets in y, 500", "widgets in z, 500"},
		},
		"the list that is worth it fails": {
			namespaces: three,
			server: &clusterServer{
				errors:  map[string]error{"widgets everywhere, 500": errOutage},
				objects: map[string][]string{"widgets": {"x/a", "y/a"}},
			},
			want: map[string][]string{"x": {"widgets x/a"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets everywhere, 1", "widgets everywhere, 500",
				"widgets in x, 500", "widgets in y, 500", "widgets in z, 500",
			},
		},
		"the list becomes too old on the way, and nothing of it is used": {
			namespaces: three,
			server: &clusterServer{
				pageSize: 1, errors: map[string]error{"widgets everywhere from 1": errTooOld},
				objects: map[string][]string{"widgets": {"x/a", "y/a"}},
			},
			want: map[string][]string{"x": {"widgets x/a"}, "y": {"widgets y/a"}},
			wantRequests: []string{
				"widgets everywhere from 1", "widgets everywhere, 1", "widgets everywhere, 500",
				"widgets in x, 500", "widgets in y, 500", "widgets in z, 500",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				if test.types == nil {
					test.types = []ResourceType{widgetsType}
				}
				if test.server == nil {
					test.server = &clusterServer{}
				}
				if test.want == nil {
					test.want = map[string][]string{}
				}
				g.Expect(lookTogether(test.server.surveyor(), test.namespaces, test.types...)).To(Equal(test.want))
				g.Expect(test.server.newRequests()).To(Equal(test.wantRequests))
			})
		})
	}
}

// An answer tells of the time when it was asked for, not of that when it came.
func TestSurveyorReusesAnswers(t *testing.T) {
	tests := map[string]struct {
		// notBefore and later are counted from when the first answer was asked for.
		notBefore time.Duration
		later     time.Duration
		want      []string
	}{
		"terminating before":               {notBefore: -time.Second, later: time.Second},
		"terminating at that moment":       {notBefore: 0, later: time.Second},
		"terminating a moment later":       {notBefore: 1, later: time.Second, want: []string{"widgets in late, 500"}},
		"terminating when the answer came": {notBefore: 50 * time.Millisecond, later: time.Second, want: []string{"widgets in late, 500"}},
		"the answer is old":                {notBefore: -time.Second, later: answerLifetime},
		"the answer is too old":            {notBefore: -time.Second, later: answerLifetime + 1, want: []string{"widgets in late, 500"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := clusterServer{latency: 50 * time.Millisecond, objects: map[string][]string{"widgets": {"other/a"}}}
				surveyor := server.surveyor()
				lookTogether(surveyor, []string{"x", "y", "z"}, widgetsType)
				g.Expect(server.newRequests()).To(HaveLen(1))
				asked := server.asked

				time.Sleep(test.later - time.Since(asked))
				found := lookFor(t.Context(), surveyor, "late", asked.Add(test.notBefore), widgetsType)
				g.Expect(found).To(BeEmpty())
				g.Expect(server.newRequests()).To(Equal(test.want))
			})
		})
	}
}

// Of a namespace that did not ask it is known whether it has objects, and not which.
func TestSurveyorAsksForObjectsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{objects: map[string][]string{"widgets": {"late/a"}}}
		surveyor := server.surveyor()
		began := time.Now()
		lookTogether(surveyor, []string{"x", "y", "z"}, widgetsType)
		server.newRequests()
		g.Expect(lookFor(t.Context(), surveyor, "late", began, widgetsType)).To(Equal([]string{"widgets late/a"}))
		g.Expect(server.newRequests()).To(Equal([]string{"widgets in late, 500"}))
	})
}

// What an aggregated API server says of the whole cluster proves nothing, and what has
// failed there is not tried again soon.
func TestSurveyorDoesNotAskForTheWholeCluster(t *testing.T) {
	namespaces := []string{"x", "y", "z"}
	each := []string{"widgets in x, 500", "widgets in y, 500", "widgets in z, 500"}
	t.Run("of an aggregated API server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			server := clusterServer{}
			surveyor := server.surveyor()
			surveyor.isAggregated = func(version schema.GroupVersion) bool { return version == widgetsType.GroupVersion() }
			lookTogether(surveyor, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(ConsistOf(each))
			lookTogether(surveyor, namespaces, podsType)
			g.Expect(server.newRequests()).To(HaveLen(1))
		})
	})
	t.Run("where it has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			server := clusterServer{}
			surveyor := server.surveyor()
			surveyor.failures[widgetsType] = time.Now()
			lookTogether(surveyor, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(ConsistOf(each))
			time.Sleep(failureLifetime + 1)
			lookTogether(surveyor, namespaces, widgetsType)
			g.Expect(server.newRequests()).To(HaveLen(1))
		})
	})
}

// Of several types only those are asked for that are not known.
func TestSurveyorAsksForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		surveyor := server.surveyor()
		began := time.Now()
		lookTogether(surveyor, []string{"x", "y", "z"}, widgetsType)
		server.newRequests()
		lookFor(t.Context(), surveyor, "late", began, widgetsType, podsType)
		g.Expect(server.newRequests()).To(Equal([]string{"pods in late, 500"}))
	})
}

// What waits for a round finds what the one before has found out, if that is not older.
func TestSurveyorAnswersWhoWaitsForTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: time.Second}
		surveyor := server.surveyor()
		began := time.Now()
		var group sync.WaitGroup
		group.Go(func() { lookTogether(surveyor, []string{"x", "y", "z"}, widgetsType) })
		time.Sleep(gatherTime + 500*time.Millisecond) // Their round is on its way.
		group.Go(func() { lookFor(t.Context(), surveyor, "before", began, widgetsType) })
		group.Go(func() { lookFor(t.Context(), surveyor, "since", time.Now(), widgetsType) })
		group.Wait()
		g.Expect(server.newRequests()).To(Equal([]string{"widgets everywhere, 1", "widgets in since, 500"}))
	})
}

func TestSurveyorDropsOldAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		surveyor := server.surveyor()
		lookTogether(surveyor, []string{"x", "y", "z"}, widgetsType)
		known := func() int {
			surveyor.lock.Lock()
			defer surveyor.lock.Unlock()
			return len(surveyor.answers)
		}
		g.Expect(known()).To(Equal(1))
		time.Sleep(2*answerLifetime + time.Second) // Nobody asks any more.
		synctest.Wait()
		g.Expect(known()).To(BeZero())
	})
}

// Where there are many, each round waits for more of them to come.
func TestSurveyorKeepsADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{}
		surveyor := server.surveyor()
		took := func() time.Duration {
			began := time.Now()
			lookTogether(surveyor, []string{"x"}, widgetsType)
			return time.Since(began)
		}
		g.Expect(took()).To(Equal(gatherTime))
		g.Expect(took()).To(Equal(roundDistance))
		time.Sleep(time.Minute)
		g.Expect(took()).To(Equal(gatherTime))
	})
}

// One API server that hangs, such as an aggregated one, must not hold those who want to
// know about other types.
func TestSurveyorDoesNotWaitForATypeThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{silent: map[string]bool{"widgets": true}}
		surveyor := server.surveyor()
		began := time.Now()
		var group sync.WaitGroup
		defer group.Wait()
		for _, namespace := range []string{"a", "b", "c", "d"} {
			group.Go(func() {
				words := lookFor(context.Background(), surveyor, namespace, began, widgetsType, podsType)
				g.Expect(words).To(Equal([]string{"widgets: context deadline exceeded"}))
				// What does not answer for one does not for the others either: they do not wait
				// in line.
				g.Expect(time.Since(began)).To(BeNumerically("<", 2*requestTimeout+time.Second))
			})
		}
		group.Go(func() {
			lookFor(context.Background(), surveyor, "same-round", began, podsType)
			g.Expect(time.Since(began)).To(Equal(gatherTime))
		})
		time.Sleep(time.Second)
		for _, namespace := range []string{"next-round", "the-one-after"} {
			asked := time.Now()
			g.Expect(lookFor(context.Background(), surveyor, namespace, asked, podsType)).To(BeEmpty())
			g.Expect(time.Since(asked)).To(BeNumerically("<=", roundPatience+roundDistance))
		}
	})
}

// Others rely on the same requests, so they are not bound to any context.
func TestSurveyorGoesOnForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: time.Second, objects: map[string][]string{"widgets": {"y/a"}}}
		surveyor := server.surveyor()
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			g.Expect(lookFor(ctx, surveyor, "x", time.Now(), widgetsType)).To(Equal([]string{"context canceled"}))
		})
		group.Go(func() {
			g.Expect(lookTogether(surveyor, []string{"y", "z"}, widgetsType)).
				To(Equal(map[string][]string{"y": {"widgets y/a"}}))
		})
		time.Sleep(gatherTime + 500*time.Millisecond)
		cancel(errors.New("the pass has ended"))
		group.Wait()
		g.Expect(server.newRequests()).To(Equal([]string{"widgets everywhere, 1"}))
	})
}

// For the race detector, and for what a round must not lose.
func TestSurveyorUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := clusterServer{latency: 30 * time.Millisecond, objects: map[string][]string{}}
		for i := range 100 {
			server.objects["widgets"] = append(server.objects["widgets"], fmt.Sprintf("n%d/a", i))
		}
		surveyor := server.surveyor()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				time.Sleep(time.Duration(i%7) * 50 * time.Millisecond)
				for range 3 {
					words := lookFor(t.Context(), surveyor, fmt.Sprintf("n%d", i), time.Now(), widgetsType, podsType)
					g.Expect(words).To(Equal([]string{fmt.Sprintf("widgets n%d/a", i)}))
				}
			})
		}
		group.Wait()
	})
}
