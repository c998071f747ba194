// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	// deletionTimeout is how long WaitForDeletion waits for the API server to delete a Namespace that
	// has no finalizers.
	deletionTimeout = 5 * time.Second
	// fieldManager identifies the plugin in writes.
	fieldManager = "kubectl-nslifecycle"
)

// Finalizer plans and applies removals in one namespace.
type Finalizer struct {
	Namespace  string
	Namespaces corev1client.NamespaceInterface
	Metadata   metadata.Interface
	Discoverer resourcetypes.Discoverer
	DryRuns    *dryrun.Guard
}

// Prepare reads the namespace and returns the plan for a removal. It tests the removal with a
// server-side dry run; a failed dry run is an objection. If the removal is empty, the plan lists
// the candidates.
func (f *Finalizer) Prepare(
	ctx context.Context, found *diagnosis.Diagnosis, wanted Removal, allowed Permissions,
) (*Plan, error) {
	state, err := f.discoverState(ctx)
	if err != nil {
		return nil, err
	}
	state.diagnosis = found
	plan, err := computePlan(state, wanted, allowed)
	if err != nil {
		return nil, Refused(err)
	}
	if plan.Removal == nil {
		return plan, nil
	}
	unsupported, refusal := f.dryRun(ctx, plan, state.namespace)
	plan.DryRunUnsupported = unsupported
	if plan.Rejection = refusal; refusal != nil {
		plan.Objections = append(plan.Objections, "the API server rejected the dry run: "+
			f.explainRefusal(ctx, plan, refusal).Error())
	}
	return plan, nil
}

// WaitForDeletion reports whether the Namespace of a plan is deleted before deletionTimeout
// expires.
func (f *Finalizer) WaitForDeletion(ctx context.Context, plan *Plan) bool {
	const interval = 100 * time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, interval, deletionTimeout, true, func(ctx context.Context) (bool, error) {
		namespace, err := f.Namespaces.Get(ctx, f.Namespace, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), nil
		}
		return namespace.UID != plan.UID, nil
	})
	return err == nil
}

// discoverState reads the Namespace and the metadata of all objects in it.
func (f *Finalizer) discoverState(ctx context.Context) (*clusterState, error) {
	namespace, err := f.Namespaces.Get(ctx, f.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get namespace %q: %w", f.Namespace, err)
	}
	state := &clusterState{namespace: namespace}
	discovered, err := resourcetypes.Discover(ctx, f.Discoverer)
	if err != nil {
		state.unread = append(state.unread, err.Error())
		return state, nil
	}
	if err := discovered.Err(); err != nil {
		state.unread = append(state.unread, "discovery: "+err.Error())
	}
	state.types = discovered.Types
	state.addContents(resourcetypes.List(ctx, f.Metadata, f.Namespace, resourcetypes.Distinct(discovered.Types),
		resourcetypes.Unlimited))
	return state, ctx.Err()
}

// addContents adds the listed objects. If two API groups serve the same object, it adds the object
// only once. It skips types that cannot be deleted, such as Pod metrics, because the API server
// does not store their objects.
func (s *clusterState) addContents(contents []resourcetypes.Content) {
	seen := map[string]bool{}
	for _, content := range contents {
		if !content.Type.Can("delete") && !content.Type.Can("deletecollection") {
			continue
		}
		if content.Err != nil {
			s.unread = append(s.unread, content.Err.Error())
		}
		for _, object := range content.Objects {
			remaining := RemainingObject{
				Resource: content.Type.String(), Kind: content.Type.Kind, Name: object.Name, UID: object.UID,
				ResourceVersion: object.ResourceVersion, Finalizers: object.Finalizers,
				IsTerminating: object.DeletionTimestamp != nil, resourceType: content.Type,
			}
			if !seen[remaining.identity()] {
				seen[remaining.identity()] = true
				s.objects = append(s.objects, remaining)
			}
		}
	}
	slices.SortFunc(s.objects, compareObjects)
}

// maxNamedChanges is the maximum number of changes that an error names.
const maxNamedChanges = 3

// Refused wraps an error to state that the command has changed nothing.
func Refused(err error) error { return fmt.Errorf("refused, nothing was changed: %w", err) }

// UnansweredError is the error of a write with an unknown outcome: the response was lost or the
// request was canceled.
type UnansweredError struct{ error }

// Unwrap returns the error of the request.
func (e UnansweredError) Unwrap() error { return e.error }

// isUnanswered reports whether the outcome of a failed write is unknown.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	const firstServerError = 500
	code := int(status.Status().Code)
	return (code == 0 || code >= firstServerError) && !denial.IsFromAdmission(err.Error())
}

// withAdvice adds advice for the user to the error of a rejected write.
func withAdvice(err error) error {
	text := err.Error()
	advice := ""
	switch {
	case strings.Contains(text, "failed calling webhook"):
		advice = "the API server cannot call the webhook: repair the problem that the message reports or, if the webhook " +
			"was uninstalled, delete its configuration, then try again"
	case strings.Contains(text, "admission webhook") || strings.Contains(text, "ValidatingAdmissionPolicy"):
		advice = "an admission policy or webhook denies the change: meet its requirements or add an exception, then try again"
	case apierrors.IsForbidden(err):
		advice = "you do not have this permission: ask a cluster administrator for it"
	case apierrors.IsInvalid(err):
		advice = "the object is invalid: fix the fields named in the message, or the schema of the resource type, then try " +
			"again"
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// errChanged returns the error for a namespace that no longer matches the plan.
func errChanged(namespace string, changes []string) error {
	if more := len(changes) - maxNamedChanges; more > 0 {
		changes = append(slices.Clone(changes[:maxNamedChanges]), "and "+printable.Count(more, "more change"))
	}
	return fmt.Errorf("namespace %q has changed since the plan was computed (%s); run the command again",
		namespace, strings.Join(changes, ", "))
}
