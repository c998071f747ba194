// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		slices.SortFunc(facts.CRDs, func(a, b apiextensionsv1.CustomResourceDefinition) int {
			return strings.Compare(a.Name, b.Name)
		})
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
	for _, failure := range []corev1.NamespaceConditionType{
		corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure,
	} {
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
				fmt.Sprintf(unreadSecondList, content.Type, diagnosis.OneLine(content.Err.Error())))
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
			c.addUnread(diagnosis.SourceNodes, fmt.Sprintf(unreadTooManyNodes, maxNodes))
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
		slices.SortFunc(facts.Nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	})
}
