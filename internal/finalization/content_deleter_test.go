// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var (
	anyResource    = schema.GroupResource{Resource: "any"}
	errForbidden   = apierrors.NewForbidden(anyResource, "", errors.New("a webhook rejected the request"))
	errNotFound    = apierrors.NewNotFound(anyResource, "")
	errNotAllowed  = apierrors.NewMethodNotSupported(anyResource, "list")
	errUnavailable = apierrors.NewServiceUnavailable("unavailable")
	errTimeout     = apierrors.NewTimeoutError("too slow", 1)
	errNoTime      = apierrors.NewServerTimeout(anyResource, "delete", 1)
	errTooOld      = apierrors.NewResourceExpired("the list is too old")
	errInternal    = apierrors.NewInternalError(errors.New("failed calling webhook"))
)

// errDenied returns the error of a request that a webhook denies with a code.
func errDenied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: "the object is in use", Message: "denied"}}
}

var (
	waitForPods     = fmt.Sprintf(waitForDeletion, "pods", nextDefault)
	waitForWidgets  = fmt.Sprintf(waitForDeletion, "widgets.example.com", nextDependencies)
	failingWidgets  = fmt.Sprintf(waitForCalls, "widgets.example.com", failedCallDelay, nextDependencies)
	unlistedPods    = fmt.Sprintf(waitForList, "pods", nextDefault)
	unlistedWidgets = fmt.Sprintf(waitForList, "widgets.example.com", nextDependencies)
)

var ordinary = []string{"v1/pods", "v1/configmaps", "example.com/v1/widgets"}

type objects = []metav1.PartialObjectMetadata

type passResult struct {
	// Deletes contains the DELETE requests, sorted.
	Deletes []string
	// Remaining is the number of objects by resource.
	Remaining  map[string]int
	Errors     []string
	WaitReason string
	Incomplete bool
}

func resultOf(server *contentServer, report *Report) passResult {
	result := passResult{Deletes: server.recorded("delete"), WaitReason: report.WaitReason, Incomplete: report.Incomplete}
	slices.Sort(result.Deletes)
	for _, remaining := range report.Remaining {
		if result.Remaining == nil {
			result.Remaining = map[string]int{}
		}
		result.Remaining[remaining.Type.Resource] = remaining.Count
	}
	for _, err := range report.Errors {
		result.Errors = append(result.Errors, err.Error())
	}
	return result
}

// newDeleter returns a contentDeleter for a server with the given resource types.
func newDeleter(server *contentServer, reader *namespaceReader, resources ...string) (*contentDeleter, *discoverer) {
	server.clock = newTickingClock()
	reader.log = server.record
	api := &discoverer{results: []discoveryResult{{lists: served(resources...)}}}
	counted := &requestCounter{}
	finalizer := New(Config{
		NamespaceFinalizer: corev1.FinalizerKubernetes, Clock: server.clock, Discoverer: api, Content: server.client(),
		Namespaces: reader, Metrics: counted, Log: logr.Discard(),
		IsAggregated: isAggregated, ConfirmAggregated: server.confirmAggregated,
		PermissionRemedy: func(schema.GroupResource) string { return "" },
	})
	return finalizer.deleter, api
}

func background(words ...string) []string {
	var result []string
	for _, word := range words {
		_, name, _ := strings.Cut(word, "/")
		result = append(result, fmt.Sprintf("delete %s of %s-uid, Background", word, name))
	}
	return result
}

