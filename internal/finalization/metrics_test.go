// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestCounter is a MetricsRecorder for tests.
type requestCounter struct {
	lock              sync.Mutex
	requests          map[Purpose]int
	deleted, answered int
}

func (c *requestCounter) Requested(purpose Purpose) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.requests == nil {
		c.requests = map[Purpose]int{}
	}
	c.requests[purpose]++
}

func (c *requestCounter) Deleted() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.deleted++
}

func (c *requestCounter) Answered(types int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.answered += types
}

// Types whose list request failed are not counted.
func TestMetricsCountListedTypes(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{errors: map[string]error{"list widgets": errOutage}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	counted := deleter.metrics.(*requestCounter)
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.requests[PurposeSharedList]).To(Equal(3))
	g.Expect(counted.answered).To(Equal(2))
}

func TestMetricsOfPasses(t *testing.T) {
	const hold = "example.com/hold"
	g := NewWithT(t)
	server := &contentServer{
		objects: map[string]objects{"widgets": {
			object("deleted"), object("held", hold), object("refused"),
			deleted(now, "terminating", hold), deleted(now, "orphaning", metav1.FinalizerOrphanDependents),
		}},
		errors: map[string]error{"delete widgets/refused": errForbidden},
	}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()},
		"example.com/v1/widgets", "example.com/v1/bulk:delete,deletecollection")
	counted := deleter.metrics.(*requestCounter)
	var state contentState
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.requests[PurposeDelete]).To(Equal(4), "a terminating object needs no DELETE request")
	g.Expect(counted.deleted).To(Equal(2), "rejected and earlier deletions are not counted")
	g.Expect(counted.requests[PurposeDeleteCollection]).To(Equal(1))
	g.Expect(counted.requests[PurposeConfirm]).To(BeNumerically(">", 0))
	g.Expect(counted.requests[PurposeList]).To(Equal(1), "remaining objects are counted again")
	g.Expect(counted.requests[PurposeSharedList]).To(Equal(1))
	g.Expect(counted.answered).To(Equal(1))

	_, err = deleter.deleteContent(t.Context(), terminating(), now, now, &state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.deleted).To(Equal(2), "each deletion is counted once")
}
