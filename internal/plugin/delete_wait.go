// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

const (
	// countInterval is the minimum time between two counts of the remaining objects.
	countInterval = time.Second
	// redrawInterval is how often the elapsed time is updated on a terminal.
	redrawInterval = time.Second
)

// deleteWaiter waits until a Namespace is deleted and shows the remaining objects. If the deletion
// makes no progress, deleteWaiter diagnoses the Namespace.
type deleteWaiter struct {
	*session
	display *printer.Display
	name    string
	started time.Time

	counter   *remainingCounter
	progress  *deletionProgress
	namespace *corev1.Namespace
	// hasUnread is set if some objects could not be counted.
	hasUnread bool

	progressDeadline time.Duration
	collector        *collect.Collector
	// fingerprint changes whenever the deletion makes progress. progressedAt is the time of the last
	// change.
	fingerprint  string
	progressedAt time.Time
	diagnosedAt  time.Time
	diagnosis    *diagnosis.Diagnosis
	// reported contains the keys of all permanent texts.
	reported map[string]bool
	outage   outage
}

func newDeleteWaiter(
	session *session, namespace *corev1.Namespace, progressDeadline time.Duration) (*deleteWaiter, error,
) {
	counter, err := session.newRemainingCounter(namespace.Name)
	if err != nil {
		return nil, err
	}
	collector, err := session.newCollector(progressDeadline)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &deleteWaiter{
		session: session, display: printer.NewDisplay(session.Out), name: namespace.Name, started: now,
		counter: counter, progress: newDeletionProgress(), namespace: namespace,
		progressDeadline: progressDeadline, collector: collector, progressedAt: now,
		reported: map[string]bool{},
	}, nil
}

// isBlocked reports whether the latest diagnosis found a cause.
func (w *deleteWaiter) isBlocked() bool {
	return w.diagnosis != nil && w.diagnosis.State == diagnosis.Blocked
}

// wait waits until the Namespace is deleted. It returns an error if the Namespace can no longer be read, or the error
// of the context. It counts and diagnoses in the background, so that it returns as soon as the Namespace is deleted.
func (w *deleteWaiter) wait(ctx context.Context, events <-chan namespaceEvent) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, results := make(chan snapshot), make(chan *diagnosis.Diagnosis)
	go w.sendSnapshots(ctx, snapshots)
	redraw := time.NewTicker(redrawInterval)
	defer redraw.Stop()
	isDiagnosing := false
	for {
		select {
		case <-ctx.Done():
			w.display.Keep()
			return ctx.Err()
		case event, ok := <-events:
			switch {
			case !ok:
				events = nil // The context is canceled.
			case event.isDeleted:
				w.printDeleted(event)
				return nil
			default:
				if err := w.handleEvent(event); err != nil {
					w.display.Keep()
					return err
				}
			}
		case latest := <-snapshots:
			w.handleSnapshot(latest)
		case result := <-results:
			isDiagnosing = false
			w.showDiagnosis(result)
		case <-redraw.C:
		}
		if !isDiagnosing && w.shouldDiagnose() {
			isDiagnosing, w.diagnosedAt = true, time.Now()
			go w.sendDiagnosis(ctx, results)
		}
		w.draw()
	}
}

// sendSnapshots counts the remaining objects until the context is canceled. The slower a count is,
// the longer the interval until the next one.
func (w *deleteWaiter) sendSnapshots(ctx context.Context, snapshots chan<- snapshot) {
	for ctx.Err() == nil {
		started := time.Now()
		latest := w.counter.count(ctx)
		select {
		case <-ctx.Done():
			return
		case snapshots <- latest:
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(countInterval, 4*time.Since(started))):
		}
	}
}

// handleEvent returns an error if the user is no longer allowed to read the Namespace. The deletion of a namespace
// also deletes the RoleBindings in it, so the permission does not return.
func (w *deleteWaiter) handleEvent(event namespaceEvent) error {
	switch {
	case apierrors.IsForbidden(event.err):
		return fmt.Errorf(msgDeleteUnreadable, w.name, event.err)
	case event.err != nil:
		w.display.Erase()
		w.outage.warn(w.session, w.name, event.err)
	default:
		w.outage = outage{}
		w.namespace = event.namespace
		w.recordProgress()
	}
	return nil
}

