// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

type responder = func(exchange) (*http.Response, error)

// unavailable responds with 503 to requests for a path.
func unavailable(path string) responder {
	return func(e exchange) (*http.Response, error) {
		if e.URL.Path != path {
			return nil, nil
		}
		return errorResponse(e.Request, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "temporarily unavailable"), nil
	}
}

// missing responds with 404 to requests for a path.
func missing(path string) responder {
	return func(e exchange) (*http.Response, error) {
		if e.URL.Path != path {
			return nil, nil
		}
		return errorResponse(e.Request, http.StatusNotFound, metav1.StatusReasonNotFound, "not found"), nil
	}
}

// stale marks a group as stale in the discovery document, as the API server does while the group's
// APIService is unavailable.
func stale(group string) responder {
	return func(e exchange) (*http.Response, error) {
		if e.URL.Path != "/apis" {
			return nil, nil
		}
		original, err := e.send(e.Request)
		if err != nil {
			return nil, err
		}
		defer original.Body.Close()
		body, err := io.ReadAll(original.Body)
		if err != nil {
			return nil, err
		}
		var list struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Metadata   map[string]any    `json:"metadata"`
			Items      []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		found := false
		for i, item := range list.Items {
			if bytes.Contains(item, []byte(`"name":"`+group+`"`)) {
				list.Items[i] = bytes.ReplaceAll(item, []byte(`"freshness":"Current"`), []byte(`"freshness":"Stale"`))
				found = found || !bytes.Equal(item, list.Items[i])
			}
		}
		if !found {
			return nil, errors.New("discovery returned no group " + group)
		}
		if body, err = json.Marshal(list); err != nil {
			return nil, err
		}
		changed := jsonResponse(e.Request, http.StatusOK, body)
		changed.Header = original.Header.Clone()
		changed.Header.Del("Content-Length")
		return changed, nil
	}
}

// unaggregated disables aggregated discovery, as in old API servers, and first passes each request
// to next.
func unaggregated(next responder) responder {
	return func(e exchange) (*http.Response, error) {
		if result, err := next(e); result != nil || err != nil {
			return result, err
		}
		if e.URL.Path != "/api" && e.URL.Path != "/apis" {
			return nil, nil
		}
		plain := e.Clone(e.Context())
		plain.Header.Set("Accept", "application/json")
		return e.send(plain)
	}
}

// lists passes list requests for ConfigMaps in the namespace under test to handle.
func lists(handle responder) responder {
	return func(e exchange) (*http.Response, error) {
		if e.Method != http.MethodGet || !strings.HasSuffix(e.URL.Path, "/configmaps") ||
			!strings.Contains(e.URL.Path, "/namespaces/unknown-") || e.URL.Query().Get("watch") != "" {
			return nil, nil
		}
		return handle(e)
	}
}

func respondStatus(status int, reason metav1.StatusReason) responder {
	return func(e exchange) (*http.Response, error) {
		return errorResponse(e.Request, status, reason, "test failure"), nil
	}
}

