// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// manyObjects is from how many objects on a time-out may be due to their number.
const manyObjects = 1000

// findStorage blames what keeps the API server from working on what it has stored: objects
// that it cannot read, too many of them, and too little room for the controller's requests.
func findStorage(f *Facts) []Finding {
	findings := f.findUnreadable()
	findings = append(findings, f.findTooMany()...)
	findings = append(findings, f.findThrottled()...)
	return append(findings, f.findForbidden()...)
}

// findUnreadable blames types that kube-apiserver itself answers for with an error. Those
// of other servers and of conversion webhooks have their own causes.
func (f *Facts) findUnreadable() []Finding {
	var findings []Finding
	for _, content := range f.Content {
		err := content.Err
		if err == nil || conversion.MatchString(err.Error()) || f.serviceFor(content.Type.GroupVersion()) != nil ||
			!isStoreReadError(err) && !apierrors.IsInternalError(err) {
			continue
		}
		finding := Finding{
			Cause: CauseStorageUnreadable, Certainty: Likely,
			Message:  fmt.Sprintf("stored objects of type %s cannot be read", content.Type) + f.detail(err.Error()),
			Evidence: []string{oneLine(err.Error())},
			Remedies: []string{
				shell.Command("kubectl get %s --namespace=%s", content.Type, f.Namespace.Name),
				"See the log of kube-apiserver for the key in etcd; check that its encryption configuration still has the key " +
					"that the objects were written with",
				"An object that is lost for good can be deleted with the delete option " +
					"ignoreStoreReadErrorWithClusterBreakingPotential",
			},
			Loss: "an object that is deleted without having been read leaves everything behind that its finalizers stood for",
		}
		if isStoreReadError(err) {
			finding.Certainty = Proven
		}
		finding.Evidence = append(finding.Evidence, f.quotes(corev1.NamespaceDeletionContentFailure)...)
		findings = append(findings, finding)
	}
	return findings
}

// findTooMany blames numbers only where the controller's requests time out.
func (f *Facts) findTooMany() []Finding {
	text := f.failure(corev1.NamespaceDeletionContentFailure)
	if !timedOut.MatchString(text) || isAdmission(text) || conversion.MatchString(text) {
		return nil
	}
	var findings []Finding
	for _, content := range f.Content {
		if content.Count < manyObjects || f.isMoving(content.Type.GroupResource()) {
			continue
		}
		findings = append(findings, Finding{
			Cause: CauseTooManyObjects, Certainty: Likely,
			Message: fmt.Sprintf("there are %d objects of type %s, and requests to delete them time out", content.Count,
				content.Type),
			Evidence: f.quotes(corev1.NamespaceDeletionContentFailure), Count: content.Count,
			Remedies: []string{
				shell.Command("kubectl delete %s --all --namespace=%s --wait=false", content.Type, f.Namespace.Name),
				"Give etcd and kube-apiserver more room, or let nslifecycle delete them: it deletes one by one",
			},
		})
	}
	return findings
}

func (f *Facts) findThrottled() []Finding {
	finding := Finding{
		Cause: CauseThrottled, Certainty: Likely,
		Message: "the API server puts off requests to delete what is in the namespace",
		Remedies: []string{
			"kubectl get --raw=/metrics | grep apiserver_flowcontrol_rejected_requests_total",
			"kubectl get flowschemas,prioritylevelconfigurations",
			"Find out who floods the API server, or give the namespace controller more room",
		},
	}
	if throttled.MatchString(f.failure(corev1.NamespaceDeletionContentFailure)) {
		finding.Certainty = Proven
		finding.Evidence = f.quotes(corev1.NamespaceDeletionContentFailure)
	}
	for _, content := range f.Content {
		if content.Err != nil && apierrors.IsTooManyRequests(content.Err) {
			finding.Evidence = append(finding.Evidence, oneLine(content.Err.Error()))
		}
	}
	if len(finding.Evidence) == 0 {
		return nil
	}
	return []Finding{finding}
}

// findForbidden blames a namespace controller without the rights that it needs, by what
// its condition says. What we may not do ourselves is no cause.
func (f *Facts) findForbidden() []Finding {
	text := f.failure(corev1.NamespaceDeletionContentFailure)
	matches := rightMissing.FindAllStringSubmatch(text, -1)
	if len(matches) == 0 {
		return nil
	}
	user, verb, resource, group := matches[0][1], matches[0][2], matches[0][3], matches[0][4]
	resource = strings.TrimSuffix(resource+"."+group, ".")
	return []Finding{{
		Cause: CauseForbidden, Certainty: Proven,
		Message: fmt.Sprintf("the namespace controller lacks a right: %s cannot %s %s",
			f.unlessPublic(fmt.Sprintf("user %q", user), "it"), verb, resource),
		Evidence: f.quotes(corev1.NamespaceDeletionContentFailure),
		Remedies: []string{
			"Restore the ClusterRole and the ClusterRoleBinding of the namespace controller",
			shell.Command("kubectl auth can-i %s %s --namespace=%s --as=%s", verb, resource, f.Namespace.Name, user),
		},
	}}
}
