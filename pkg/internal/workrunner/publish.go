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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Reasons of the condition if the function does not specify one.
const (
	reasonWaiting     = "Waiting"
	reasonRetrying    = "Retrying"
	reasonPanicked    = "Panicked"
	reasonProgressing = "Progressing"
	reasonWorking     = "Working"
)

const (
	// maxMessage is the maximum length of a published message in bytes.
	maxMessage = 1024
	// publishTimeout limits the write of a condition, which must also be possible after the deadline of a
	// reconciliation has expired.
	publishTimeout = 10 * time.Second
	// heartbeatInterval is well below the minute after which the operator reports an initializer as unresponsive.
	heartbeatInterval = 10 * time.Second
)

// TruncateMessage escapes a message for a condition, and truncates it to 1024 bytes.
func TruncateMessage(message string) string { return printable.Truncate(message, maxMessage) }

// publish writes the condition unless it is already up to date, and updates the given object. The condition is only
// informational, so errors are logged and not returned.
func (r *reconciler) publish(
	ctx context.Context, namespace *corev1.Namespace, status corev1.ConditionStatus, reason, message string,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	want := corev1.NamespaceCondition{
		Type: r.ConditionType, Status: status, Reason: reason, Message: TruncateMessage(message),
	}
	err := RetryOnConflict(ctx, r.client, namespace, func() error { return r.writeCondition(ctx, namespace, want) })
	switch {
	case err == nil:
	case denial.IsMissingPermission(err):
		r.logForbidden.Do(func() {
			log.FromContext(ctx).Info("Cannot publish conditions without the permission to patch namespaces/status",
				"conditionType", want.Type, "error", err.Error())
		})
	default:
		log.FromContext(ctx).V(1).Info("Failed to publish a condition", "uid", namespace.UID,
			"conditionType", want.Type, "reason", want.Reason, "error", err.Error())
	}
}

// writeCondition writes a condition unless it is already up to date. The API server rejects the patch if the UID
// differs because the Namespace was recreated. The status False is only written if the Namespace has not changed and
// still matches, because the operator sets the final condition in the write with which it skips an initializer.
func (r *reconciler) writeCondition(
	ctx context.Context, namespace *corev1.Namespace, want corev1.NamespaceCondition,
) error {
	resourceVersion := ""
	if want.Status == corev1.ConditionFalse {
		if !r.Match(namespace) {
			return nil
		}
		resourceVersion = namespace.ResourceVersion
	}
	now := metav1.NewTime(r.clock.Now())
	if !nsobject.CompleteCondition(nsobject.FindCondition(namespace, want.Type), &want, now) {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": nsobject.Preconditions(namespace, resourceVersion),
		"status":   map[string]any{"conditions": []corev1.NamespaceCondition{want}},
	})
	if err != nil {
		return fmt.Errorf("failed to encode a condition of namespace %q: %w", namespace.Name, err)
	}
	// The patch does not change conditions of other types.
	changed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	if err := r.client.Status().Patch(ctx, changed, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		return err
	}
	*namespace = *changed
	return nil
}

// progress publishes conditions during a call. The function gets a copy of the Namespace.
type progress struct {
	reconciler *reconciler

	mutex     sync.Mutex
	namespace *corev1.Namespace
	isStopped bool
}

type progressKey struct{}

// stop disables publishing: goroutines that outlive the call can still use the context, while Reconcile uses the
// Namespace.
func (p *progress) stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isStopped = true
}

func (p *progress) publish(ctx context.Context, reason, message string) {
	if !p.isStopped && ctx.Err() == nil {
		p.reconciler.publish(ctx, p.namespace, corev1.ConditionFalse, reason, message)
	}
}

// publishHeartbeat publishes that the call is running, and repeats this until the Namespace has a condition that was
// not set by the operator. Without it, the operator would report the initializer as unresponsive.
func (p *progress) publishHeartbeat(ctx context.Context) {
	interval := p.reconciler.heartbeatInterval
	_ = wait.PollUntilContextCancel(ctx, interval, false, func(ctx context.Context) (bool, error) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.isStopped {
			return true, nil
		}
		current := nsobject.FindCondition(p.namespace, p.reconciler.ConditionType)
		isSet := current != nil && p.reconciler.reason(current.Reason, "") != ""
		if !isSet {
			p.publish(ctx, reasonWorking, "The function is running")
		}
		return isSet, nil
	})
}

// Progress publishes the progress of the call to which ctx belongs.
func Progress(ctx context.Context, reason, format string, args ...any) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.publish(ctx, p.reconciler.reason(reason, reasonProgressing), fmt.Sprintf(format, args...))
	}
}
