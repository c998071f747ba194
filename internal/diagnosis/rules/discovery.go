// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// findDiscovery finds why resource types cannot be discovered. A namespace cannot be confirmed to
// be empty while resource types are missing.
func (f view) findDiscovery() []diagnosis.Finding {
	findings := f.findAPIServices()
	if f.ResourceTypes == nil {
		return append(findings, f.findDiscoveryByCondition()...)
	}
	for _, groupVersion := range f.failedGroupVersions() {
		if service := f.serviceFor(groupVersion); service != nil && f.isUnavailable(service) {
			continue
		}
		findings = append(findings, f.discoveryFinding(groupVersion))
	}
	for name, err := range diagnosis.Sorted(f.ResourceTypes.Unparsed) {
		text := fmt.Sprintf("group version %q: %v", name, err)
		findings = append(findings, f.groupVersionFinding(text, diagnosis.RankProven, diagnosis.Proven(text)))
	}
	text := f.ConditionMessage(corev1.NamespaceDeletionGVParsingFailure)
	if text != "" && len(f.ResourceTypes.Unparsed) == 0 {
		findings = append(findings, f.groupVersionFinding(text, diagnosis.RankPublished, nil))
	}
	return findings
}

// findAPIServices returns one finding for each Service that does not respond, regardless of the number
// of group versions that it serves.
func (f view) findAPIServices() []diagnosis.Finding {
	unavailable := map[string][]*diagnosis.APIService{}
	for i := range f.APIServices {
		if service := &f.APIServices[i]; f.isUnavailable(service) {
			name := service.Service.String()
			unavailable[name] = append(unavailable[name], service)
		}
	}
	findings := make([]diagnosis.Finding, 0, len(unavailable))
	for _, services := range diagnosis.Sorted(unavailable) {
		findings = append(findings, f.apiServiceFinding(services[0].Service, services))
	}
	return findings
}

func (f view) apiServiceFinding(name types.NamespacedName, services []*diagnosis.APIService) diagnosis.Finding {
	first := services[0]
	objects := make([]diagnosis.Object, 0, len(services))
	var names []string
	for _, service := range services {
		objects = append(objects, diagnosis.Object{Resource: string(diagnosis.SourceAPIServices), Name: service.Name})
		names = append(names, service.Name)
	}
	finding := f.newFinding(diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven,
		fmt.Sprintf("The server of APIService %s %s, so its objects in this namespace can be neither listed nor deleted",
			first.Name, f.connectionProblem(services)), params{
			"apiservice": {first.Name}, "backend": {name.Namespace},
			"apiservices": names[:min(len(names), diagnosis.MaxObjects)],
		})
	if !f.addBackendProblem(&finding, name) && !first.Available && first.Reason != "" {
		finding.Message += ": " + first.Reason
	}
	for _, service := range services {
		if service.Available {
			continue
		}
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(fmt.Sprintf(
			"APIService %s: Available=False, %s since %s: %s",
			service.Name, service.Reason, diagnosis.FormatTime(service.Since), diagnosis.OneLine(service.Message)))...)
	}
	for _, service := range services {
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(f.groupVersionErrors(service.GroupVersion)...)...)
	}
	finding.Evidence = append(finding.Evidence, f.quoteIfAbout(corev1.NamespaceDeletionDiscoveryFailure, services)...)
	if first.Available && !f.isConfirmedUnavailable(services) {
		finding.Rank = diagnosis.RankInferred
	}
	return finding.WithObjects(objects)
}

// connectionProblem describes why the API server cannot call the server of APIServices.
func (f view) connectionProblem(services []*diagnosis.APIService) string {
	var texts []string
	for _, service := range services {
		if !service.Available {
			texts = append(texts, service.Reason+" "+service.Message)
		}
		texts = append(texts, f.groupVersionErrors(service.GroupVersion)...)
	}
	return describeConnectionProblem(texts)
}

// quoteIfAbout quotes a condition if it names the group of one of the APIServices.
func (f view) quoteIfAbout(
	conditionType corev1.NamespaceConditionType, services []*diagnosis.APIService,
) []diagnosis.Evidence {
	for _, service := range services {
		if strings.Contains(f.ConditionMessage(conditionType), service.GroupVersion.Group) {
			return f.quoteConditions(conditionType)
		}
	}
	return nil
}

// groupVersionErrors returns the errors of discovery and list requests for a group version.
func (f view) groupVersionErrors(groupVersion schema.GroupVersion) []string {
	var texts []string
	if f.ResourceTypes != nil && f.ResourceTypes.Failed[groupVersion] != nil {
		texts = append(texts, fmt.Sprintf("discovery of %s: %s", groupVersion,
			diagnosis.OneLine(f.ResourceTypes.Failed[groupVersion].Error())))
	}
	if err := f.DirectDiscovery[groupVersion]; err != nil {
		texts = append(texts, fmt.Sprintf(evidenceDirectDiscoveryError, groupVersion, diagnosis.OneLine(err.Error())))
	}
	for _, content := range f.Content {
		if content.Err != nil && content.Type.GroupVersion() == groupVersion {
			texts = append(texts, diagnosis.OneLine(content.Err.Error()))
		}
	}
	return texts
}

