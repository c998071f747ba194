// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// gatherTime is how long a round waits for more namespaces to join it.
	gatherTime = 10 * time.Millisecond
	// roundDistance is how long a round that follows another waits. Where there is a second
	// round there are many namespaces, and the longer it waits the more of them it serves.
	roundDistance = 250 * time.Millisecond
	// roundPatience is how long a round keeps the next one waiting, in case a type does
	// not answer. Those who want to know about that type wait on.
	roundPatience = 2 * time.Second
	// answerLifetime is how long answers are kept for namespaces that come later.
	answerLifetime = 2 * time.Second
	// failureLifetime is how long a list of the whole cluster that has failed is not tried
	// again.
	failureLifetime = time.Minute
	// requestsOfType is how many lists of one type are made side by side, so that a type that
	// does not answer leaves room for the others.
	requestsOfType = 8
)

// surveyor finds out what is in namespaces. It asks in rounds: in each, a type is asked
// for once, on behalf of all namespaces that want to know. That there is no object of a
// type in the whole cluster is an answer for all of them, and for those that come later
// and were terminating when it was given.
type surveyor struct {
	content  metadata.Interface
	clock    clock.PassiveClock
	requests *semaphore.Weighted
	// isAggregated tells whether an aggregated API server serves a group version.
	isAggregated func(schema.GroupVersion) bool
	meter        Meter

	lock sync.Mutex
	// waiting are the questions for the next round.
	waiting []*question
	// isRunning tells that a round is on its way or about to begin.
	isRunning bool
	lastRound time.Time
	// answers are those for the whole cluster.
	answers map[ResourceType]*clusterAnswer
	// failures are when lists of the whole cluster have failed last.
	failures map[ResourceType]time.Time
}

func newSurveyor(
	content metadata.Interface, passive clock.PassiveClock, requests *semaphore.Weighted,
	isAggregated func(schema.GroupVersion) bool,
) *surveyor {
	return &surveyor{
		content: content, clock: passive, requests: requests, isAggregated: isAggregated, meter: noMeter{},
		answers: map[ResourceType]*clusterAnswer{}, failures: map[ResourceType]time.Time{},
	}
}

// question is what one namespace wants to know.
type question struct {
	namespace string
	types     []ResourceType
	// notBefore is when the answers must have been asked for at the earliest.
	notBefore time.Time
	found     map[ResourceType]*finding
	done      chan struct{}
	// isFinished tells that done is closed.
	isFinished bool
}

// finding is what there is of a type in a namespace.
type finding struct {
	// page is the first page of the list, and all of it where it was cut out of a list of
	// the whole cluster.
	page     *metav1.PartialObjectMetadataList
	listedAt time.Time
	err      error
}

// clusterAnswer is what there is of a type in the whole cluster. Objects are kept only of
// those who asked; of others it is known whether they have any.
type clusterAnswer struct {
	asked           time.Time
	listedAt        time.Time
	resourceVersion string
	// objects are sorted by namespace.
	objects map[string][]metav1.PartialObjectMetadata
	// others are namespaces that have objects, and did not ask.
	others map[string]bool
	// nothing is the finding for all namespaces without objects.
	nothing *finding
}

// findingFor returns what there is in a namespace, or nil where that is not known.
func (a *clusterAnswer) findingFor(namespace string) *finding {
	if a.others[namespace] {
		return nil
	}
	objects := a.objects[namespace]
	if len(objects) == 0 {
		return a.nothing
	}
	page := &metav1.PartialObjectMetadataList{Items: objects}
	page.ResourceVersion = a.resourceVersion
	return &finding{page: page, listedAt: a.listedAt}
}

// finish is called when all objects have been taken in.
func (a *clusterAnswer) finish(resourceVersion string, listedAt time.Time) {
	a.resourceVersion, a.listedAt = resourceVersion, listedAt
	page := &metav1.PartialObjectMetadataList{}
	page.ResourceVersion = resourceVersion
	a.nothing = &finding{page: page, listedAt: listedAt}
}

