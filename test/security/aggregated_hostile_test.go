// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A hostile aggregated API server that attacks the operator", func() {
	It("cannot make the operator delete another object with a malicious item name", func(ctx context.Context) {
		victim := createVictim(ctx)
		server := startHostileServer(ctx, "things", "list", "delete")
		server.serveItems(makeThing("", "../"+toConfigMaps(victim.Namespace)+"/"+victim.Name, victim.UID))
		namespace := terminate(ctx, "byname")
		expectFailure(ctx, namespace, "things."+server.group, "is not valid")
		expectKept(ctx, victim)
		expectTerminating(ctx, namespace)
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	It("cannot exhaust memory with an endless body", func(ctx context.Context) {
		server := startHostileServer(ctx, "things", "list", "delete")
		const most = 256 << 20
		var sent atomic.Int64 // Bytes in the first response.
		isOver := make(chan struct{})
		var once sync.Once
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			size := 0
			defer once.Do(func() {
				sent.Store(int64(size))
				close(isOver)
			})
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[{"metadata":{"name":"`))
			chunk := bytes.Repeat([]byte("a"), 1<<20)
			for n := 0; n < most; n += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
				size += len(chunk)
			}
			_, _ = w.Write([]byte(`"}}]}`))
		}, nil)
		namespace := terminate(ctx, "body")
		Eventually(isOver).WithTimeout(time.Minute).Should(BeClosed())
		AddReportEntry("bytes sent", sent.Load())
		expectFailure(ctx, namespace, "things."+server.group, "the response is larger than 16 MiB")
		server.serveItems()
		Expect(sent.Load()).To(BeNumerically("<", most/4), "the operator must not read more than the limit")
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	It("cannot hide objects with a negative remainingItemCount", func(ctx context.Context) {
		server := startHostileServer(ctx, "things", "list", "delete")
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			writeList(w, metav1.ListMeta{RemainingItemCount: new(int64(-1))}, makeThing("", "left", "uid"))
		}, nil)
		namespace := terminate(ctx, "negative")
		expectTerminating(ctx, namespace)
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	It("cannot delay finalization with a long Retry-After after it recovers", func(ctx context.Context) {
		server := startHostileServer(ctx, "things", "list", "delete")
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			writeJSON(w, http.StatusTooManyRequests, apierrors.NewTooManyRequests("wait", 86400).Status())
		}, nil)
		namespace := terminate(ctx, "retryafter")
		expectTerminating(ctx, namespace)
		server.serveItems()
		// The operator limits the Retry-After to one minute.
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(3*specTimeout))
})