// isUnavailable reports whether the server of an APIService does not respond: discovery or a list
// request fails, and either the APIService is not available or the server returned the error.
func (f view) isUnavailable(service *diagnosis.APIService) bool {
	text := f.ConditionMessage(corev1.NamespaceDeletionDiscoveryFailure)
	hasErrors := len(f.groupVersionErrors(service.GroupVersion)) > 0 ||
		f.ResourceTypes == nil && strings.Contains(text, service.GroupVersion.String())
	return hasErrors && (!service.Available || f.hasServerError(service.GroupVersion))
}

// hasServerError reports whether requests for a group version fail with a server error.
func (f view) hasServerError(groupVersion schema.GroupVersion) bool {
	if err, ok := f.DirectDiscovery[groupVersion]; ok {
		// A server that sends an invalid response is available.
		return isServerError(err) || errors.Is(err, context.DeadlineExceeded)
	}
	return slices.ContainsFunc(f.Content, func(content resourcetypes.Content) bool {
		return content.Err != nil && content.Type.GroupVersion() == groupVersion && isServerError(content.Err)
	})
}

// isConfirmedUnavailable reports whether kube-apiserver returned an error because it cannot reach the
// aggregated API server.
func (f view) isConfirmedUnavailable(services []*diagnosis.APIService) bool {
	return slices.ContainsFunc(services, func(service *diagnosis.APIService) bool {
		if apierrors.IsServiceUnavailable(f.DirectDiscovery[service.GroupVersion]) {
			return true
		}
		return slices.ContainsFunc(f.Content, func(content resourcetypes.Content) bool {
			return content.Err != nil && content.Type.GroupVersion() == service.GroupVersion &&
				apierrors.IsServiceUnavailable(content.Err)
		})
	})
}

// serviceFor returns the APIService of a group version, or nil if kube-apiserver serves it.
func (f view) serviceFor(groupVersion schema.GroupVersion) *diagnosis.APIService {
	for i := range f.APIServices {
		if f.APIServices[i].GroupVersion == groupVersion {
			return &f.APIServices[i]
		}
	}
	return nil
}

func (f view) failedGroupVersions() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(f.ResourceTypes.Failed), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	})
}

func (f view) discoveryFinding(groupVersion schema.GroupVersion) diagnosis.Finding {
	name := groupVersion.Version + "." + groupVersion.Group
	failure := f.ResourceTypes.Failed[groupVersion]
	cause, message := diagnosis.CauseDiscoveryFailing, fmt.Sprintf("Discovery of %s is failing", groupVersion)+
		f.Detail(failure.Error())
	err, ok := f.DirectDiscovery[groupVersion]
	answers := ok && err == nil && isStale(failure)
	if answers {
		cause, message = diagnosis.CauseDiscoveryStale, fmt.Sprintf(
			"The discovery cache of the API server is stale for %s: a direct request returns its resource types", groupVersion)
	}
	finding := f.newFinding(cause, diagnosis.RankProven, message,
		params{"groupVersion": {groupVersion.String()}, "apiservice": {name}})
	finding.Evidence = append(diagnosis.Proven(f.groupVersionErrors(groupVersion)...),
		f.quoteConditions(corev1.NamespaceDeletionDiscoveryFailure)...)
	if answers {
		finding.Evidence = append(finding.Evidence,
			diagnosis.Proven(fmt.Sprintf("kubectl get --raw=/apis/%s succeeds", groupVersion))...)
	}
	return finding.WithObjects([]diagnosis.Object{{Resource: string(diagnosis.SourceAPIServices), Name: name}})
}

// findDiscoveryByCondition finds discovery failures in the condition written by the namespace
// controller. It is used if the diagnosis itself cannot discover any resource types.
func (f view) findDiscoveryByCondition() []diagnosis.Finding {
	text := f.ConditionMessage(corev1.NamespaceDeletionDiscoveryFailure)
	for i := range f.APIServices {
		if f.isUnavailable(&f.APIServices[i]) {
			return nil // The APIService already has a finding.
		}
	}
	if text == "" {
		return nil
	}
	finding := f.newFinding(diagnosis.CauseDiscoveryFailing, diagnosis.RankPublished,
		messageControllerDiscovery+f.Detail(text), nil)
	finding.Remedies = []diagnosis.Remedy{
		diagnosis.Inspect("kubectl api-resources"), diagnosis.Inspect("kubectl get apiservices"),
	}
	finding.Evidence = f.quoteConditions(corev1.NamespaceDeletionDiscoveryFailure)
	return []diagnosis.Finding{finding}
}

func (f view) groupVersionFinding(
	text string, rank diagnosis.Rank, evidence []diagnosis.Evidence,
) diagnosis.Finding {
	finding := f.newFinding(diagnosis.CauseGroupVersionInvalid, rank,
		"The name of a group version cannot be parsed"+f.Detail(text), nil)
	finding.Evidence = append(evidence, f.quoteConditions(corev1.NamespaceDeletionGVParsingFailure)...)
	return finding
}
