// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

var (
	errNoSuchObject = apierrors.NewNotFound(anyResource, "a")
	errConflict     = apierrors.NewConflict(anyResource, "a", errors.New("the UID is different"))
	errNotDeletable = apierrors.NewMethodNotSupported(anyResource, "delete")
)

// A deletecollection request is sent only for a type of an aggregated API server, and only if a DELETE request was not
// rejected, but the object remains.
func TestPassDeletesCollections(t *testing.T) {
	const (
		aggregated = "aggregated.example.com/v1/widgets"
		stored     = "example.com/v1/widgets"
	)
	withoutUID := object("a")
	withoutUID.UID = ""
	for name, test := range map[string]struct {
		served string
		object metav1.PartialObjectMetadata
		// err is the error of the DELETE request.
		err error
		// collectionErr is the error of the deletecollection request. It deletes the object if it has no error.
		collectionErr error
		serviceErr    error
		isLocal       bool
		want          bool
		wantErrors    int
	}{
		"NotFound":           {served: aggregated, object: object("a"), err: errNoSuchObject, want: true},
		"Conflict":           {served: aggregated, object: object("a"), err: errConflict, want: true},
		"MethodNotSupported": {served: aggregated, object: object("a"), err: errNotDeletable, want: true},
		"no UID":             {served: aggregated, object: withoutUID, want: true},
		"an invalid name":    {served: aggregated, object: object("a/b"), want: true},
		"the deletecollection request fails": {
			served: aggregated, object: object("a"), err: errNoSuchObject, collectionErr: errInternal, want: true, wantErrors: 2,
		},
		"the deletecollection request has no effect": {
			served: aggregated, object: object("a"), err: errNoSuchObject, collectionErr: errNotAllowed, want: true, wantErrors: 1,
		},
		"Forbidden":                               {served: aggregated, object: object("a"), err: errForbidden, wantErrors: 1},
		"a timeout":                               {served: aggregated, object: object("a"), err: errTimeout, wantErrors: 1},
		"an internal error":                       {served: aggregated, object: object("a"), err: errInternal, wantErrors: 1},
		"the object is terminating":               {served: aggregated, object: deleted(now, "a", "f")},
		"the object has a finalizer":              {served: aggregated, object: object("a", "f")},
		"no deletecollection":                     {served: aggregated + ":list,delete", object: object("a"), err: errNoSuchObject, wantErrors: 1},
		"no UID, no deletecollection":             {served: aggregated + ":list,delete", object: withoutUID, wantErrors: 1},
		"a type of kube-apiserver":                {served: stored, object: object("a"), err: errNoSuchObject, wantErrors: 1},
		"an object of kube-apiserver without UID": {served: stored, object: withoutUID, wantErrors: 1},
		"the APIService has no Service": {
			served: aggregated, object: object("a"), err: errNoSuchObject, isLocal: true, wantErrors: 1,
		},
		"the APIService cannot be read": {
			served: aggregated, object: object("a"), err: errNoSuchObject, serviceErr: errOutage, wantErrors: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{
				isLocal: test.isLocal, objects: map[string]objects{"widgets": {test.object}},
				errors: map[string]error{
					"delete widgets/" + test.object.Name: test.err, "deletecollection widgets": test.collectionErr,
					"get apiservice": test.serviceErr,
				},
			}
			if test.collectionErr == nil {
				server.hooks = map[string]func(){"deletecollection widgets": func() { server.objects["widgets"] = nil }}
			}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, test.served)
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			wantRequests := 0
			if test.want {
				wantRequests = 1
			}
			g.Expect(server.recorded("deletecollection")).To(HaveLen(wantRequests), "%v", server.log)
			g.Expect(joinedErrors(report.Errors)).To(HaveLen(test.wantErrors))
			isDeleted := test.want && test.collectionErr == nil
			g.Expect(report.ConfirmedEmpty).To(Equal(isDeleted))
			g.Expect(report.Remaining).To(HaveLen(map[bool]int{true: 0, false: 1}[isDeleted]))
		})
	}
}

func joinedErrors(errs []error) []error {
	var result []error
	for _, err := range errs {
		var joined joinedError
		if errors.As(err, &joined) {
			result = append(result, joinedErrors(joined)...)
		} else {
			result = append(result, err)
		}
	}
	return result
}

