// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// operatorGrace is how long a new Namespace without initializers may yet get some: on API
// servers that cannot inject them the operator does it, as soon as it sees the Namespace.
// The operator's condition ends the wait, which takes no time worth mentioning unless the
// operator is down.
const operatorGrace = 3 * time.Second

// birth waits for a new Namespace and shows how far its initializers are.
type birth struct {
	*session
	display *display
	name    string
	started time.Time
	// last is the state that was seen last.
	last initialization.State
}

// pending names the initializers that are still waited for.
func (b *birth) pending() string {
	return cmp.Or(strings.Join(b.last.Pending, ", "), "the operator")
}

// wait returns the Namespace when it can be used, or an error that says why it never will.
func (b *birth) wait(
	ctx context.Context, client corev1client.NamespaceInterface, created *corev1.Namespace,
) (*corev1.Namespace, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var grace <-chan time.Time
	if b.hasOperator() {
		timer := time.NewTimer(operatorGrace)
		defer timer.Stop()
		grace = timer.C
	}
	seen := follow(ctx, client, created)
	current, isDecided := created, grace == nil
	for {
		if done, err := b.look(current, isDecided); done || err != nil {
			return current, err
		}
		select {
		case <-ctx.Done():
			b.display.keep()
			return nil, ctx.Err()
		case <-grace:
			isDecided = true
		case now, isOpen := <-seen:
			switch {
			case !isOpen:
				return nil, ctx.Err()
			case now.isGone:
				return nil, b.whyGone(now)
			case now.err != nil:
				b.warnf("Namespace %q could not be read, and will be tried again: %v", b.name, now.err)
			default:
				current = now.namespace
			}
		}
	}
}

// look shows a Namespace and tells whether it can be used. As long as it is not decided
// that it has no initializers, the operator's word is waited for.
func (b *birth) look(namespace *corev1.Namespace, isDecided bool) (isReady bool, err error) {
	b.last = initialization.ParseState(namespace)
	b.display.show(progressLines(computeProgress(namespace, &b.last), width(b.display.out), b.palette(b.display.out)))
	switch {
	case b.last.Failure != nil:
		b.display.keep()
		return false, b.failure()
	case namespace.DeletionTimestamp != nil:
		b.display.keep()
		return false, fmt.Errorf("namespace %q is being deleted: somebody has deleted it while it was initialized", b.name)
	case len(b.last.Pending) > 0:
		return false, nil
	case len(b.last.All) == 0 && !isDecided && nscondition.Find(namespace, v1alpha1.ConditionInitializing) == nil:
		return false, nil
	}
	b.display.keep()
	b.display.printf("namespace/%s ready %s", b.name, b.palette(b.display.out).faint(b.afterText()))
	return true, nil
}

func (b *birth) afterText() string {
	return "after " + time.Since(b.started).Round(10*time.Millisecond).String()
}

func (b *birth) failure() error {
	return fmt.Errorf("namespace %q could not be initialized: %s; the operator deletes it",
		b.name, failureText(b.last.Failure))
}

// whyGone tells why a Namespace has gone before it was ready.
func (b *birth) whyGone(last sighting) error {
	b.display.keep()
	if last.namespace != nil {
		b.last = initialization.ParseState(last.namespace)
	}
	switch {
	case b.last.Failure != nil:
		return b.failure()
	case last.isReplaced:
		return fmt.Errorf("namespace %q was deleted while it was initialized, "+
			"and somebody has created another one of that name", b.name)
	}
	return fmt.Errorf("namespace %q was deleted while it was initialized", b.name)
}

// hasOperator tells whether nslifecycle is installed, as far as everybody can tell.
func (b *birth) hasOperator() bool {
	config, err := b.restConfig()
	if err != nil {
		return false
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false
	}
	_, err = client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	return err == nil
}
