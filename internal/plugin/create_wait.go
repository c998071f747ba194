// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// operatorTimeout is how long the command waits for the operator to add initializers to a new
// Namespace that has none. On API servers without MutatingAdmissionPolicy, the operator adds them
// after the creation. The wait ends early when the operator sets the Initializing condition.
const operatorTimeout = 3 * time.Second

// createWaiter waits until a new Namespace is ready and shows the progress of its initializers.
type createWaiter struct {
	*session
	display *printer.Display
	name    string
	started time.Time
	// state is the latest known state.
	state  initialization.State
	outage outage
}

// wait waits until the Namespace is ready and returns it. It returns an error if the Namespace
// cannot become ready.
func (w *createWaiter) wait(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) (*corev1.Namespace, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var timeout <-chan time.Time
	if w.isOperatorInstalled() {
		timer := time.NewTimer(operatorTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	events := watchNamespace(ctx, client, created)
	current, isListFinal := created, timeout == nil
	for {
		if done, err := w.update(current, isListFinal); done || err != nil {
			return current, err
		}
		select {
		case <-ctx.Done():
			w.display.Keep()
			return nil, ctx.Err()
		case <-timeout:
			isListFinal = true
		case event, ok := <-events:
			switch {
			case !ok:
				return nil, ctx.Err()
			case event.isDeleted:
				return nil, w.deletedError(event)
			case event.err != nil:
				w.display.Erase()
				w.outage.warn(w.session, w.name, event.err)
			default:
				w.outage = outage{}
				current = event.namespace
			}
		}
	}
}

// update shows the state of a Namespace and reports whether the Namespace is ready. If the operator
// might still add initializers, a Namespace without initializers is not ready.
func (w *createWaiter) update(namespace *corev1.Namespace, isListFinal bool) (isReady bool, err error) {
	w.state = initialization.ParseState(namespace)
	colors := printer.NewPalette(w.display.Out)
	w.display.Show(progressLines(computeProgress(namespace, &w.state), printer.TextWidth(w.display.Out), colors))
	switch {
	case w.state.Failure != nil:
		w.display.Keep()
		return false, fmt.Errorf(msgInitializationFailed, w.name, failureText(w.state.Failure))
	case namespace.DeletionTimestamp != nil:
		w.display.Keep()
		return false, fmt.Errorf(msgDeletedDuringInitialization, w.name)
	case len(w.state.Pending) > 0:
		return false, nil
	case len(w.state.All) == 0 && !isListFinal && nscondition.Find(namespace, v1alpha1.ConditionInitializing) == nil:
		return false, nil
	}
	w.display.Keep()
	elapsed := time.Since(w.started).Round(10 * time.Millisecond)
	w.display.Printf("namespace/%s ready %s", w.name, colors.Faint(fmt.Sprintf(msgAfter, elapsed)))
	return true, nil
}

// deletedError returns an error that explains why a Namespace was deleted before it was ready.
func (w *createWaiter) deletedError(event namespaceEvent) error {
	w.display.Keep()
	if event.namespace != nil {
		w.state = initialization.ParseState(event.namespace)
	}
	switch {
	case w.state.Failure != nil:
		return fmt.Errorf(msgInitializationFailed, w.name, failureText(w.state.Failure))
	case event.isReplaced:
		return fmt.Errorf(msgRecreatedDuringInitialization, w.name)
	}
	return fmt.Errorf(msgDeletedDuringInitialization, w.name)
}

// isOperatorInstalled reports whether the API server serves the API of nslifecycle.
func (w *createWaiter) isOperatorInstalled() bool {
	client, _, err := w.contentClients()
	if err == nil {
		_, err = client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	}
	return err == nil
}