// Before a deletecollection request, the pass confirms the APIService and the UID of the Namespace.
func TestPassConfirmsBeforeItDeletesACollection(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{
		objects: map[string]objects{"widgets": {object("a")}}, errors: map[string]error{"delete widgets/a": errNoSuchObject},
	}
	reader := &namespaceReader{namespace: terminating()}
	deleter, _ := newDeleter(server, reader, "aggregated.example.com/v1/widgets")
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.log).To(Equal([]string{
		"list widgets", "get namespace x", "delete widgets/a of a-uid, Background", "list widgets",
		"list widgets", "get apiservice aggregated.example.com/v1", "get namespace x", "deletecollection widgets, Background",
		"delete-collection widgets",
		"list widgets",
	}))

	server.log = nil
	reads := 0
	reader.log = func(words string) {
		server.record(words)
		if reads++; reads == 2 {
			recreated := terminating()
			recreated.UID = "another-uid"
			reader.namespace = recreated
		}
	}
	_, err = deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).To(MatchError(ErrReplaced))
	g.Expect(server.recorded("deletecollection")).To(BeEmpty())
}

// An object that an aggregated API server computes from another one needs no request, and is no failure.
func TestPassListsComputedObjectsAgain(t *testing.T) {
	g := NewWithT(t)
	computed := object("a")
	computed.UID = ""
	server := &contentServer{objects: map[string]objects{"views": {computed}, "sources": {object("a")}}}
	server.hooks = map[string]func(){"delete sources/a": func() { server.objects["views"] = nil }}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()},
		"aggregated.example.com/v1/views", "aggregated.example.com/v1/sources")
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.ConfirmedEmpty).To(BeTrue())
	g.Expect(server.recorded("delete")).To(Equal(background("sources/a")))
}

// If an aggregated API server shows many objects of another namespace, most of them need no request.
func TestPassLimitsIneffectiveDeletions(t *testing.T) {
	for name, test := range map[string]struct {
		served string
		atMost int
	}{
		"with deletecollection":    {served: "aggregated.example.com/v1/widgets", atMost: maxIneffective + maxConcurrentDeletes},
		"without deletecollection": {served: "aggregated.example.com/v1/widgets:list,delete", atMost: 300},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{objects: map[string]objects{}, errors: map[string]error{}}
			for i := range 300 {
				one := object(fmt.Sprintf("w%d", i))
				server.objects["widgets"] = append(server.objects["widgets"], one)
				server.errors["delete widgets/"+one.Name] = apierrors.NewNotFound(anyResource, one.Name)
			}
			server.hooks = map[string]func(){"deletecollection widgets": func() { server.objects["widgets"] = nil }}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, test.served)
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(server.recorded("delete "))).To(BeNumerically("<=", test.atMost))
			g.Expect(report.ConfirmedEmpty).To(Equal(test.atMost < 300))
		})
	}
}

// Objects that are computed from the same object share its UID.
func TestPassDistinguishesObjectsWithTheSameUID(t *testing.T) {
	g := NewWithT(t)
	first, second := object("a"), object("b", "f")
	first.UID, second.UID = "stream-uid", "stream-uid"
	server := &contentServer{objects: map[string]objects{"tags": {first, second}}}
	server.hooks = map[string]func(){"delete tags/a": func() {
		// The tag was deleted together with its image.
		server.objects["tags"] = objects{deletedWithUID("b", "stream-uid")}
	}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "aggregated.example.com/v1/tags")
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Errors).To(BeEmpty())
}

func deletedWithUID(name string, uid types.UID) metav1.PartialObjectMetadata {
	result := deleted(now, name, "f")
	result.UID = uid
	return result
}

// A list whose pages never end is an error, so that it delays no other namespace.
func TestPassLimitsEmptyPages(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{isEmptyPageFirst: true, emptyPages: 1000}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "aggregated.example.com/v1/widgets")
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Err()).To(MatchError(ContainSubstring("empty pages")))
	g.Expect(report.ConfirmedEmpty).To(BeFalse())
	g.Expect(len(server.recorded("list"))).To(BeNumerically("<", 3*maxEmptyPages))
}

// A namespace must not wait for requests of other namespaces to which aggregated API servers or webhooks do not respond.
func TestPassDoesNotWaitForUnresponsiveServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		deleter, _ := newDeleter(&contentServer{}, &namespaceReader{namespace: terminating()}, ordinary...)
		unresponsive, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		for _, limiter := range []*throttling.Limiter{
			deleter.listSeats.limiter(true), deleter.deleteSeats.limiter(true), deleter.deleteSeats.limiter(false),
		} {
			for range maxConcurrentRequests {
				group.Go(func() {
					_ = limiter.Do(unresponsive, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				})
			}
		}
		synctest.Wait()
		startedAt := time.Now()
		report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(report.ConfirmedEmpty).To(BeTrue())
		g.Expect(time.Since(startedAt)).To(BeNumerically("<", time.Second))
	})
}