func (w *deleteWaiter) handleSnapshot(latest snapshot) {
	w.progress.add(latest.counts)
	w.recordProgress()
	if latest.isComplete && len(latest.unread) > 0 && !w.hasUnread {
		w.hasUnread = true
		w.display.Erase()
		w.warnf(msgNotCounted, w.name, printer.SummarizeErrors(latest.unread))
	}
}

// recordProgress computes the fingerprint from the values that change when the deletion makes
// progress. If the fingerprint has changed, it records the time.
func (w *deleteWaiter) recordProgress() {
	var current strings.Builder
	fmt.Fprint(&current, w.progress.current, w.namespace.Spec.Finalizers, w.namespace.Finalizers)
	for _, conditionType := range []corev1.NamespaceConditionType{
		corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
	} {
		if condition := findTrueCondition(w.namespace, conditionType); condition != nil {
			fmt.Fprint(&current, condition.Message)
		}
	}
	if current.String() != w.fingerprint {
		w.fingerprint, w.progressedAt = current.String(), time.Now()
	}
}

// shouldDiagnose reports whether the progress deadline has passed since the last progress and since
// the last diagnosis.
func (w *deleteWaiter) shouldDiagnose() bool {
	return time.Since(w.progressedAt) >= w.progressDeadline && time.Since(w.diagnosedAt) >= w.progressDeadline
}

func (w *deleteWaiter) sendDiagnosis(ctx context.Context, results chan<- *diagnosis.Diagnosis) {
	result, err := w.diagnose(ctx, w.collector, w.name)
	if err != nil {
		result = &diagnosis.Diagnosis{State: diagnosis.Progressing, Summary: fmt.Sprintf(msgDiagnosisFailed, err)}
	}
	select {
	case results <- result:
	case <-ctx.Done():
	}
}

// showDiagnosis prints the findings of a diagnosis that have not been printed before.
func (w *deleteWaiter) showDiagnosis(result *diagnosis.Diagnosis) {
	w.diagnosis = result
	columns := printer.TextWidth(w.display.Out)
	texts := slices.DeleteFunc(diagnosisTexts(result, columns, printer.NewPalette(w.display.Out)), func(text string) bool {
		return !w.isNew(text)
	})
	if len(texts) == 0 {
		return
	}
	w.display.Printf(msgNoProgress+"\n%s", time.Since(w.progressedAt).Round(time.Second), strings.Join(texts, "\n"))
	if details := printer.WrapCommand(fmt.Sprintf(msgDetails, w.explainCommand(w.name)), columns); w.isNew(details) {
		w.display.Printf("%s", details)
	}
}

// isNew reports whether no text with the same key has been reported before, and records the key.
func (w *deleteWaiter) isNew(text string) bool {
	key := stateKey(text)
	isNew := !w.reported[key]
	w.reported[key] = true
	return isNew
}

// varying matches times, durations and numbers.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b(\d+(\.\d+)?(ms|[ydhms])?)+\b`)

// stateKey returns a string that is equal for texts about the same state. It ignores times, durations
// and numbers, such as ports, and the order of words, because kube-controller-manager lists errors in
// random order.
func stateKey(text string) string {
	words := strings.FieldsFunc(varying.ReplaceAllString(text, ""), func(char rune) bool {
		return unicode.IsSpace(char) || unicode.IsPunct(char)
	})
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

func (w *deleteWaiter) printDeleted(event namespaceEvent) {
	w.display.Erase()
	elapsed := time.Since(w.started).Round(100 * time.Millisecond)
	after := printer.NewPalette(w.Out).Faint(fmt.Sprintf(msgAfter, elapsed))
	fmt.Fprintf(w.Out, "namespace %q deleted %s\n", w.name, after)
	if event.isReplaced {
		fmt.Fprintf(w.ErrOut, msgReplaced, w.name)
	}
}
