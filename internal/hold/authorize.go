// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// reviewBackoff are the times of the SubjectAccessReviews, which end after 0.75 s: the caches of the API server can be
// behind, and contain the end of the initialization before a RoleBinding that was created during it.
var reviewBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 5}

var errStopping = errors.New("the manager is stopping")

// Authorize implements webhooks.Authorizer. If the user has requested the Namespace, and it is initializing, the
// request is held, and allowed if the API server allows it afterwards. In all other cases, the webhook has no opinion.
// Only the requester learns a reason.
//
// The Namespace is read from the API server, because clients send the next request before the cache contains the
// Namespace. It is read for each request, so that the time of the response does not depend on whether the Namespace
// exists.
func (h *Holder) Authorize(ctx context.Context, review *webhooks.AccessReview) (bool, string, error) {
	attributes := review.Spec.ResourceAttributes
	_, isOwn := review.Spec.Extra[internalv1alpha1.ExtraReview]
	if isOwn || attributes == nil || len(validation.IsDNS1123Label(attributes.Namespace)) > 0 {
		return false, "", nil
	}
	if !h.slots.acquire(review.Spec.User) {
		return false, "", nil
	}
	defer h.slots.release(review.Spec.User)
	review.Serving()
	isAllowed, reason, err := h.authorize(ctx, review.Spec)
	if err != nil && !errors.Is(err, errStopping) {
		if ctx.Err() == nil { // The user has not canceled the request. It was not allowed before.
			log.FromContext(ctx).Error(err, messageNotAuthorized, "namespace", attributes.Namespace)
		}
		return false, "", nil
	}
	return isAllowed, reason, err
}

func (h *Holder) authorize(
	ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec,
) (isAllowed bool, reason string, err error) {
	before, err := getFrom(ctx, h.config.Live, spec.ResourceAttributes.Namespace)
	if err != nil {
		return false, "", fmt.Errorf("failed to get the Namespace: %w", err)
	}
	if before == nil || before.Annotations[v1alpha1.AnnotationRequestedBy] != spec.User {
		return false, "", nil
	}
	after := before
	if decide(admissionv1.Create, before) == decideHold {
		if after, err = h.wait(ctx, before.Name, h.config.Duration, hasEndedSince(before)); err != nil {
			return false, "", fmt.Errorf("failed to wait for the Namespace: %w", err)
		}
		if isInitialized(before, after) {
			isAllowed, err = h.isAllowed(ctx, spec)
			return isAllowed, "", err
		}
	}
	return false, reasonOf(before, after), h.stopError()
}

// reasonOf returns why a Namespace has not been initialized, or nothing if it no longer exists or has been initialized.
func reasonOf(before, after *corev1.Namespace) string {
	if after == nil || after.UID != before.UID {
		return ""
	}
	switch decide(admissionv1.Create, after) {
	case decideHold:
		return pendingMessage(after)
	case decideFail:
		return failedMessage(after)
	}
	return ""
}

// hasEndedSince is like hasEnded for a Namespace that the cache can be without.
func hasEndedSince(before *corev1.Namespace) func(now *corev1.Namespace) bool {
	isCached := false
	return func(now *corev1.Namespace) bool {
		isCached = isCached || now != nil && now.UID == before.UID
		return isCached && hasEnded(before, now)
	}
}

// isInitialized reports whether a Namespace, and not a later one with the same name, has been initialized.
func isInitialized(before, after *corev1.Namespace) bool {
	return after != nil && after.UID == before.UID && !hasLabel(after) && after.DeletionTimestamp == nil
}

// stopError returns an error if the manager stops. The API server then asks another replica.
func (h *Holder) stopError() error {
	select {
	case <-h.config.Stopping:
		return errStopping
	default:
		return nil
	}
}

// isAllowed reports whether the API server allows a request now.
func (h *Holder) isAllowed(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.Extra = maps.Clone(spec.Extra)
	if spec.Extra == nil {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
	}
	spec.Extra[internalv1alpha1.ExtraReview] = authorizationv1.ExtraValue{"true"}
	isAllowed := false
	err := wait.ExponentialBackoffWithContext(ctx, reviewBackoff, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := h.config.AccessReviews.Create(ctx, review); err != nil {
			return false, fmt.Errorf("failed to create a SubjectAccessReview: %w", err)
		}
		isAllowed = review.Status.Allowed
		return isAllowed, nil
	})
	if wait.Interrupted(err) {
		err = nil // The request is not allowed.
	}
	return isAllowed, err
}
