// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// failedCallDelay is how long calls must have failed before the last stage no longer waits for them. A webhook or an
// aggregated API server is unavailable for seconds while it is updated. The last stage deletes the permissions and
// Secrets with which controllers remove the finalizers of the other objects afterwards.
const failedCallDelay = time.Minute

// discoveryCall is the name of discovery among the calls that fail.
const discoveryCall = "discovery"

// callFailures contains the time of the first of the consecutive passes in which a call failed. The keys are types, and
// discoveryCall.
type callFailures map[string]time.Time

// computeCallFailures returns the calls that failed in a pass that reached the types of stageDefault. It also returns
// the names of the calls for which the last stage must wait, in the order of the types.
func computeCallFailures(
	known callFailures, isDiscoveryFailing bool, types []*typeState, now time.Time,
) (failures callFailures, recent []string) {
	var failing []string
	if isDiscoveryFailing {
		failing = append(failing, discoveryCall)
	}
	for _, state := range types {
		if state.isFailing || apierrors.IsServiceUnavailable(state.listError) {
			failing = append(failing, state.Type.GroupResource().String())
		}
	}
	failures = callFailures{}
	for _, name := range failing {
		since, ok := known[name]
		if !ok {
			since = now
		}
		failures[name] = since
		if now.Sub(since) < failedCallDelay {
			recent = append(recent, name)
		}
	}
	return failures, recent
}

// isFailedCall reports whether a final error means that a call failed, for example the call of a webhook, so that the
// same request can succeed later. Otherwise, a rule rejected the request: a permission, an admission webhook or policy,
// or a rule of the API server itself. The text of an error can only make the last stage wait.
func isFailedCall(err error) bool {
	var status apierrors.APIStatus
	if errors.Is(err, metadataclient.ErrNotSent) || !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusUnauthorized || denial.IsTransient(err.Error())
}

// hasFailedCall reports whether one of the requests failed, and was not rejected.
func hasFailedCall(failures []objectError) bool {
	return slices.ContainsFunc(failures, func(f objectError) bool { return isFailedCall(f.err) })
}
