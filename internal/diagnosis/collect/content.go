// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	// maxListed is the maximum number of objects of a type that are listed. Further objects are only
	// counted.
	maxListed = 500
	// listInterval is the time between the two lists that are compared to detect progress.
	listInterval = 700 * time.Millisecond
	// maxCRDs is the maximum number of CustomResourceDefinitions that are read as full objects.
	maxCRDs = 20
	// maxCompleteMessage is the length of a message in bytes above which it might be truncated.
	maxCompleteMessage = 8 << 10
	// maxNodes is the maximum number of nodes that are read.
	maxNodes = 20
)

var crdResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// readCRDNames reads only the metadata of CustomResourceDefinitions, because their schemas can be
// megabytes in size.
func (c *collection) readCRDNames(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	list, err := c.metadata.Resource(crdResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.addFailure(diagnosis.SourceCRDs, "", err)
		return
	}
	names := make([]string, 0, len(list.Items))
	for _, crd := range list.Items {
		names = append(names, crd.Name)
	}
	slices.Sort(names)
	c.update(func(facts *diagnosis.Facts) { facts.CRDNames = names })
}

// readCRDs reads the CustomResourceDefinitions of the types in Content.
func (c *collection) readCRDs(ctx context.Context) {
	var names []string
	for _, content := range c.facts.Content {
		if name := content.Type.String(); slices.Contains(c.facts.CRDNames, name) && len(names) < maxCRDs {
			names = append(names, name)
		}
	}
	inParallel(names, func(name string) {
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		if c.list(ctx, diagnosis.SourceCRDs, list, named(name)) {
			c.update(func(facts *diagnosis.Facts) { facts.CRDs = append(facts.CRDs, list.Items...) })
		}
	})
	c.update(func(facts *diagnosis.Facts) {
		sortBy(facts.CRDs, func(crd apiextensionsv1.CustomResourceDefinition) []string { return []string{crd.Name} })
	})
}

func (c *collection) readContent(ctx context.Context) {
	if c.facts.ResourceTypes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	name := c.facts.Namespace.Name
	// Finalization does not wait for objects that cannot be deleted, such as Pod metrics.
	deletable := slices.DeleteFunc(slices.Clone(c.facts.ResourceTypes.Types), func(one resourcetypes.Type) bool {
		return !one.Can("delete")
	})
	contents := resourcetypes.List(ctx, c.metadata, name, deletable, maxListed)
	contents = slices.DeleteFunc(contents, func(content resourcetypes.Content) bool {
		return denial.IsMissingPermission(content.Err) && isReportedEmpty(c.facts, content.Type)
	})
	for _, content := range contents {
		switch {
		case content.Err == nil:
		case denial.IsMissingPermission(content.Err):
			c.addFailure(diagnosis.Source(content.Type.String()), name, content.Err)
		case !isFromAPIServer(content.Err):
			c.addUnread(diagnosis.SourceContent, diagnosis.OneLine(content.Err.Error()))
		}
	}
	c.facts.Content = contents
}

// isReportedEmpty reports whether the namespace controller, which can list all types, has found no
// objects of a type. None can be created afterwards, because the namespace is terminating.
func isReportedEmpty(facts *diagnosis.Facts, of resourcetypes.Type) bool {
	for _, failure := range diagnosis.FailureConditions {
		if condition := facts.Condition(failure); condition == nil || condition.Status != corev1.ConditionFalse {
			return false
		}
	}
	remaining := facts.Condition(corev1.NamespaceContentRemaining)
	if remaining == nil || len(remaining.Message) > maxCompleteMessage {
		return false
	}
	for _, match := range remainingCount.FindAllStringSubmatch(remaining.Message, -1) {
		if match[1] == of.Resource && match[2] == of.Group {
			return false
		}
	}
	return true
}

