// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// manyObjects is the minimum number of objects that is treated as a possible cause of timeouts.
const manyObjects = 1000

// storageRule finds why requests of the namespace controller fail: stored objects are unreadable,
// there are too many objects, or the controller is throttled.
var storageRule = Rule{
	Name: "storage", Stage: diagnosis.StageTerminating,
	Needs: []diagnosis.Fact{diagnosis.FactContent, diagnosis.FactAPIServices, diagnosis.FactProgress},
	find: func(f view) []diagnosis.Finding {
		findings := f.findUnreadable()
		findings = append(findings, f.findTooManyObjects()...)
		return append(findings, f.findThrottled()...)
	},
}

// findUnreadable finds types for which kube-apiserver itself returns an error. Errors of other
// servers and of conversion webhooks have separate causes.
func (f view) findUnreadable() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for _, content := range f.Content {
		err := content.Err
		if err == nil || conversion.MatchString(err.Error()) || f.serviceFor(content.Type.GroupVersion()) != nil ||
			!isStoreReadError(err) && !apierrors.IsInternalError(err) {
			continue
		}
		finding := diagnosis.Finding{
			Cause: diagnosis.CauseStorageUnreadable, Rank: diagnosis.RankInferred,
			Message:  fmt.Sprintf(messageStorageUnreadable, content.Type) + f.Detail(err.Error()),
			Evidence: diagnosis.Proven(diagnosis.OneLine(err.Error())),
			Remedies: []diagnosis.Remedy{
				diagnosis.Inspect(shell.Command(remedyListObjects, content.Type, f.Namespace.Name)),
				diagnosis.Inspect(remedyStorageCheck), diagnosis.Resolve(remedyStorageDelete),
			},
			Loss: lossStorage,
		}
		if isStoreReadError(err) {
			finding.Rank = diagnosis.RankProven
		}
		finding.Evidence = append(finding.Evidence, f.quoteConditions(corev1.NamespaceDeletionContentFailure)...)
		findings = append(findings, finding)
	}
	return findings
}

// findTooManyObjects finds types with many objects if requests of the namespace controller time out.
func (f view) findTooManyObjects() []diagnosis.Finding {
	text := f.ConditionMessage(corev1.NamespaceDeletionContentFailure)
	if !timedOut.MatchString(text) || denial.IsFromAdmission(text) || conversion.MatchString(text) {
		return nil
	}
	var findings []diagnosis.Finding
	for _, content := range f.Content {
		if content.Count < manyObjects || f.IsTypeProgressing(content.Type.GroupResource()) {
			continue
		}
		findings = append(findings, diagnosis.Finding{
			Cause: diagnosis.CauseTooManyObjects, Rank: diagnosis.RankInferred,
			Message:  fmt.Sprintf(messageTooManyObjects, content.Count, content.Type),
			Evidence: f.quoteConditions(corev1.NamespaceDeletionContentFailure), Count: content.Count,
			Remedies: []diagnosis.Remedy{
				diagnosis.Resolve(shell.Command(remedyDeleteManyObjects, content.Type, f.Namespace.Name)),
				diagnosis.Resolve(remedyTooManyObjects),
			},
		})
	}
	return findings
}

func (f view) findThrottled() []diagnosis.Finding {
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseThrottled, Rank: diagnosis.RankInferred,
		Message: messageThrottled,
		Remedies: []diagnosis.Remedy{
			diagnosis.Inspect(remedyRejectedRequests), diagnosis.Inspect(remedyListFlowSchemas),
			diagnosis.Resolve(remedyThrottled),
		},
	}
	if throttled.MatchString(f.ConditionMessage(corev1.NamespaceDeletionContentFailure)) {
		finding.Rank = diagnosis.RankPublished
		finding.Evidence = f.quoteConditions(corev1.NamespaceDeletionContentFailure)
	}
	for _, content := range f.Content {
		if content.Err != nil && apierrors.IsTooManyRequests(content.Err) {
			finding.Evidence = append(finding.Evidence, diagnosis.Proven(diagnosis.OneLine(content.Err.Error()))...)
		}
	}
	if len(finding.Evidence) == 0 {
		return nil
	}
	return []diagnosis.Finding{finding}
}
