// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package earlywrites

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	eventsv1ac "k8s.io/client-go/applyconfigurations/events/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

const (
	// flushInterval is the time between two writes of the Events.
	flushInterval = 10 * time.Second
	// maxNoteNameBytes keeps the note of an Event below its maximum, 1024 bytes.
	maxNoteNameBytes = 512
	// lastFlushTimeout limits the last write, while the manager stops.
	lastFlushTimeout = 5 * time.Second
)

// Recorder records early writes, and publishes them as Events. The manager runs it on every replica.
type Recorder struct {
	writer client.Writer
	clock  clock.WithTicker
	count  func(resource schema.GroupResource, subjectKind string)
	// namespace is the system namespace, pod the name of the replica, and instance distinguishes it from all others,
	// including those with the same name.
	namespace, pod, instance string
	record                   *record
}

// NewRecorder returns a recorder that writes Events in a namespace, and calls count for each write.
func NewRecorder(
	writer client.Writer, namespace string, ticker clock.WithTicker, count func(schema.GroupResource, string),
) (*Recorder, error) {
	pod, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("failed to get the host name: %w", err)
	}
	return &Recorder{
		writer: writer, clock: ticker, count: count, namespace: namespace, pod: pod, instance: string(uuid.NewUUID()),
		record: newRecord(),
	}, nil
}

// Record records a write that the gate would have rejected.
func (r *Recorder) Record(request *webhooks.Request) {
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	r.count(resource, r.record.add(request.Username, resource, request.FieldManager, r.clock.Now()))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r *Recorder) Start(ctx context.Context) error {
	ticker := r.clock.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			r.logError(ctx, r.flush(ctx))
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlushTimeout)
			defer cancel()
			r.logError(ctx, r.flush(last))
			return nil
		}
	}
}

func (r *Recorder) logError(ctx context.Context, err error) {
	if err != nil {
		log.FromContext(ctx).Error(err, "Failed to record early writes")
	}
}

// The permissions are those of the recorder of Events.

// flush writes the Events of the identities with new writes.
func (r *Recorder) flush(ctx context.Context) error {
	var first error
	changed := r.record.takeChanged(r.clock.Now())
	for i := range changed {
		err := r.writer.Apply(ctx, r.event(&changed[i]), client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
		if err != nil {
			r.record.retry(changed[i].Subject)
			first = cmp.Or(first, fmt.Errorf("failed to apply an Event: %w", err))
		}
	}
	return first
}

// event returns the Event of an identity since its first write. Only the annotation and the series of an Event can
// change.
func (r *Recorder) event(identity *entry) *eventsv1ac.EventApplyConfiguration {
	encoded, _ := json.Marshal(identity.Identity) // Encoding this type cannot fail.
	sum := sha256.Sum256(fmt.Append(nil, r.instance, identity.Subject, identity.first.UnixNano()))
	event := eventsv1ac.Event("early-writes-"+hex.EncodeToString(sum[:16]), r.namespace).
		WithAnnotations(map[string]string{annotation: string(encoded)}).
		WithEventTime(metav1.NewMicroTime(identity.first)).
		WithReportingController(nsobject.FieldOwner).WithReportingInstance(r.pod).
		WithType(corev1.EventTypeWarning).WithReason(Reason).WithAction("Audit").
		WithNote(fmt.Sprintf("%s %s wrote to namespaces before they were initialized; run: kubectl nslifecycle enforcement",
			identity.Subject.Kind, printable.Cut(printable.Quote(identity.name()), maxNoteNameBytes))).
		WithRegarding(corev1ac.ObjectReference().
			WithAPIVersion("v1").WithKind("Pod").WithNamespace(r.namespace).WithName(r.pod))
	if identity.Writes > 1 { // A series has at least two.
		event.WithSeries(eventsv1ac.EventSeries().WithCount(int32(min(identity.Writes, math.MaxInt32))).
			WithLastObservedTime(metav1.NewMicroTime(identity.Last)))
	}
	return event
}

// name returns the name of the subject with its namespace.
func (e *entry) name() string {
	if e.Subject.Namespace != "" {
		return e.Subject.Namespace + "/" + e.Subject.Name
	}
	return e.Subject.Name
}
