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
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// countInterval is the minimum time between two counts of the remaining objects.
	countInterval = time.Second
	// checkInterval is the time between two checks whether the progress deadline has passed.
	checkInterval = time.Second
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
	discoverer, client, err := session.contentClients()
	if err != nil {
		return nil, err
	}
	collector, err := session.newCollector(progressDeadline)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &deleteWaiter{
		session: session, display: &printer.Display{Out: session.Out}, name: namespace.Name, started: now,
		counter:  &remainingCounter{client: client, discoverer: discoverer, namespace: namespace.Name},
		progress: &deletionProgress{highest: map[string]int{}}, namespace: namespace,
		progressDeadline: progressDeadline, collector: collector, progressedAt: now,
		reported: map[string]bool{},
	}, nil
}

// isBlocked reports whether the latest diagnosis found a cause.
func (w *deleteWaiter) isBlocked() bool {
	return w.diagnosis != nil && w.diagnosis.Result == diagnosis.Blocked
}

// wait waits until the Namespace is deleted. It returns an error if the Namespace can no longer be read, or the error
// of the context. It counts and diagnoses in the background, so that it returns as soon as the Namespace is deleted.
func (w *deleteWaiter) wait(ctx context.Context, events <-chan namespaceEvent) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, results := make(chan snapshot), make(chan *diagnosis.Diagnosis)
	go w.sendSnapshots(ctx, snapshots)
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	isDiagnosing := false
	for {
		select {
		case <-ctx.Done():
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
					return err
				}
			}
		case latest := <-snapshots:
			w.handleSnapshot(latest)
		case result := <-results:
			isDiagnosing = false
			w.showDiagnosis(result)
		case <-check.C:
		}
		if !isDiagnosing && w.shouldDiagnose() {
			isDiagnosing, w.diagnosedAt = true, time.Now()
			go w.sendDiagnosis(ctx, results)
		}
		w.show()
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
		return fmt.Errorf("the deletion of namespace %q has started, but its progress is unknown, because the namespace "+
			"can no longer be read: %w", w.name, event.err)
	case event.err != nil:
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
		w.warnf("Failed to count some objects in namespace %q: %s", w.name, printer.SummarizeErrors(latest.unread))
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
		summary := fmt.Sprintf("failed to diagnose the namespace: %v", err)
		result = &diagnosis.Diagnosis{Result: diagnosis.Progressing, Summary: summary}
	}
	select {
	case results <- result:
	case <-ctx.Done():
	}
}

// showDiagnosis prints the findings of a diagnosis that have not been printed before.
func (w *deleteWaiter) showDiagnosis(result *diagnosis.Diagnosis) {
	w.diagnosis = result
	texts := slices.DeleteFunc(diagnosisTexts(result), func(text string) bool { return !w.isNew(text) })
	if len(texts) == 0 {
		return
	}
	elapsed := time.Since(w.progressedAt).Round(time.Second)
	fmt.Fprintf(w.Out, "No progress for %s.\n%s\n", elapsed, strings.Join(texts, "\n"))
	details := printer.WrapCommand("For details, run: " + w.explainCommand(w.name))
	if w.isNew(details) {
		fmt.Fprintln(w.Out, details)
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
	elapsed := time.Since(w.started).Round(100 * time.Millisecond)
	fmt.Fprintf(w.Out, "namespace %q deleted after %s\n", w.name, elapsed)
	if event.isReplaced {
		fmt.Fprintf(w.ErrOut, "Another client has created a new namespace %q.\n", w.name)
	}
}

const (
	// maxShownFindings is the maximum number of findings that are printed during the wait.
	maxShownFindings = 3
	// maxWaitingFor is the maximum length of a text about what the Namespace waits for.
	maxWaitingFor = 300
)

// show prints the remaining objects and what the Namespace waits for, each change once.
func (w *deleteWaiter) show() {
	w.display.Show(w.progress.lines())
	for _, text := range w.waitingFor() {
		if w.isNew(text) {
			fmt.Fprintln(w.Out, printer.Wrap("waiting for "+printable.Words(text, maxWaitingFor)))
		}
	}
}

// waitingFor returns what the Namespace waits for. It omits the conditions that repeat the counts,
// unless some objects could not be counted.
func (w *deleteWaiter) waitingFor() []string {
	if w.hasUnread {
		texts, _ := deletionWaitsFor(w.namespace)
		return texts
	}
	return append(deletionFailures(w.namespace), deletionHolders(w.namespace)...)
}

// diagnosisTexts returns the first findings of a diagnosis, each with its first remedy, or the reason
// why there are none.
func diagnosisTexts(result *diagnosis.Diagnosis) []string {
	if result.Result != diagnosis.Blocked {
		return []string{printer.Wrap("No cause found: " + printable.Escape(result.Summary))}
	}
	var texts []string
	for i := range result.Findings[:min(len(result.Findings), maxShownFindings)] {
		finding := &result.Findings[i]
		text := printer.Wrap(printer.FindingCause(finding) + ": " + printable.Escape(finding.Message))
		if remedy := firstRemedy(finding); remedy != "" {
			text += "\n" + printer.Continuation + printer.WrapCommand("Try: "+printable.Escape(remedy))
		}
		texts = append(texts, text)
	}
	return texts
}

// firstRemedy returns the first remedy that changes something, or else the first remedy.
func firstRemedy(finding *diagnosis.Finding) string {
	for _, remedy := range finding.Remedies {
		if remedy.Changes {
			return remedy.String()
		}
	}
	if len(finding.Remedies) > 0 {
		return finding.Remedies[0].String()
	}
	return ""
}
