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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

type response = func(exchange) (*http.Response, error)

// unavailable answers 503 to requests for a path.
func unavailable(path string) response {
	return func(e exchange) (*http.Response, error) {
		if e.URL.Path != path {
			return nil, nil
		}
		return answer(e.Request, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away for a while"), nil
	}
}

// missing answers 404 to requests for a path.
func missing(path string) response {
	return func(e exchange) (*http.Response, error) {
		if e.URL.Path != path {
			return nil, nil
		}
		return answer(e.Request, http.StatusNotFound, metav1.StatusReasonNotFound, "never heard of it"), nil
	}
}

// stale makes the API server say in its discovery that it does not know better about a
// group, as it does where the APIService of the group is down.
func stale(group string) response {
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
		isFound := false
		for i, item := range list.Items {
			if bytes.Contains(item, []byte(`"name":"`+group+`"`)) {
				list.Items[i] = bytes.ReplaceAll(item, []byte(`"freshness":"Current"`), []byte(`"freshness":"Stale"`))
				isFound = isFound || !bytes.Equal(item, list.Items[i])
			}
		}
		if !isFound {
			return nil, errors.New("the API server's discovery has no group " + group + " to be made stale")
		}
		if body, err = json.Marshal(list); err != nil {
			return nil, err
		}
		changed := answerJSON(e.Request, http.StatusOK, body)
		changed.Header = original.Header.Clone()
		changed.Header.Del("Content-Length")
		return changed, nil
	}
}

// unaggregated makes discovery ask for each group by itself, as with old API servers, and
// fail for some.
func unaggregated(next response) response {
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

// lists handles the lists of ConfigMaps in the namespace under test.
func lists(handle response) response {
	return func(e exchange) (*http.Response, error) {
		if e.Method != http.MethodGet || !strings.HasSuffix(e.URL.Path, "/configmaps") ||
			!strings.Contains(e.URL.Path, "/namespaces/unknown-") || e.URL.Query().Get("watch") != "" {
			return nil, nil
		}
		return handle(e)
	}
}

func refuse(status int, reason metav1.StatusReason) response {
	return func(e exchange) (*http.Response, error) {
		return answer(e.Request, status, reason, "not today"), nil
	}
}

var _ = Describe("A namespace of which not everything is known", func() {
	DescribeTable("keeps its token as long as that is so:",
		func(ctx context.Context, content int, respond response, why types.GomegaMatcher) {
			stopManager()
			faults := &failing{respond: respond}
			requests := &writes{}
			startOther(ctx, faults.breakDown(requests.record(managerConfig(ctx))), withSettlingTime(0))
			proof := createNamespace(ctx, "proof")
			deleteObject(ctx, proof)
			expectGone(ctx, proof)

			namespace := createNamespace(ctx, "unknown")
			createMany(ctx, namespace.Name, content)
			faults.isOn.Store(true)
			deleteObject(ctx, namespace)
			eventuallyNamespace(ctx, namespace.Name, why)
			consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(kubernetesToken), why)
			Expect(requests.about(namespace.Name + "/finalize")).To(BeEmpty())
			Expect(faults.failed.Load()).To(BeNumerically(">", 1), "it was tried again")

			By("making everything known again")
			faults.isOn.Store(false)
			expectGone(ctx, namespace)
			Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
			Expect(requests.about(namespace.Name + "/finalize")).To(HaveLen(1))
		},
		Entry("all groups", 3, unavailable("/apis"), HaveDiscoveryFailure("the server is currently unable")),
		Entry("the core group", 3, unavailable("/api"), HaveDiscoveryFailure("the server is currently unable")),
		Entry("the core group, which seems not to exist", 3, missing("/api"),
			HaveDiscoveryFailure("no deletable resource type of the core group")),
		Entry("one group in an aggregated discovery", 3, stale("apps"),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "apps/v1")),
		Entry("one group by itself", 3, unaggregated(unavailable("/apis/apps/v1")),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "apps/v1", "away for a while")),
		Entry("a group without objects here, and nothing else to be done", 0, stale("batch"),
			HaveDiscoveryFailure("Discovery failed for some groups, 1 failing", "batch/v1")),
		Entry("a type whose list is forbidden", 3, lists(refuse(http.StatusForbidden, metav1.StatusReasonForbidden)),
			HaveContentFailure("failed to list configmaps", "not today")),
		Entry("a type whose list fails", 3, lists(refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)),
			HaveContentFailure("failed to list configmaps", "not today")),
		Entry("a type whose server is away", 3,
			lists(refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
			HaveContentFailure("failed to list configmaps", "not today")),
		Entry("a type without objects whose list fails", 0,
			lists(refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
			HaveContentFailure("failed to list configmaps", "not today")),
		Entry("a type whose list is not answered", 3,
			lists(func(exchange) (*http.Response, error) { return nil, errors.New("the line is dead") }),
			HaveContentFailure("failed to list configmaps", "the line is dead")),
		Entry("a type whose list is cut short", 3, lists(func(e exchange) (*http.Response, error) {
			return answerJSON(e.Request, http.StatusOK, []byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io`)), nil
		}), HaveContentFailure("failed to list configmaps")),
		Entry("what is left after the deletion", 3, afterTheFirst(lists(refuse(http.StatusInternalServerError,
			metav1.StatusReasonInternalError))), HaveContentFailure("failed to list configmaps", "not today")),
	)

	It("keeps its token where the second page of a list fails", func(ctx context.Context) {
		stopManager()
		faults := &failing{respond: lists(func(e exchange) (*http.Response, error) {
			if e.URL.Query().Get("continue") == "" {
				return nil, nil
			}
			return answer(e.Request, http.StatusInternalServerError, metav1.StatusReasonInternalError, "not today"), nil
		})}
		faults.isOn.Store(true)
		startOther(ctx, faults.breakDown(managerConfig(ctx)), withSettlingTime(0))
		namespace := createNamespace(ctx, "unknown")
		// What is on the first page stays there, or the second would become the first.
		var group errgroup.Group
		group.SetLimit(20)
		for number := range 600 {
			group.Go(func() error {
				return admin.Create(ctx, hold(wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number))))
			})
		}
		Expect(group.Wait()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { removeAll(ctx, configMaps, namespace.Name) })

		deleteObject(ctx, namespace)
		why := HaveContentFailure("failed to list configmaps", "not today")
		eventuallyNamespace(ctx, namespace.Name, why)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(kubernetesToken), why)
		faults.isOn.Store(false)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 600 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 600 resource instances"))
		removeAll(ctx, configMaps, namespace.Name)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))
})

// afterTheFirst lets the first request that is handled through.
func afterTheFirst(handle response) response {
	var count atomic.Int32
	return func(e exchange) (*http.Response, error) {
		result, err := handle(e)
		if (result != nil || err != nil) && count.Add(1) == 1 {
			return nil, nil
		}
		return result, err
	}
}