// look returns what there is of some types in a namespace, from answers that were asked
// for at notBefore or later. The error is that of the context.
func (s *surveyor) look(
	ctx context.Context, namespace string, types []ResourceType, notBefore time.Time,
) (map[ResourceType]*finding, error) {
	asked := &question{
		namespace: namespace, types: types, notBefore: notBefore,
		found: map[ResourceType]*finding{}, done: make(chan struct{}),
	}
	if s.isAnswered(asked) {
		s.meter.Answered(asked.answered())
		return asked.found, nil
	}
	select {
	case <-asked.done:
		s.meter.Answered(asked.answered())
		return asked.found, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isAnswered answers a question from what is known, or puts it up for the next round.
func (s *surveyor) isAnswered(asked *question) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.dropOldAnswers()
	s.answerFromKnown(asked)
	if asked.finishIfComplete(); asked.isFinished {
		return true
	}
	s.waiting = append(s.waiting, asked)
	if !s.isRunning {
		s.isRunning = true
		go s.runRounds()
	}
	return false
}

// answerFromKnown is called with the lock.
func (s *surveyor) answerFromKnown(asked *question) {
	for _, resourceType := range asked.types {
		answer := s.answers[resourceType]
		if asked.found[resourceType] == nil && answer != nil && !answer.asked.Before(asked.notBefore) {
			if found := answer.findingFor(asked.namespace); found != nil {
				asked.found[resourceType] = found
			}
		}
	}
}

// runRounds asks until nobody wants to know anything.
func (s *surveyor) runRounds() {
	for {
		// Not by the injected clock: nothing but the number of requests depends on it.
		if left := roundDistance - time.Since(s.lastRound); left > gatherTime {
			time.Sleep(left)
		} else {
			time.Sleep(gatherTime)
		}
		s.lock.Lock()
		questions := s.waiting
		s.waiting = nil
		s.lock.Unlock()

		select {
		case <-s.startRound(questions):
		case <-time.After(roundPatience):
		}

		s.lock.Lock()
		s.lastRound = time.Now()
		isLast := len(s.waiting) == 0
		s.isRunning = !isLast
		s.lock.Unlock()
		if isLast {
			// A list of the whole cluster takes memory, and it may be long until somebody asks.
			time.AfterFunc(2*answerLifetime, func() {
				s.lock.Lock()
				defer s.lock.Unlock()
				s.dropOldAnswers()
			})
			return
		}
	}
}

// dropOldAnswers is called with the lock.
func (s *surveyor) dropOldAnswers() {
	for resourceType, answer := range s.answers {
		if s.clock.Since(answer.asked) > answerLifetime {
			delete(s.answers, resourceType)
		}
	}
}

// startRound begins to answer questions, types side by side. The channel is closed when
// all are answered.
func (s *surveyor) startRound(questions []*question) <-chan struct{} {
	askers := map[ResourceType][]*question{}
	s.lock.Lock()
	for _, asked := range questions {
		s.answerFromKnown(asked)
		asked.finishIfComplete()
		for _, resourceType := range asked.types {
			if asked.found[resourceType] == nil {
				askers[resourceType] = append(askers[resourceType], asked)
			}
		}
	}
	s.lock.Unlock()
	var group sync.WaitGroup
	for resourceType, asking := range askers {
		group.Go(func() { s.ask(resourceType, asking) })
	}
	over := make(chan struct{})
	go func() {
		group.Wait()
		close(over)
	}()
	return over
}

// finishIfComplete is called with the surveyor's lock.
func (q *question) finishIfComplete() {
	if len(q.found) == len(q.types) && !q.isFinished {
		q.isFinished = true
		close(q.done)
	}
}

// answered returns to how much of a finished question there is an answer and no error.
func (q *question) answered() int {
	count := 0
	for _, found := range q.found {
		if found.err == nil {
			count++
		}
	}
	return count
}

// ask finds the objects of one type in the namespaces of some questions.
func (s *surveyor) ask(resourceType ResourceType, asking []*question) {
	if len(asking) > fewAskers && s.mayAskCluster(resourceType) {
		answer, err := s.askCluster(resourceType, asking)
		if answer != nil || apierrors.IsTooManyRequests(err) {
			s.answerAll(resourceType, asking, answer, err)
			return
		}
	}
	// silence is the error of a type that does not answer for one namespace, or is put off: it
	// is the same for the next one, and with a timeout each the last of hundreds would wait for
	// hours.
	var silence atomic.Pointer[error]
	var group errgroup.Group
	group.SetLimit(requestsOfType)
	for _, asked := range asking {
		group.Go(func() error {
			found := &finding{}
			if known := silence.Load(); known != nil {
				found.err = *known
			} else {
				found.page, found.err = s.list(resourceType, asked.namespace, metav1.ListOptions{Limit: pageSize})
				if errors.Is(found.err, context.DeadlineExceeded) || apierrors.IsTimeout(found.err) ||
					apierrors.IsTooManyRequests(found.err) {
					silence.Store(&found.err)
				}
			}
			found.listedAt = s.clock.Now()
			s.lock.Lock()
			defer s.lock.Unlock()
			asked.found[resourceType] = found
			asked.finishIfComplete()
			return nil
		})
	}
	_ = group.Wait()
}

// answerAll answers all who ask for a type from a list of the whole cluster. Where the API
// server puts that off there is no answer: to ask for each namespace instead would be more
// of what it has too much of.
func (s *surveyor) answerAll(resourceType ResourceType, asking []*question, answer *clusterAnswer, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if answer != nil {
		s.answers[resourceType] = answer
	}
	for _, asked := range asking {
		found := &finding{err: err}
		if answer != nil {
			found = answer.findingFor(asked.namespace)
		}
		asked.found[resourceType] = found
		asked.finishIfComplete()
	}
}

// mayAskCluster tells whether a list of the whole cluster can be relied on. That of an
// aggregated API server proves nothing about single namespaces: it need not be written
// with such lists in mind. Nor is it tried again soon where it has failed: one object in
// whatever namespace that cannot be converted is enough for that.
func (s *surveyor) mayAskCluster(resourceType ResourceType) bool {
	if s.isAggregated != nil && s.isAggregated(resourceType.GroupVersion()) {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	failed, hasFailed := s.failures[resourceType]
	return !hasFailed || s.clock.Since(failed) > failureLifetime
}

// askCluster lists a type in the whole cluster, if that is the cheaper way to know it for
// so many namespaces; otherwise, and where it fails, it returns no answer. A list of one
// object tells how many there are.
func (s *surveyor) askCluster(resourceType ResourceType, asking []*question) (*clusterAnswer, error) {
	answer := &clusterAnswer{
		asked: s.clock.Now(), objects: map[string][]metav1.PartialObjectMetadata{}, others: map[string]bool{},
	}
	page, err := s.listCluster(resourceType, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if page.Continue != "" {
		if page.RemainingItemCount == nil || chooseWay(len(asking), 1+*page.RemainingItemCount) != wholeCluster {
			return nil, nil
		}
		// Anew, and not from where the first list has ended: it is one request less.
		if page, err = s.listCluster(resourceType, metav1.ListOptions{Limit: pageSize}); err != nil {
			return nil, err
		}
	}
	isAsked := make(map[string]bool, len(asking))
	for _, asked := range asking {
		isAsked[asked.namespace] = true
	}
	for {
		for _, object := range page.Items {
			if isAsked[object.Namespace] {
				answer.objects[object.Namespace] = append(answer.objects[object.Namespace], object)
			} else {
				answer.others[object.Namespace] = true
			}
		}
		if page.Continue == "" {
			answer.finish(page.ResourceVersion, s.clock.Now())
			return answer, nil
		}
		page, err = s.listCluster(resourceType, metav1.ListOptions{Limit: pageSize, Continue: page.Continue})
		if err != nil {
			return nil, err
		}
	}
}

// listCluster is list in all namespaces, and remembers where that fails. That a request is
// put off says nothing about the type.
func (s *surveyor) listCluster(
	resourceType ResourceType, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	page, err := s.list(resourceType, metav1.NamespaceAll, options)
	if err != nil && !apierrors.IsTooManyRequests(err) {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.failures[resourceType] = s.clock.Now()
	}
	return page, err
}

// list makes one request. No resource version: the answer is as new as storage. It is
// not bound to any context of those who ask, since others rely on the same answer.
func (s *surveyor) list(
	resourceType ResourceType, namespace string, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	options.TimeoutSeconds = ptr.To(int64(requestTimeout.Seconds()))
	var page *metav1.PartialObjectMetadataList
	err := inTurn(context.Background(), s.requests, func(ctx context.Context) error {
		var err error
		s.meter.Requested(PurposeSurvey)
		page, err = s.content.Resource(resourceType.GroupVersionResource).Namespace(namespace).List(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	keepWhatMatters(page)
	return page, nil
}

// keepWhatMatters drops the bulk of what metadata is, managedFields and annotations, since
// many pages may be held at a time.
func keepWhatMatters(page *metav1.PartialObjectMetadataList) {
	for i := range page.Items {
		object := &page.Items[i]
		object.ObjectMeta = metav1.ObjectMeta{
			Namespace: object.Namespace, Name: object.Name, UID: object.UID,
			DeletionTimestamp: object.DeletionTimestamp, Finalizers: object.Finalizers,
		}
	}
}