func TestPass(t *testing.T) {
	tests := map[string]struct {
		// types contains the served types. The default is ordinary.
		types  []string
		server *contentServer
		want   passResult
	}{
		"an empty namespace": {},
		"all objects are deleted immediately": {
			server: &contentServer{objects: map[string]objects{
				"pods": {object("p1"), object("p2")}, "widgets": {object("w")}, "configmaps": {object("c")},
			}},
			want: passResult{Deletes: background("configmaps/c", "pods/p1", "pods/p2", "widgets/w")},
		},

		// Invalid responses.
		"an object whose name is a path is not deleted; all other objects are deleted": {
			server: &contentServer{objects: map[string]objects{"widgets": {object("../a"), object("w")}}},
			want: passResult{
				Deletes: background("widgets/w"), Remaining: map[string]int{"widgets": 1}, Errors: []string{
					`failed to delete widgets.example.com "../a": no request was sent: name "../a" is not valid: may not contain '/'`,
				},
			},
		},
		"an item without a UID is not deleted": {
			server: &contentServer{objects: map[string]objects{
				"widgets": {{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "w"}}},
			}},
			want: passResult{Remaining: map[string]int{"widgets": 1}, Errors: []string{
				`failed to delete widgets.example.com "w": no request was sent: the object has no UID`,
			}},
		},
		"an item in another namespace is not deleted": {
			server: &contentServer{objects: map[string]objects{
				"widgets": {{ObjectMeta: metav1.ObjectMeta{Namespace: "y", Name: "w", UID: "w-uid"}}},
			}},
			want: passResult{Errors: []string{
				`failed to list widgets.example.com: the response for namespace "x" contains an item in namespace "y"`,
			}},
		},

		// Pods are deleted first.
		"pods have a deletion grace period; other types wait": {
			server: &contentServer{
				objects: map[string]objects{"pods": {object("p")}, "widgets": {object("w")}, "configmaps": {object("c")}},
				grace:   map[string]time.Duration{"pods": 30 * time.Second},
			},
			want: passResult{
				Deletes: background("pods/p"), WaitReason: waitForPods,
				Remaining: map[string]int{"pods": 1, "widgets": 1, "configmaps": 1},
			},
		},
		"a pod cannot be deleted; other types wait": {
			server: &contentServer{
				objects: map[string]objects{"pods": {object("p")}, "widgets": {object("w")}},
				errors:  map[string]error{"delete pods/p": errForbidden},
			},
			want: passResult{
				Deletes: background("pods/p"), WaitReason: waitForPods, Remaining: map[string]int{"pods": 1, "widgets": 1},
				Errors: []string{`failed to delete pods "p": ` + errForbidden.Error()},
			},
		},
		"pods cannot be listed; other types wait": {
			server: &contentServer{
				objects: map[string]objects{"widgets": {object("w")}},
				errors:  map[string]error{"list pods": errOutage},
			},
			want: passResult{
				WaitReason: unlistedPods,
				Remaining:  map[string]int{"widgets": 1}, Errors: []string{"failed to list pods: " + errOutage.Error()},
			},
		},
		"no type waits for pods in another group": {
			types: []string{"metrics.example.com/v1/pods", "v1/configmaps", "example.com/v1/widgets"},
			server: &contentServer{
				objects: map[string]objects{"pods": {object("p", "example.com/hold")}, "widgets": {object("w")}},
			},
			want: passResult{
				Deletes: background("pods/p", "widgets/w"), Remaining: map[string]int{"pods": 1},
			},
		},

		// Dependencies are deleted last.
		"a finalizer blocks the last stage": {
			server: &contentServer{
				objects: map[string]objects{"widgets": {object("w", "example.com/hold")}, "configmaps": {object("c")}},
			},
			want: passResult{
				Deletes: background("widgets/w"), WaitReason: waitForWidgets,
				Remaining: map[string]int{"widgets": 1, "configmaps": 1},
			},
		},
		"a finalizer of a terminating object blocks the last stage": {
			server: &contentServer{
				objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}, "configmaps": {object("c")}},
			},
			want: passResult{WaitReason: waitForWidgets, Remaining: map[string]int{"widgets": 1, "configmaps": 1}},
		},
		"a finalizer on an object in the last stage blocks no other object": {
			types: []string{"v1/pods", "v1/configmaps", "v1/secrets"},
			server: &contentServer{
				objects: map[string]objects{"configmaps": {object("c", "example.com/hold")}, "secrets": {object("s")}},
			},
			want: passResult{
				Deletes: background("configmaps/c", "secrets/s"), Remaining: map[string]int{"configmaps": 1},
			},
		},
		"a type cannot be listed; its stage continues, and the next stage waits": {
			types: append(slices.Clone(ordinary), "v1/services"),
			server: &contentServer{
				objects: map[string]objects{"services": {object("s")}, "configmaps": {object("c")}},
				errors:  map[string]error{"list widgets": errOutage},
			},
			want: passResult{
				Deletes: background("services/s"), Remaining: map[string]int{"configmaps": 1},
				WaitReason: unlistedWidgets,
				Errors:     []string{"failed to list widgets.example.com: " + errOutage.Error()},
			},
		},
		"an unavailable server of a type blocks the last stage at first": {
			server: &contentServer{
				objects: map[string]objects{"configmaps": {object("c")}},
				errors:  map[string]error{"list widgets": errUnavailable},
			},
			want: passResult{
				Remaining: map[string]int{"configmaps": 1}, WaitReason: failingWidgets,
				Errors: []string{"failed to list widgets.example.com: unavailable"},
			},
		},

		// Deletion of single objects.
		"an object that waits for the deletion of its dependents is deleted immediately": {
			server: &contentServer{objects: map[string]objects{
				"widgets": {deleted(now, "w", metav1.FinalizerDeleteDependents)},
			}},
			want: passResult{Deletes: background("widgets/w")},
		},
		"a terminating object is not deleted again": {
			server: &contentServer{objects: map[string]objects{
				"widgets": {deleted(now, "w", "example.com/hold"), object("v")},
			}},
			want: passResult{Deletes: background("widgets/v"), Remaining: map[string]int{"widgets": 1}},
		},
		"three objects that cannot be deleted are named; other objects are counted": {
			server: &contentServer{
				objects: map[string]objects{"widgets": {object("e"), object("d"), object("c"), object("b"), object("a")}},
				errors: map[string]error{
					"delete widgets/a": errForbidden, "delete widgets/b": errForbidden, "delete widgets/c": errForbidden,
					"delete widgets/d": errForbidden, "delete widgets/e": errForbidden,
				},
			},
			want: passResult{
				Deletes:   background("widgets/a", "widgets/b", "widgets/c", "widgets/d", "widgets/e"),
				Remaining: map[string]int{"widgets": 5},
				Errors: []string{`failed to delete widgets.example.com "a": ` + errForbidden.Error() + `; ` +
					`failed to delete widgets.example.com "b": ` + errForbidden.Error() + `; ` +
					`failed to delete widgets.example.com "c": ` + errForbidden.Error() + `; and 2 other objects`},
			},
		},

		// Types that do not support all verbs.
		"a type without deletecollection": {
			types:  []string{"example.com/v1/widgets:list,delete"},
			server: &contentServer{objects: map[string]objects{"widgets": {object("w")}}},
			want:   passResult{Deletes: background("widgets/w")},
		},
		"a type without list is deleted with deletecollection, and treated as empty": {
			types:  []string{"example.com/v1/widgets:delete,deletecollection"},
			server: &contentServer{objects: map[string]objects{"widgets": {object("w")}}},
			want:   passResult{Deletes: []string{"delete-collection widgets", "deletecollection widgets, Background"}},
		},
		"a type without list and deletecollection is treated as empty": {
			types:  []string{"example.com/v1/widgets:delete"},
			server: &contentServer{objects: map[string]objects{"widgets": {object("w")}}},
		},
		"a timeout of the deletion of a type without list blocks the last stage": {
			types: []string{"example.com/v1/widgets:delete,deletecollection", "v1/configmaps"},
			server: &contentServer{
				objects: map[string]objects{"configmaps": {object("c")}},
				errors:  map[string]error{"delete-collection widgets": errTimeout},
			},
			want: passResult{
				Deletes:    []string{"delete-collection widgets", "deletecollection widgets, Background"},
				Errors:     []string{"failed to delete all widgets.example.com: " + errTimeout.Error()},
				WaitReason: waitForWidgets, Remaining: map[string]int{"configmaps": 1},
			},
		},
		"the API server does not support deletecollection for a type without list": {
			types:  []string{"example.com/v1/widgets:delete,deletecollection"},
			server: &contentServer{errors: map[string]error{"delete-collection widgets": errNotAllowed}},
			want:   passResult{Deletes: []string{"delete-collection widgets", "deletecollection widgets, Background"}},
		},

		// Lists with several pages.
		"several pages": {
			server: &contentServer{pageSize: 2, objects: map[string]objects{
				"widgets": {object("a", "f"), object("b", "f"), object("c", "f"), object("d", "f"), object("e", "f")},
			}},
			want: passResult{
				Deletes:   background("widgets/a", "widgets/b", "widgets/c", "widgets/d", "widgets/e"),
				Remaining: map[string]int{"widgets": 5},
			},
		},
		"several pages of terminating objects": {
			server: &contentServer{pageSize: 2, objects: map[string]objects{
				"widgets": {deleted(now, "a", "f"), deleted(now, "b", "f"), deleted(now, "c", "f")},
			}},
			want: passResult{Remaining: map[string]int{"widgets": 3}},
		},
		"the first page is empty, and other pages follow": {
			server: &contentServer{isEmptyPageFirst: true, objects: map[string]objects{"widgets": {object("a")}}},
			want:   passResult{Deletes: background("widgets/a")},
		},
		"the continue token of a list has expired": {
			server: &contentServer{
				pageSize: 2, errors: map[string]error{"list widgets from 2": errTooOld},
				objects: map[string]objects{"widgets": {object("a", "f"), object("b", "f"), object("c", "f")}},
			},
			want: passResult{
				Deletes: background("widgets/a", "widgets/b"), Incomplete: true,
				Remaining: map[string]int{"widgets": 2},
			},
		},
		"the API server reports that the first page of a list has expired": {
			server: &contentServer{errors: map[string]error{"list widgets": errTooOld}},
			want: passResult{
				Errors: []string{"failed to list widgets.example.com: " + errTooOld.Error()},
			},
		},
		"the second page cannot be listed": {
			server: &contentServer{
				pageSize: 2, errors: map[string]error{"list widgets from 2": errOutage},
				objects: map[string]objects{"widgets": {object("a"), object("b"), object("c")}},
			},
			want: passResult{
				Deletes:   background("widgets/a", "widgets/b"),
				Remaining: map[string]int{"widgets": 3},
				Errors:    []string{"failed to list widgets.example.com: " + errOutage.Error()},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if len(test.types) == 0 {
				test.types = ordinary
			}
			server := test.server
			if server == nil {
				server = &contentServer{}
			}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, test.types...)
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resultOf(server, report)).To(Equal(test.want))
			// A namespace with objects is never confirmed empty, regardless of failures.
			isEmpty := test.want.Remaining == nil && test.want.Errors == nil && !test.want.Incomplete
			g.Expect(report.ConfirmedEmpty).To(Equal(isEmpty))
		})
	}
}

