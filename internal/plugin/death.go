// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
)

const (
	// lookInterval is the time between two counts, or more where a count takes long.
	lookInterval = time.Second
	// redrawInterval keeps the clock on a terminal going.
	redrawInterval = time.Second
)

// death follows a Namespace that is being deleted, and shows what remains.
type death struct {
	*session
	display *display
	name    string
	started time.Time

	remains   *remains
	countdown *countdown
	namespace *corev1.Namespace
	hasWarned bool

	patience time.Duration
	gatherer *collect.Collector
	// trace is what moves as a deletion gets on; movedAt is when it did.
	trace       string
	movedAt     time.Time
	diagnosedAt time.Time
	verdict     *diagnosis.Diagnosis
	// told is the verdict as it was shown last.
	told string
}

func newDeath(session *session, namespace *corev1.Namespace, patience time.Duration) (*death, error) {
	remains, err := session.newRemains(namespace.Name)
	if err != nil {
		return nil, err
	}
	gatherer, err := session.newGatherer(patience)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &death{
		session: session, display: newDisplay(session.Out), name: namespace.Name, started: now,
		remains: remains, countdown: newCountdown(), namespace: namespace,
		patience: patience, gatherer: gatherer, movedAt: now,
	}, nil
}

// isBlocked tells whether a cause was found when nothing moved.
func (d *death) isBlocked() bool {
	return d.verdict != nil && d.verdict.State == diagnosis.Blocked
}

// wait returns when the Namespace is gone, or with the error of the context. It looks at
// the content in the background, so that the end is seen at once.
func (d *death) wait(ctx context.Context, seen <-chan sighting) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tallies, verdicts := make(chan tally), make(chan *diagnosis.Diagnosis)
	go d.count(ctx, tallies)
	redraw := time.NewTicker(redrawInterval)
	defer redraw.Stop()
	isDiagnosing := false
	for {
		select {
		case <-ctx.Done():
			d.display.keep() // What remained last stays to be seen.
			return ctx.Err()
		case now, isOpen := <-seen:
			switch {
			case !isOpen:
				seen = nil // The context has ended.
			case now.isGone:
				d.end(now)
				return nil
			default:
				d.see(now)
			}
		case latest := <-tallies:
			d.take(latest)
		case verdict := <-verdicts:
			isDiagnosing = false
			d.tell(verdict)
		case <-redraw.C:
		}
		if !isDiagnosing && d.isStuck() {
			isDiagnosing, d.diagnosedAt = true, time.Now()
			go d.judge(ctx, verdicts)
		}
		d.draw()
	}
}

// count counts again and again. The pause grows with the time that a count takes.
func (d *death) count(ctx context.Context, tallies chan<- tally) {
	for ctx.Err() == nil {
		began := time.Now()
		latest := d.remains.look(ctx)
		select {
		case <-ctx.Done():
			return
		case tallies <- latest:
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(lookInterval, 4*time.Since(began))):
		}
	}
}

func (d *death) see(now sighting) {
	if now.err != nil {
		d.display.erase()
		d.warnf("Namespace %q could not be read, and will be tried again: %v", d.name, now.err)
	}
	if now.namespace != nil {
		d.namespace = now.namespace
		d.noteMovement()
	}
}

func (d *death) take(latest tally) {
	d.countdown.add(latest)
	d.noteMovement()
	if latest.isFull && len(latest.unread) > 0 && !d.hasWarned {
		d.hasWarned = true
		d.display.erase()
		d.warnf("Not everything in namespace %q can be counted: %s", d.name, summarize(latest.unread))
	}
}

// noteMovement compares what moves as a deletion gets on.
func (d *death) noteMovement() {
	var trace strings.Builder
	fmt.Fprint(&trace, d.countdown.now, d.namespace.Spec.Finalizers, d.namespace.Finalizers)
	for _, conditionType := range []corev1.NamespaceConditionType{
		corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
	} {
		if condition := findTrue(d.namespace, conditionType); condition != nil {
			fmt.Fprint(&trace, condition.Message)
		}
	}
	if trace.String() != d.trace {
		d.trace, d.movedAt = trace.String(), time.Now()
	}
}

// isStuck tells whether it is time to look for a cause, for the first time or again.
func (d *death) isStuck() bool {
	return time.Since(d.movedAt) >= d.patience && time.Since(d.diagnosedAt) >= d.patience
}

// judge looks for a cause, and sends what it has found.
func (d *death) judge(ctx context.Context, verdicts chan<- *diagnosis.Diagnosis) {
	verdict, err := diagnose(ctx, d.gatherer, d.name)
	if err != nil {
		verdict = &diagnosis.Diagnosis{
			State: diagnosis.Progressing, Summary: fmt.Sprintf("the cause could not be looked for: %v", err),
		}
	}
	select {
	case verdicts <- verdict:
	case <-ctx.Done():
	}
}

// tell shows a verdict, unless it is the same as before.
func (d *death) tell(verdict *diagnosis.Diagnosis) {
	d.verdict = verdict
	lines := verdictLines(verdict, d.palette(d.display.out))
	if text := strings.Join(lines, "\n"); text != d.told {
		d.told = text
		d.display.printf("Nothing has moved for %s.\n%s", time.Since(d.movedAt).Round(time.Second), text)
		if verdict.State == diagnosis.Blocked {
			d.display.printf("More: %s", explainCommand(d.name))
		}
	}
}

func (d *death) end(last sighting) {
	d.display.erase()
	fmt.Fprintf(d.Out, "namespace %q deleted %s\n", d.name,
		d.palette(d.Out).faint("after "+time.Since(d.started).Round(100*time.Millisecond).String()))
	if last.isReplaced {
		fmt.Fprintf(d.ErrOut, "Somebody has created another namespace %q since.\n", d.name)
	}
}
