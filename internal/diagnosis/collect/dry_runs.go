// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// maxDryRuns limits the number of deletions, and the number of patches. maxDryRunsPerType limits
	// the number of deletions of objects of one type.
	maxDryRuns        = 30
	maxDryRunsPerType = 3
)

// errNoPatchPermission is recorded for a patch that is not sent.
var errNoPatchPermission = errors.New("permission to patch is missing")

// errUnreadServers means that the APIServices could not be read.
var errUnreadServers = errors.New("APIServices could not be read")

var permissionFor = map[string]string{
	diagnosis.VerbDelete: "delete", diagnosis.VerbPatch: "patch", diagnosis.VerbPut: "update",
}

// dryRunRequest is a request to delete an object, or to remove one of its finalizers.
type dryRunRequest struct {
	diagnosis.RemainingObject
	verb, finalizer string
	// dryRun is the option of the request.
	dryRun []string
}

// sendDryRuns deletes objects, removes finalizers from terminating objects, and writes the Namespace itself, as dry
// runs.
func (c *collection) sendDryRuns(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	var requests []dryRunRequest
	var writes []diagnosis.DryRun
	c.update(func(facts *diagnosis.Facts) {
		option := dryRunOption(ctx, facts)
		requests = append(chooseDeletions(facts, option), chooseRemovals(facts, option)...)
		writes = chooseNamespaceWrites(facts)
	})
	inParallel(writes, func(write diagnosis.DryRun) {
		write.Err = c.dryRunNamespaceWrite(ctx, write)
		c.addDryRun(write)
	})
	inParallel(requests, func(request dryRunRequest) {
		dryRun := diagnosis.DryRun{
			Verb: request.verb, Type: request.Type, Name: request.Name, Finalizer: request.finalizer,
		}
		switch {
		case request.verb == diagnosis.VerbDelete:
			dryRun.Err = c.dryRunDeletion(ctx, request)
		case c.WithoutPatches:
			dryRun.Err = errNoPatchPermission
		default:
			dryRun.Err = c.dryRunRemoval(ctx, request)
		}
		c.addDryRun(dryRun)
	})
	c.update(func(facts *diagnosis.Facts) {
		sortBy(facts.DryRuns, func(dryRun diagnosis.DryRun) []string {
			return []string{dryRun.Verb, dryRun.Resource(), dryRun.Name, dryRun.Finalizer}
		})
	})
}

// addDryRun adds a dry run to the facts. It omits a response that only shows that the object was
// changed or deleted, or that permission is missing. An admission webhook can deny a request with any code.
func (c *collection) addDryRun(dryRun diagnosis.DryRun) {
	unread := func(format string, last any) {
		c.addUnread(diagnosis.SourceDryRuns, fmt.Sprintf(format, dryRun.Verb, dryRun.Resource(), last))
	}
	switch err := dryRun.Err; {
	case err != nil && (denial.IsMissingPermission(err) || errors.Is(err, errNoPatchPermission)):
		unread("a dry run of a %s request for %s was not possible: permission to %s them is missing",
			permissionFor[dryRun.Verb])
	case errors.Is(err, metadataclient.ErrNotSent),
		err != nil && strings.Contains(err.Error(), "does not support dry run"):
		unread("a dry run of a %s request for %s failed: %s", diagnosis.OneLine(err.Error()))
	case (apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsMethodNotSupported(err)) &&
		!denial.IsFromAdmission(err.Error()):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		unread("a dry run of a %s request for %s timed out after %s", responseTimeout)
	default:
		c.update(func(facts *diagnosis.Facts) { facts.DryRuns = append(facts.DryRuns, dryRun) })
	}
}

// optionOf returns the option that makes a request for an object of a group version a dry run, or nil if there is none.
type optionOf func(schema.GroupVersion) []string

func dryRunOption(ctx context.Context, facts *diagnosis.Facts) optionOf {
	guard := dryrun.New(func(_ context.Context, groupVersion schema.GroupVersion) (bool, error) {
		if !facts.IsRead(diagnosis.SourceAPIServices) {
			return false, errUnreadServers
		}
		return slices.ContainsFunc(facts.APIServices, func(service diagnosis.APIService) bool {
			return service.GroupVersion == groupVersion
		}), nil
	})
	return func(groupVersion schema.GroupVersion) []string {
		option, _ := guard.Option(ctx, groupVersion) // Other sources explain a type behind an APIService.
		return option
	}
}