// The order of requests protects the objects of a namespace that was recreated with the same name.
func TestPassConfirmsTheNamespaceBetweenListAndDelete(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{pageSize: 1, objects: map[string]objects{"widgets": {object("a", "f"), object("b", "f")}}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "example.com/v1/widgets")
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.log).To(Equal([]string{
		"list widgets", "get namespace x", "delete widgets/a of a-uid, Background",
		// The Namespace is read again, because the second page was listed after the first read.
		"list widgets from 1", "get namespace x", "delete widgets/b of b-uid, Background",
		"list widgets", "list widgets from 1",
	}))
}

// A list can be more recent than a Namespace that was read concurrently.
func TestPassConfirmationHasTheTimeOfItsRequest(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{}
	reader := &namespaceReader{namespace: terminating()}
	deleter, _ := newDeleter(server, reader, ordinary...)
	var listedAt time.Time
	reader.log = func(words string) {
		server.record(words)
		if listedAt.IsZero() {
			listedAt = server.clock.Now()
		}
	}
	p := &pass{contentDeleter: deleter, namespace: terminating()}
	g.Expect(p.confirm(t.Context(), now)).To(Succeed())
	g.Expect(p.confirm(t.Context(), now)).To(Succeed())
	g.Expect(server.recorded("get")).To(HaveLen(1))
	g.Expect(p.confirm(t.Context(), listedAt)).To(Succeed())
	g.Expect(server.recorded("get")).To(HaveLen(2))
}