var _ = Describe("A namespace whose content is unknown", func() {
	DescribeTable("keeps its namespace finalizer until requests succeed:",
		func(ctx context.Context, content int, respond responder, expected types.GomegaMatcher) {
			stopManager()
			faults := &faultInjector{respond: respond}
			requests := &requestRecorder{}
			startManager(ctx, faults.inject(requests.record(managerConfig(ctx))), withGracePeriod(0))
			control := createNamespace(ctx, "control")
			deleteObject(ctx, control)
			expectDeleted(ctx, control)

			namespace := createNamespace(ctx, "unknown")
			createMany(ctx, namespace.Name, content)
			faults.enabled.Store(true)
			deleteObject(ctx, namespace)
			eventuallyNamespace(ctx, namespace.Name, expected)
			consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), expected)
			Expect(requests.matching(namespace.Name + "/finalize")).To(BeEmpty())
			Eventually(faults.injected.Load).WithContext(ctx).Should(BeNumerically(">", 1), "the manager must retry requests")

			By("allowing the requests to succeed")
			faults.enabled.Store(false)
			expectDeleted(ctx, namespace)
			Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
			Expect(requests.matching(namespace.Name + "/finalize")).To(HaveLen(1))
		},
		Entry("all groups", 3, unavailable("/apis"), HaveDiscoveryFailure("the server is currently unable")),
		Entry("the core group", 3, unavailable("/api"), HaveDiscoveryFailure("the server is currently unable")),
		Entry("the core group, reported as not found", 3, missing("/api"),
			HaveDiscoveryFailure("no deletable resource type in the core group")),
		Entry("one group in aggregated discovery", 3, stale("apps"),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "apps/v1")),
		Entry("one group in unaggregated discovery", 3, unaggregated(unavailable("/apis/apps/v1")),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "apps/v1", "temporarily unavailable")),
		Entry("a group without objects, in an empty namespace", 0, stale("batch"),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "batch/v1")),
		Entry("a type whose list is forbidden", 3, lists(respondStatus(http.StatusForbidden, metav1.StatusReasonForbidden)),
			HaveContentFailure("failed to list configmaps", "test failure")),
		Entry("a type whose list fails", 3, lists(respondStatus(http.StatusInternalServerError, metav1.StatusReasonInternalError)),
			HaveContentFailure("failed to list configmaps", "test failure")),
		Entry("a type whose server is unavailable", 3,
			lists(respondStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
			HaveContentFailure("failed to list configmaps", "test failure")),
		Entry("a type without objects whose list fails", 0,
			lists(respondStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
			HaveContentFailure("failed to list configmaps", "test failure")),
		Entry("a type whose list gets no response", 3,
			lists(func(exchange) (*http.Response, error) { return nil, errors.New("connection lost") }),
			HaveContentFailure("failed to list configmaps", "connection lost")),
		Entry("a type whose list is truncated", 3, lists(func(e exchange) (*http.Response, error) {
			return jsonResponse(e.Request, http.StatusOK, []byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io`)), nil
		}), HaveContentFailure("failed to list configmaps")),
		Entry("the remaining objects after the deletion", 3, afterFirst(lists(respondStatus(http.StatusInternalServerError,
			metav1.StatusReasonInternalError))), HaveContentFailure("failed to list configmaps", "test failure")),
	)

	It("keeps its namespace finalizer if the second page of a list fails", func(ctx context.Context) {
		stopManager()
		faults := &faultInjector{respond: lists(func(e exchange) (*http.Response, error) {
			if e.URL.Query().Get("continue") == "" {
				return nil, nil
			}
			return errorResponse(e.Request, http.StatusInternalServerError, metav1.StatusReasonInternalError, "test failure"), nil
		})}
		faults.enabled.Store(true)
		startManager(ctx, faults.inject(managerConfig(ctx)), withGracePeriod(0))
		namespace := createNamespace(ctx, "unknown")
		// Without finalizers, the objects on the first page would be deleted, and the second page
		// would become the first page.
		var group errgroup.Group
		group.SetLimit(20)
		for number := range 600 {
			group.Go(func() error {
				return admin.Create(ctx, withFinalizer(wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number))))
			})
		}
		Expect(group.Wait()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { removeAll(ctx, configMaps, namespace.Name) })

		deleteObject(ctx, namespace)
		expected := HaveContentFailure("failed to list configmaps", "test failure")
		eventuallyNamespace(ctx, namespace.Name, expected)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), expected)
		faults.enabled.Store(false)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 600 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 600 resource instances"))
		removeAll(ctx, configMaps, namespace.Name)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))
})

// afterFirst lets the first request that handle matches reach the API server, and passes later
// requests to handle.
func afterFirst(handle responder) responder {
	var count atomic.Int32
	return func(e exchange) (*http.Response, error) {
		result, err := handle(e)
		if (result != nil || err != nil) && count.Add(1) == 1 {
			return nil, nil
		}
		return result, err
	}
}