// chooseDeletions selects a few objects without a deletionTimestamp, and Pods that the kubelet should have deleted. It
// prefers objects that the NamespaceDeletionContentFailure condition names.
func chooseDeletions(facts *diagnosis.Facts, option optionOf) []dryRunRequest {
	failure := facts.ConditionMessage(corev1.NamespaceDeletionContentFailure)
	var candidates []diagnosis.RemainingObject
	for _, object := range facts.RemainingObjects() {
		isPod := object.GroupResource() == diagnosis.PodResource && len(object.Finalizers) == 0
		isDue := object.DeletionTimestamp == nil || isPod && facts.IsObjectOverdue(object)
		if isDue && object.Can("delete") && object.UID != "" &&
			option(object.GroupVersion()) != nil {
			candidates = append(candidates, object)
		}
	}
	rank := func(object diagnosis.RemainingObject) int {
		if strings.Contains(failure, `"`+object.Name+`"`) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(candidates, func(a, b diagnosis.RemainingObject) int { return cmp.Compare(rank(a), rank(b)) })
	var chosen []dryRunRequest
	counts := map[schema.GroupResource]int{}
	for _, object := range candidates {
		resource := object.GroupResource()
		if counts[resource]++; counts[resource] <= maxDryRunsPerType && len(chosen) < maxDryRuns {
			chosen = append(chosen, dryRunRequest{object, diagnosis.VerbDelete, "", option(object.GroupVersion())})
		}
	}
	return chosen
}

// chooseRemovals selects one terminating object for each finalizer and type.
func chooseRemovals(facts *diagnosis.Facts, option optionOf) []dryRunRequest {
	var chosen []dryRunRequest
	seen := map[string]bool{}
	for _, object := range facts.RemainingObjects() {
		if object.DeletionTimestamp == nil || !object.Can("patch") || option(object.GroupVersion()) == nil {
			continue
		}
		for _, finalizer := range object.Finalizers {
			key := object.Type.String() + " " + finalizer
			if !seen[key] && len(chosen) < maxDryRuns {
				seen[key] = true
				chosen = append(chosen, dryRunRequest{object, diagnosis.VerbPatch, finalizer, option(object.GroupVersion())})
			}
		}
	}
	return chosen
}

// chooseNamespaceWrites returns the writes of an overdue Namespace that its deletion still needs: of the deletion
// conditions and, if the namespace is empty, the removal of each finalizer. Before, a policy may deny a removal.
func chooseNamespaceWrites(facts *diagnosis.Facts) []diagnosis.DryRun {
	namespace := facts.Namespace
	if !facts.IsOverdue(namespace.DeletionTimestamp.Time) {
		return nil
	}
	var writes []diagnosis.DryRun
	add := func(verb, subresource, finalizer string) {
		write := diagnosis.DryRun{
			Verb: verb, Type: diagnosis.NamespaceType, Subresource: subresource, Name: namespace.Name, Finalizer: finalizer,
		}
		if !slices.ContainsFunc(writes, func(other diagnosis.DryRun) bool { // A list may contain duplicates.
			return other.Subresource == subresource && other.Finalizer == finalizer
		}) && len(writes) < maxDryRuns {
			writes = append(writes, write)
		}
	}
	if slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		add(diagnosis.VerbPatch, diagnosis.SubresourceStatus, "")
	}
	if facts.IsEmpty() {
		for _, finalizer := range namespace.Spec.Finalizers {
			add(diagnosis.VerbPut, diagnosis.SubresourceFinalize, string(finalizer))
		}
		for _, finalizer := range namespace.Finalizers {
			add(diagnosis.VerbPatch, "", finalizer)
		}
	}
	return writes
}

// dryRunNamespaceWrite sends a write of the Namespace as a dry run and returns the response. The request contains the
// resource version, so that the error is a conflict if the Namespace has changed.
func (c *collection) dryRunNamespaceWrite(ctx context.Context, write diagnosis.DryRun) error {
	namespace := c.facts.Namespace.DeepCopy()
	if write.Subresource == diagnosis.SubresourceFinalize {
		namespace.Spec.Finalizers = slices.DeleteFunc(namespace.Spec.Finalizers,
			func(other corev1.FinalizerName) bool { return string(other) == write.Finalizer })
		return c.client.SubResource(diagnosis.SubresourceFinalize).Update(ctx, namespace, client.DryRunAll)
	}
	metadata := map[string]any{"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion}
	change := map[string]any{"metadata": metadata}
	if write.Subresource == diagnosis.SubresourceStatus {
		change["status"] = map[string]any{"conditions": []corev1.NamespaceCondition{{
			Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse, Reason: "DryRun",
			LastTransitionTime: metav1.NewTime(c.facts.Now),
		}}}
	} else {
		metadata["finalizers"] = slices.DeleteFunc(namespace.Finalizers,
			func(other string) bool { return other == write.Finalizer })
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("failed to encode a patch: %w", err)
	}
	if write.Subresource == diagnosis.SubresourceStatus { // A strategic merge patch keeps the other conditions.
		return c.client.Status().Patch(ctx, namespace, client.RawPatch(types.StrategicMergePatchType, body), client.DryRunAll)
	}
	return c.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
}