// One get request confirms the Namespace for all types that were listed before the request.
func TestPassSharesTheConfirmation(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{
		"pods": {object("p")}, "widgets": {object("w")}, "services": {object("s")}, "configmaps": {object("c")},
	}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, append(ordinary, "v1/services")...)
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.recorded("get")).To(Equal([]string{"get namespace x"}))
}

func TestPassNeedsNoConfirmationWithoutDeletions(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}}
	deleter, _ := newDeleter(server, &namespaceReader{err: errOutage}, ordinary...)
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Remaining).To(HaveLen(1))
	g.Expect(server.recorded("get")).To(BeEmpty())
}

func TestPassDeletesNothingInAnotherNamespace(t *testing.T) {
	tests := map[string]struct {
		live      *corev1.Namespace
		getError  error
		want      error
		wantError string
	}{
		"the namespace no longer exists":            {getError: errNotFound, want: ErrReplaced},
		"the namespace was recreated":               {live: withUID(terminating(), "another-uid"), want: ErrReplaced},
		"the namespace was recreated and is active": {live: wrappers.MakeNamespace("x").UID("another-uid").Obj(), want: ErrReplaced},
		"the namespace is not terminating":          {live: withoutDeletion(terminating()), want: ErrReplaced},
		"the finalizer was removed":                 {live: withFinalizers(terminating(), "example.com/agent"), want: ErrReplaced},
		"all finalizers were removed":               {live: withFinalizers(terminating()), want: ErrReplaced},
		"the namespace cannot be read": {
			getError: errOutage, want: errOutage,
			wantError: `failed to get namespace "x" before deleting its content: ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		for _, verbs := range []string{"list,delete", "delete,deletecollection"} {
			t.Run(name+", and a type with "+verbs, func(t *testing.T) {
				g := NewWithT(t)
				server := &contentServer{objects: map[string]objects{"widgets": {object("w")}}}
				deleter, _ := newDeleter(server, &namespaceReader{namespace: test.live, err: test.getError},
					"example.com/v1/widgets:"+verbs)
				report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
				g.Expect(err).To(MatchError(test.want))
				if test.wantError != "" {
					g.Expect(err).To(MatchError(test.wantError))
				}
				g.Expect(report).To(BeNil())
				g.Expect(server.recorded("delete")).To(BeEmpty())
				g.Expect(server.recorded("get")).To(HaveLen(1))
			})
		}
	}
}

// Other namespace finalizers do not stop the pass.
func TestPassIgnoresOtherNamespaceFinalizers(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {object("w")}}}
	namespace := withFinalizers(terminating(), "kubernetes", "example.com/agent")
	deleter, _ := newDeleter(server, &namespaceReader{namespace: namespace}, ordinary...)
	deleter.NamespaceFinalizer = "example.com/agent"
	_, err := deleter.deleteContent(t.Context(), namespace, now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.recorded("delete")).To(Equal(background("widgets/w")))
}

// The next pass deletes an object that replaced the listed one.
func TestPassDeletesNoReplacedObject(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {object("w")}}}
	server.hooks = map[string]func(){"delete widgets/w": func() {
		server.lock.Lock()
		defer server.lock.Unlock()
		server.objects["widgets"][0].UID = "another-uid"
	}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resultOf(server, report)).To(Equal(passResult{
		Deletes: background("widgets/w"), Remaining: map[string]int{"widgets": 1},
	}))
	g.Expect(server.objects["widgets"]).To(HaveLen(1))
}

func TestPassIgnoresDeletedObjects(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {object("w")}}}
	server.hooks = map[string]func(){"delete widgets/w": func() {
		server.lock.Lock()
		defer server.lock.Unlock()
		server.objects["widgets"] = nil
	}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resultOf(server, report)).To(Equal(passResult{Deletes: background("widgets/w")}))
}

func TestPassDiscovers(t *testing.T) {
	tests := map[string]struct {
		gracePeriodEnd time.Time
		// results contains the second and later discovery results. The first discovery was requested for
		// another namespace.
		results   []discoveryResult
		errors    map[string]error
		wantCount int
		wantLists []string
		wantClean bool
		wantProof bool
	}{
		"any discovery is acceptable before the grace period ends": {
			gracePeriodEnd: now.Add(time.Hour), wantCount: 1, wantLists: []string{"list widgets"}, wantClean: true,
		},
		"the last discovery was after the grace period": {
			gracePeriodEnd: now, wantCount: 1, wantLists: []string{"list widgets"}, wantClean: true, wantProof: true,
		},
		"the last discovery was before the grace period ended": {
			gracePeriodEnd: now.Add(500 * time.Millisecond),
			results:        []discoveryResult{{lists: served("example.com/v1/widgets", "v1/configmaps")}},
			wantCount:      2, wantLists: []string{"list configmaps", "list widgets"}, wantClean: true, wantProof: true,
		},
		"a type is no longer served or discovered": {
			gracePeriodEnd: now, errors: map[string]error{"list widgets": errNotFound},
			results:   []discoveryResult{{lists: served("v1/configmaps")}},
			wantCount: 2, wantLists: []string{"list configmaps", "list widgets"}, wantClean: true, wantProof: true,
		},
		"a type is served in another version": {
			gracePeriodEnd: now, errors: map[string]error{"list widgets": errNotFound},
			results:   []discoveryResult{{lists: served("example.com/v2/gadgets")}},
			wantCount: 2, wantLists: []string{"list gadgets", "list widgets"}, wantClean: true, wantProof: true,
		},
		// kubernetes/kubernetes#22413
		"a type is discovered but not served": {
			gracePeriodEnd: now, errors: map[string]error{"list widgets": errNotFound}, wantCount: 2,
			wantLists: []string{"list widgets", "list widgets"}, wantClean: true, wantProof: true,
		},
		"a type is discovered with list but cannot be listed": {
			gracePeriodEnd: now, errors: map[string]error{"list widgets": errNotAllowed}, wantCount: 2,
			wantLists: []string{"list widgets", "list widgets"}, wantClean: true, wantProof: true,
		},
		"a type is no longer served, and discovery fails": {
			gracePeriodEnd: now, errors: map[string]error{"list widgets": errNotFound},
			results:   []discoveryResult{{lists: served("example.com/v1/widgets"), err: errOutage}},
			wantCount: 2, wantLists: []string{"list widgets", "list widgets"},
		},
		"a group version cannot be parsed; the other types are deleted": {
			gracePeriodEnd: now.Add(500 * time.Millisecond),
			results:        []discoveryResult{{lists: served("example.com/v1/widgets", "a/b/c/d")}},
			wantCount:      2, wantLists: []string{"list widgets"},
		},
		"discovery fails completely": {
			gracePeriodEnd: now.Add(500 * time.Millisecond), results: []discoveryResult{{err: errOutage}}, wantCount: 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{errors: test.errors}
			deleter, api := newDeleter(server, &namespaceReader{namespace: terminating()}, "example.com/v1/widgets")
			api.results = append(api.results, test.results...)
			_, err := deleter.cache.get(t.Context(), time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			server.clock.advance(time.Second)

			report, err := deleter.deleteContent(t.Context(), terminating(), now, test.gracePeriodEnd, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(api.count).To(Equal(test.wantCount))
			lists := server.recorded("list")
			slices.Sort(lists)
			g.Expect(lists).To(Equal(test.wantLists))
			g.Expect(report.IsClean()).To(Equal(test.wantClean))
			g.Expect(report.ConfirmedEmpty).To(Equal(test.wantProof))
		})
	}
}

// If one type is not served, the other types are not listed again.
func TestPassListsOnlyUnservedTypesAgain(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{errors: map[string]error{"list widgets": errNotFound}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.recorded("list")).To(ConsistOf("list pods", "list configmaps", "list widgets", "list widgets"))
}

// A CustomResourceDefinition is deleted while its objects are terminating. Only another discovery can
// confirm that the type is no longer served.
func TestPassRediscoversAfterATypeIsRemoved(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {object("w")}, "configmaps": {object("c")}}}
	deleter, api := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	server.hooks = map[string]func(){"delete widgets/w": func() { server.fail("list widgets", errNotFound) }}
	state := &contentState{}
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resultOf(server, report)).To(Equal(passResult{
		Deletes: background("widgets/w"), Remaining: map[string]int{"configmaps": 1}, Incomplete: true, WaitReason: waitForWidgets,
	}))
	g.Expect(report.IsClean()).To(BeFalse())

	// The next pass does not list the type.
	server.log = nil
	api.results = []discoveryResult{{lists: served("v1/configmaps")}}
	report, err = deleter.deleteContent(t.Context(), terminating(), now, now, state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.ConfirmedEmpty).To(BeTrue())
	g.Expect(api.count).To(Equal(2))
	g.Expect(server.recorded("list widgets")).To(BeEmpty())
}

func TestPassReportsFailedRecount(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{"widgets": {object("w")}}}
	server.hooks = map[string]func(){"delete widgets/w": func() { server.fail("list widgets", errOutage) }}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.IsClean()).To(BeFalse())
	g.Expect(resultOf(server, report).Errors).To(Equal([]string{"failed to list widgets.example.com: " + errOutage.Error()}))
}

func TestPassStopsAfterItsBudget(t *testing.T) {
	tests := map[string]struct {
		// slow is the request that takes longer than the budget.
		slow string
		// took is the duration of this request. The default is deleteBudget.
		took          time.Duration
		objects       objects
		isEmptyFirst  bool
		want          passResult
		wantListed    int
		wantFinalizer string
	}{
		"while deleting objects": {
			slow: "delete widgets/a", objects: objects{object("a", "f"), object("b", "f"), object("c", "f")},
			want: passResult{
				Deletes: background("widgets/a"), Incomplete: true, Remaining: map[string]int{"widgets": 3},
			},
			wantListed: 1,
		},
		"but not while listing terminating objects": {
			slow:    "list widgets from 2",
			objects: objects{deleted(now, "a", "f"), deleted(now, "b", "f"), deleted(now, "c", "f"), object("d", "f")},
			want: passResult{
				Deletes: background("widgets/d"), Remaining: map[string]int{"widgets": 4},
			},
			wantListed: 4,
		},
		"while listing terminating objects, after a longer time": {
			slow: "list widgets from 2", took: listBudget,
			objects: objects{deleted(now, "a", "f"), deleted(now, "b", "f"), deleted(now, "c", "f"), object("d", "f")},
			want: passResult{
				Incomplete: true, Remaining: map[string]int{"widgets": 4},
			},
			wantListed: 1,
		},
		"but not while counting objects": {
			slow:    "delete widgets/c",
			objects: objects{object("a", "f"), object("b", "f"), object("c", "f")},
			want: passResult{
				Deletes:   background("widgets/a", "widgets/b", "widgets/c"),
				Remaining: map[string]int{"widgets": 3},
			},
			wantListed: 3,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{pageSize: 1, objects: map[string]objects{"widgets": test.objects}}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
			server.hooks = map[string]func(){test.slow: func() { server.clock.advance(cmp.Or(test.took, deleteBudget) + time.Second) }}
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resultOf(server, report)).To(Equal(test.want))
			g.Expect(report.Remaining[0].Listed).To(Equal(test.wantListed))
			g.Expect(report.Remaining[0].Finalizers).To(Equal(map[string]int{"f": test.wantListed}))
		})
	}
}

// If deletions take longer than the budget, the last stage must wait for a terminating object on any page, but not for
// objects whose deletions are rejected in every pass.
func TestPassCountsAllPagesBeforeTheLastStage(t *testing.T) {
	rejected := func(name string) string {
		return fmt.Sprintf(`failed to delete widgets.example.com "%s": %v`, name, errForbidden)
	}
	twoRejected := []string{rejected("a") + "; " + rejected("c")}
	tests := map[string]struct {
		second metav1.PartialObjectMetadata
		// slow is the page whose list request takes longer than the budget after the deletions.
		slow string
		want passResult
	}{
		"a terminating object": {second: deleted(now, "b", "f"), want: passResult{
			Deletes: background("widgets/a", "widgets/c"), Remaining: map[string]int{"widgets": 3, "configmaps": 1},
			WaitReason: waitForWidgets, Errors: twoRejected,
		}},
		"a terminating object on a page that is not counted": {second: deleted(now, "b", "f"), slow: "list widgets", want: passResult{
			Deletes: background("widgets/a", "widgets/c"), Remaining: map[string]int{"widgets": 3, "configmaps": 1},
			WaitReason: waitForWidgets, Errors: twoRejected, Incomplete: true,
		}},
		"only rejected deletions": {second: object("b"), want: passResult{
			Deletes:   background("configmaps/d", "widgets/a", "widgets/b", "widgets/c"),
			Remaining: map[string]int{"widgets": 3},
			Errors:    []string{rejected("a") + "; " + rejected("b") + "; " + rejected("c")},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{
				pageSize: 1,
				objects: map[string]objects{
					"widgets": {object("a"), test.second, object("c")}, "configmaps": {object("d")},
				},
				errors: map[string]error{
					"delete widgets/a": errForbidden, "delete widgets/b": errForbidden, "delete widgets/c": errForbidden,
				},
			}
			server.hooks = map[string]func(){"delete widgets/c": func() {
				server.clock.advance(deleteBudget + time.Second)
				server.hooks[test.slow] = func() { server.clock.advance(listBudget + time.Second) }
			}}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resultOf(server, report)).To(Equal(test.want))
		})
	}
}

// A list can start with empty pages.
func TestPassContinuesAfterAnEmptyPage(t *testing.T) {
	// last is the number of the list request after which the budget is exhausted.
	for name, last := range map[string]int{"while deleting objects": 1, "while counting objects": 2} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{isEmptyPageFirst: true, objects: map[string]objects{"widgets": {deleted(now, "w", "f")}}}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "example.com/v1/widgets")
			lists := 0
			server.hooks = map[string]func(){"list widgets": func() {
				if lists++; lists == last {
					server.clock.advance(listBudget + time.Second)
				}
			}}
			report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.IsClean()).To(BeFalse())
			g.Expect(report.Incomplete).To(BeTrue())
		})
	}
}

func TestPassCountsFinalizersAndDeletionDue(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{
		"pods": {
			deleted(now.Add(30*time.Second), "long"), deleted(now, "due"), deleted(now.Add(10*time.Second), "short"),
		},
		"widgets": {object("a", "f", "g"), object("b", "f")},
	}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Remaining).To(Equal([]Remaining{
		{Type: podsType, Count: 3, Listed: 3, Terminating: 3, DeletionDue: now.Add(30 * time.Second), ResourceVersion: "5"},
		{Type: widgetsType, Count: 2, Listed: 2, Finalizers: map[string]int{"f": 2, "g": 1}, ResourceVersion: "5"},
	}))
}

func TestPassStopsWhenTheContextIsCanceled(t *testing.T) {
	for _, request := range []string{"list widgets", "delete widgets/w", "delete-collection gadgets", "list widgets from 1"} {
		t.Run(request, func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithCancel(t.Context())
			server := &contentServer{
				objects: map[string]objects{"widgets": {object("w"), object("v")}}, pageSize: 1,
				hooks: map[string]func(){request: cancel},
			}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()},
				"example.com/v1/widgets", "example.com/v1/gadgets:delete,deletecollection")
			report, err := deleter.deleteContent(ctx, terminating(), now, now, &contentState{})
			g.Expect(err).To(MatchError(context.Canceled))
			g.Expect(report).To(BeNil())
		})
	}
	t.Run("before discovery", func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		server := &contentServer{}
		deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
		_, err := deleter.deleteContent(ctx, terminating(), now, now, &contentState{})
		g.Expect(err).To(MatchError("failed to discover resource types: context canceled"))
		g.Expect(server.log).To(BeEmpty())
	})
}

func withUID(namespace *corev1.Namespace, uid types.UID) *corev1.Namespace {
	namespace.UID = uid
	return namespace
}

func withoutDeletion(namespace *corev1.Namespace) *corev1.Namespace {
	namespace.DeletionTimestamp = nil
	return namespace
}

func withFinalizers(namespace *corev1.Namespace, tokens ...corev1.FinalizerName) *corev1.Namespace {
	namespace.Spec.Finalizers = tokens
	return namespace
}

// A 429 without Retry-After, for example from a webhook, applies to one object only.
func TestPassDeletesAllObjectsDespiteRejections(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{}, errors: map[string]error{}}
	for i := range 2 * maxConcurrentDeletes {
		name := fmt.Sprintf("w%d", i)
		server.objects["widgets"] = append(server.objects["widgets"], object(name))
		server.errors["delete widgets/"+name] = apierrors.NewTooManyRequests("rejected", 0)
	}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps", "example.com/v1/widgets")
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.recorded("delete widgets")).To(HaveLen(2 * maxConcurrentDeletes))
	g.Expect(throttling.RetryAfter(report.Err())).To(BeZero())
	g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

// Each further request would wait as long as the first one, and would block other namespaces.
func TestPassStopsDeletingWhileThrottled(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{}, errors: map[string]error{}}
	for i := range sharedlist.PageSize + 100 {
		name := fmt.Sprintf("w%d", i)
		server.objects["widgets"] = append(server.objects["widgets"], object(name))
		server.errors["delete widgets/"+name] = apierrors.NewTooManyRequests("busy", 7)
	}
	server.objects["configmaps"] = objects{object("c")}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps", "example.com/v1/widgets")
	report, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(server.recorded("delete widgets"))).To(And(BeNumerically(">", 0), BeNumerically("<=", maxConcurrentDeletes)))
	g.Expect(server.recorded("delete configmaps")).To(BeEmpty(), "the remaining widgets may need them")
	g.Expect(report.ConfirmedEmpty).To(BeFalse())
	g.Expect(report.Err()).To(MatchError(ContainSubstring("busy")))
	g.Expect(throttling.RetryAfter(report.Err())).To(Equal(7 * time.Second))
	g.Expect(report.Remaining[len(report.Remaining)-1].Count).To(Equal(sharedlist.PageSize + 100))
}
