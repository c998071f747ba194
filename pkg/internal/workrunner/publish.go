// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

const (
	// maxMessage is the longest message that is published, in bytes.
	maxMessage = 1024
	// refusedFor is how long nothing is published after it was refused for want of a right.
	refusedFor = time.Minute
)

// Cut escapes a message, and truncates one that is too long to be published.
func Cut(message string) string {
	return nscondition.Shorten(message, maxMessage)
}

// publisher remembers that conditions cannot be published.
type publisher struct {
	mutex        sync.Mutex
	refusedUntil time.Time
	isTold       bool
}

func (p *publisher) isRefused(now time.Time) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return now.Before(p.refusedUntil)
}

// refuse tells whether it is the first time.
func (p *publisher) refuse(now time.Time) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.refusedUntil = now.Add(refusedFor)
	wasTold := p.isTold
	p.isTold = true
	return !wasTold
}

// publish writes the condition unless it says the same already. It is for people: nothing
// depends on it, so an error is only logged.
func (r *Reconciler) publish(
	ctx context.Context, task *task, namespace *corev1.Namespace,
	status corev1.ConditionStatus, reason, message string,
) {
	now := r.Clock.Now()
	if r.Work.ConditionType == "" || r.publisher.isRefused(now) {
		return
	}
	want := corev1.NamespaceCondition{
		Type: r.Work.ConditionType, Status: status, Reason: reason, Message: Cut(message),
		LastTransitionTime: metav1.NewTime(now),
	}
	task.publishing.Lock()
	defer task.publishing.Unlock()
	have := nscondition.Find(namespace, want.Type)
	if task.published != nil {
		have = task.published // The cache may not have it yet.
	}
	if have != nil && have.Status == want.Status {
		if have.Reason == want.Reason && have.Message == want.Message {
			return
		}
		want.LastTransitionTime = have.LastTransitionTime
	}
	err := patchCondition(ctx, r.Client, namespace, want)
	switch {
	case err == nil:
		task.published = &want
	case apierrors.IsForbidden(err):
		if r.publisher.refuse(now) {
			log.FromContext(ctx).Info("Progress is not published, since the verb patch on namespaces/status is missing",
				"conditionType", want.Type, "error", err.Error())
		}
	default:
		log.FromContext(ctx).V(1).Info("Did not publish a condition", "uid", namespace.UID,
			"conditionType", want.Type, "reason", want.Reason, "error", err.Error())
	}
}

// patchCondition writes one condition. They are merged by type, so that all others are left
// to their owners. The UID in the patch makes the API server refuse it where the Namespace
// was deleted and created again in the meantime.
func patchCondition(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, condition corev1.NamespaceCondition,
) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": namespace.UID},
		"status":   map[string]any{"conditions": []corev1.NamespaceCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("encoding a condition of namespace %q: %w", namespace.Name, err)
	}
	// The answer goes to an object of its own: the caller's is what was read.
	answer := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	return c.Status().Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, body))
}

// progress is what a call can publish while it works.
type progress struct {
	reconciler *Reconciler
	task       *task
	namespace  *corev1.Namespace

	mutex   sync.Mutex
	isEnded bool
}

type progressKey struct{}

// end keeps what the call may have left behind from publishing.
func (p *progress) end() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isEnded = true
}

// breakSilence publishes that the call is under way, where nothing was published of the work
// yet: what says nothing for long passes for dead.
func (p *progress) breakSilence(ctx context.Context) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// Once the call has ended the Namespace is not ours to look at: a lost race reads it again.
	if p.isEnded || ctx.Err() != nil || p.task.hasPublished() {
		return
	}
	have := nscondition.Find(p.namespace, p.reconciler.Work.ConditionType)
	if have != nil && (p.reconciler.Work.IsReserved == nil || !p.reconciler.Work.IsReserved(have.Reason)) {
		return
	}
	p.reconciler.publish(ctx, p.task, p.namespace, corev1.ConditionFalse, ReasonWorking, "the work is under way")
}

// Progress publishes how far the call is to which a context belongs.
func Progress(ctx context.Context, reason, message string) {
	p, isCall := ctx.Value(progressKey{}).(*progress)
	if !isCall {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.isEnded || ctx.Err() != nil {
		return
	}
	p.reconciler.publish(ctx, p.task, p.namespace, corev1.ConditionFalse,
		p.reconciler.reason(reason, ReasonProgressing), message)
}