// isFromAPIServer reports whether the API server returned an error. Other errors are connection
// errors and timeouts.
func isFromAPIServer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// readProgress detects progress. If the deletion exceeds the progress deadline, it lists the content
// again.
func (c *collection) readProgress(ctx context.Context) {
	facts := c.facts
	if evidence := progressInConditions(facts); evidence != "" {
		c.update(func(facts *diagnosis.Facts) { facts.Progress.Evidence = evidence })
		return
	}
	var listed []resourcetypes.Type
	for _, content := range facts.Content {
		if content.Count > 0 && content.Err == nil {
			listed = append(listed, content.Type)
		}
	}
	if len(listed) == 0 || !facts.IsOverdue(facts.Namespace.DeletionTimestamp.Time) {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(listInterval):
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	second := resourcetypes.List(ctx, c.metadata, facts.Namespace.Name, listed, maxListed)
	c.update(func(facts *diagnosis.Facts) { facts.Progress = computeProgress(facts.Content, second) })
	for _, content := range second {
		if content.Err != nil {
			c.addUnread(diagnosis.SourceContent,
				fmt.Sprintf("%s could not be listed a second time to detect progress: %s",
					content.Type, diagnosis.OneLine(content.Err.Error())))
		}
	}
}

// hasContent reports whether objects of a type remain.
func (c *collection) hasContent(isType func(resourcetypes.Type) bool) bool {
	return slices.ContainsFunc(c.facts.Content, func(content resourcetypes.Content) bool {
		return content.Count > 0 && isType(content.Type)
	})
}

// readPods reads the remaining pods and their nodes.
func (c *collection) readPods(ctx context.Context) {
	isPod := func(of resourcetypes.Type) bool { return of.GroupResource() == diagnosis.PodResource }
	list := &corev1.PodList{}
	if !c.hasContent(isPod) ||
		!c.list(ctx, diagnosis.SourcePods, list, client.InNamespace(c.facts.Namespace.Name), client.Limit(maxListed)) {
		return
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Spec.NodeName
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if len(names) == maxNodes {
			c.addUnread(diagnosis.SourceNodes, fmt.Sprintf("only %d nodes of the remaining pods were examined", maxNodes))
			break
		}
		names = append(names, name)
	}
	inParallel(names, func(name string) {
		nodes := &corev1.NodeList{}
		if c.list(ctx, diagnosis.SourceNodes, nodes, named(name)) {
			c.update(func(facts *diagnosis.Facts) { facts.Nodes = append(facts.Nodes, nodes.Items...) })
		}
	})
	c.update(func(facts *diagnosis.Facts) {
		facts.Pods = list.Items
		sortBy(facts.Nodes, func(node corev1.Node) []string { return []string{node.Name} })
	})
}

// computeProgress compares two lists of the content, and counts deleted objects and removed
// finalizers. It ignores new objects, and types that could not be listed twice.
func computeProgress(first, second []resourcetypes.Content) diagnosis.Progress {
	progress := diagnosis.Progress{Deleted: map[schema.GroupResource]int{}, Released: map[string]int{}}
	again := map[schema.GroupResource]resourcetypes.Content{}
	for _, content := range second {
		again[content.Type.GroupResource()] = content
	}
	for _, before := range first {
		after := again[before.Type.GroupResource()] // The second list lacks a type if all of its objects are deleted.
		if before.Err == nil && after.Err == nil {
			addProgress(progress, before, after)
		}
	}
	return progress
}

// addProgress adds the changes of one type. An object that the second list lacks is treated as deleted
// if the first list is complete, or if the number of objects decreased.
func addProgress(progress diagnosis.Progress, before, after resourcetypes.Content) {
	resource := before.Type.GroupResource()
	remaining := map[types.UID][]string{}
	for _, object := range after.Objects {
		remaining[object.UID] = object.Finalizers
	}
	isComplete := len(before.Objects) == before.Count && !before.IsAtLeast
	for _, object := range before.Objects {
		finalizers, ok := remaining[object.UID]
		if !ok && !isComplete && after.Count >= before.Count {
			continue
		}
		if !ok {
			progress.Deleted[resource]++
		}
		for _, finalizer := range object.Finalizers {
			if !slices.Contains(finalizers, finalizer) {
				progress.Released[finalizer]++
			}
		}
	}
	if progress.Deleted[resource] == 0 && after.Count < before.Count {
		progress.Deleted[resource] = before.Count - after.Count
	}
}

var remainingCount = regexp.MustCompile(`([a-z0-9-]+)\.([a-z0-9.-]*) has (\d+) resource instances`)

// progressInConditions returns a sentence about the progress that the NamespaceContentRemaining
// condition shows, or "". The condition contains the numbers of remaining objects, and must have been
// written recently.
func progressInConditions(facts *diagnosis.Facts) string {
	condition := facts.Condition(corev1.NamespaceContentRemaining)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	written := countWritten(facts.Namespace)
	if written.IsZero() || facts.IsOverdue(written) {
		return ""
	}
	counts := map[schema.GroupResource]resourcetypes.Content{}
	for _, content := range facts.Content {
		counts[content.Type.GroupResource()] = content
	}
	for _, match := range remainingCount.FindAllStringSubmatch(condition.Message, -1) {
		before, err := strconv.Atoi(match[3])
		now := counts[schema.GroupResource{Resource: match[1], Group: match[2]}]
		if err == nil && now.Err == nil && !now.IsAtLeast && now.Count < before {
			return fmt.Sprintf("%d %s remained %s ago, and %d remain now", before, match[1], facts.Ago(written), now.Count)
		}
	}
	if isCountChanged(facts, written) {
		return fmt.Sprintf("the condition that counts the remaining objects changed %s ago", facts.Ago(written))
	}
	return ""
}

// isCountChanged reports whether the last write of the status changed only the number of objects:
// no condition changed its status in this write, and no condition lists errors, because their text
// varies. A controller writes the status only if the status changes. Unlike a comparison of two
// lists, this function also detects progress if a controller takes seconds for each object.
func isCountChanged(facts *diagnosis.Facts, written time.Time) bool {
	blocked := facts.Condition(v1alpha1.ConditionDeletionBlocked)
	if blocked != nil && blocked.Status == corev1.ConditionTrue {
		return false // An earlier diagnosis found no progress.
	}
	return !slices.ContainsFunc(facts.Namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		isError := diagnosis.ListsErrors(condition.Type) && condition.Status == corev1.ConditionTrue
		return isError || !condition.LastTransitionTime.Time.Before(written.Add(-time.Second))
	})
}

// countWritten returns the time of the last write that might have changed the NamespaceContentRemaining
// condition; zero if managedFields do not contain the condition.
func countWritten(namespace *corev1.Namespace) time.Time {
	var last time.Time
	for _, entry := range namespace.ManagedFields {
		if entry.Subresource == "status" && entry.FieldsV1 != nil && entry.Time != nil && entry.Time.After(last) &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(corev1.NamespaceContentRemaining)) {
			last = entry.Time.Time
		}
	}
	return last
}
