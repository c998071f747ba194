// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

func shop() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "11111111-aaaa-bbbb"}}
}

// newController returns a controller whose service returns the same response to every request.
func newController(t *testing.T, handler http.Handler) *controller {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := indexclient.New(server.URL, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return &controller{indices: client}
}

func answer(status int, retryAfter string, isByGateway bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !isByGateway {
			w.Header().Set(indexserver.SignatureHeader, indexserver.Signature)
		}
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(status)
	})
}

func TestResponses(t *testing.T) {
	for name, test := range map[string]struct {
		status      int
		retryAfter  string
		isByGateway bool
		// isFailed means that create fails permanently; isReleased means that delete succeeds.
		isFailed, isReleased bool
		wait                 time.Duration
	}{
		"busy":               {status: 500},
		"busy, retry after":  {status: 503, retryAfter: "7", wait: 7 * time.Second},
		"too many requests":  {status: 429, retryAfter: "1", wait: time.Second},
		"conflict":           {status: 409, isFailed: true, isReleased: true},
		"bad request":        {status: 400, isFailed: true},
		"too large":          {status: 413, isFailed: true},
		"unprocessable":      {status: 422, isFailed: true},
		"already deleted":    {status: 410},
		"unauthorized":       {status: 401},
		"forbidden":          {status: 403},
		"not found":          {status: 404},
		"method not allowed": {status: 405},
		"redirect":           {status: 302},
		"unknown status":     {status: 418},
		"unexpected page":    {status: 200},
		// A gateway does not know the index, so a Namespace is neither deleted nor released because of
		// its responses.
		"gateway: conflict":    {status: 409, isByGateway: true},
		"gateway: bad request": {status: 400, isByGateway: true},
		"gateway: limit":       {status: 413, isByGateway: true},
		"gateway: 422":         {status: 422, isByGateway: true},
		"gateway: success":     {status: 204, isByGateway: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, answer(test.status, test.retryAfter, test.isByGateway))

			_, err := c.create(t.Context(), shop())
			var failed *initializer.FailedError
			var notYet *initializer.NotYetError
			if err == nil {
				t.Fatal("create succeeded")
			}
			if errors.As(err, &failed) != test.isFailed {
				t.Errorf("create: %v, want a permanent failure: %t", err, test.isFailed)
			}
			if errors.As(err, &notYet) != (test.wait > 0) || (notYet != nil && notYet.After != test.wait) {
				t.Errorf("create: %v, want a wait of %s", err, test.wait)
			}
			if !strings.Contains(err.Error(), "shop-11111111") {
				t.Errorf("create: %v, want an error that contains the name of the index", err)
			}

			_, err = c.delete(t.Context(), shop())
			var finalizerNotYet *finalizer.NotYetError
			if (err == nil) != test.isReleased {
				t.Errorf("delete: %v, want success: %t", err, test.isReleased)
			}
			if errors.As(err, &finalizerNotYet) != (test.wait > 0) || (finalizerNotYet != nil && finalizerNotYet.After != test.wait) {
				t.Errorf("delete: %v, want a wait of %s", err, test.wait)
			}
		})
	}
}

// The first document is not needed, so only a final response ends the attempts to write it.
func TestReadinessResponses(t *testing.T) {
	for name, test := range map[string]struct {
		status      int
		isByGateway bool
		isRetried   bool
	}{
		"bad request":        {status: 400},
		"index not found":    {status: 404},
		"index deleted":      {status: 410},
		"unauthorized":       {status: 401, isRetried: true},
		"forbidden":          {status: 403, isRetried: true},
		"busy":               {status: 503, isRetried: true},
		"gateway: not found": {status: 404, isByGateway: true, isRetried: true},
		"gateway: limit":     {status: 413, isByGateway: true, isRetried: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, answer(test.status, "", test.isByGateway))
			if err := c.logReadiness(t.Context(), readyShop()); (err != nil) != test.isRetried {
				t.Errorf("logReadiness: %v, want an error: %t", err, test.isRetried)
			}
		})
	}
}

// readyShop returns a Namespace whose initialization is completed.
func readyShop() *corev1.Namespace {
	ready := shop()
	ready.CreationTimestamp = metav1.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ready.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "alice@corp.example.com"}
	ready.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonInitialized,
		LastTransitionTime: metav1.NewTime(ready.CreationTimestamp.Add(3 * time.Second)),
	}}
	return ready
}

func TestCreateAndDeleteIndex(t *testing.T) {
	store, err := indexserver.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := newController(t, indexserver.NewHandler(store, logr.Discard()))
	for range 2 {
		result, err := c.create(t.Context(), shop())
		if want := (initializer.Result{Reason: "IndexReady", Message: "index shop-11111111 is ready"}); err != nil || result != want {
			t.Fatalf("create: %v, %v", result, err)
		}
	}
	ready := readyShop()
	for range 2 {
		if err := c.logReadiness(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
	}
	found, err := store.Search("shop-11111111", "alice ready")
	want := "namespace shop is ready: alice@corp.example.com created it at 2026-07-01T12:00:00Z, and the initialization took 3s"
	if err != nil || found.Total != 1 || found.Documents[0].Text != want {
		t.Errorf("Search: %v, error %v; want %q", found, err, want)
	}
	for range 2 {
		result, err := c.delete(t.Context(), shop())
		if want := (finalizer.Result{Reason: "IndexDeleted", Message: "index shop-11111111 was deleted"}); err != nil || result != want {
			t.Errorf("delete: %v, %v", result, err)
		}
	}
	if err := c.logReadiness(t.Context(), ready); err != nil {
		t.Errorf("logReadiness without an index: %v", err)
	}
	if _, err := c.create(t.Context(), shop()); err == nil || errors.As(err, new(*initializer.FailedError)) {
		t.Errorf("create after the deletion: %v, want a temporary error", err)
	}
	if diff := cmp.Diff([]indexserver.Index{}, store.List()); diff != "" {
		t.Errorf("Indices (-want +got):\n%s", diff)
	}
}

func TestIsReady(t *testing.T) {
	ready := func(change func(*corev1.Namespace)) *corev1.Namespace {
		namespace := shop()
		namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, Finalizer}
		namespace.Annotations = map[string]string{v1alpha1.AnnotationInitializers: "a.b.c," + InitializerName}
		namespace.Status.Conditions = []corev1.NamespaceCondition{{
			Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonInitialized,
		}}
		change(namespace)
		return namespace
	}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"ready":              {ready(func(*corev1.Namespace) {}), true},
		"initializing":       {ready(func(n *corev1.Namespace) { n.Status.Conditions[0].Status = corev1.ConditionTrue }), false},
		"failed":             {ready(func(n *corev1.Namespace) { n.Status.Conditions[0].Reason = v1alpha1.ReasonFailed }), false},
		"no condition":       {ready(func(n *corev1.Namespace) { n.Status.Conditions = nil }), false},
		"no finalizer":       {ready(func(n *corev1.Namespace) { n.Spec.Finalizers = n.Spec.Finalizers[:1] }), false},
		"terminating":        {ready(func(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{} }), false},
		"other initializers": {ready(func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationInitializers] = "a.b.c" }), false},
		"no initializers":    {ready(func(n *corev1.Namespace) { n.Annotations = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isReady(test.namespace); got != test.want {
				t.Errorf("isReady = %t, want %t", got, test.want)
			}
		})
	}
}
