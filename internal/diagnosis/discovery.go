// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// findDiscovery blames what keeps the types of the cluster from being known. Until they
// are, no namespace can be proven to be empty.
func findDiscovery(f *Facts) []Finding {
	findings := f.findAPIServices()
	if f.Inventory == nil {
		return append(findings, f.findDiscoveryByCondition()...)
	}
	for _, groupVersion := range f.failedGroupVersions() {
		if f.serviceFor(groupVersion) != nil && f.isDown(f.serviceFor(groupVersion)) {
			continue
		}
		findings = append(findings, f.blameDiscovery(groupVersion))
	}
	for name, err := range sorted(f.Inventory.Unparsed) {
		findings = append(findings, f.blameParsing(fmt.Sprintf("group version %q: %v", name, err)))
	}
	if text := f.failure(corev1.NamespaceDeletionGVParsingFailure); text != "" && len(f.Inventory.Unparsed) == 0 {
		findings = append(findings, f.blameParsing(text))
	}
	return findings
}

// findAPIServices makes one finding for each Service that does not answer, however many
// versions it serves, and however many conditions and lists complain of it.
func (f *Facts) findAPIServices() []Finding {
	down := map[types.NamespacedName][]*APIService{}
	for i := range f.APIServices {
		if service := &f.APIServices[i]; f.isDown(service) {
			down[service.Service] = append(down[service.Service], service)
		}
	}
	var names []types.NamespacedName
	for name := range down {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	findings := make([]Finding, 0, len(names))
	for _, name := range names {
		findings = append(findings, f.blameAPIService(name, down[name]))
	}
	return findings
}

func (f *Facts) blameAPIService(name types.NamespacedName, services []*APIService) Finding {
	first := services[0]
	finding := Finding{
		Cause: CauseAPIServiceUnavailable, Certainty: Proven,
		Message: fmt.Sprintf("APIService %s does not answer, so that nobody knows what it holds in this namespace",
			first.Name),
		Remedies: []string{
			shell.Command("kubectl get apiservice %s --output=yaml", first.Name),
			shell.Command("kubectl get service,endpointslices,pods --namespace=%s", name.Namespace),
			"Restore the server behind it; if it was uninstalled for good, delete the APIService: " +
				shell.Command("kubectl delete apiservice %s", first.Name),
		},
		Loss: "with the APIService the objects that its server keeps in this namespace are out of reach; they stay in " +
			"the storage of that server",
	}
	if what := f.whatOf(name); what != "" {
		finding.Message += ": " + what
		finding.Evidence = append(finding.Evidence, what)
	} else if !first.IsAvailable && first.Reason != "" {
		finding.Message += ": " + first.Reason
	}
	objects := make([]Object, 0, len(services))
	for _, service := range services {
		objects = append(objects, Object{Resource: string(SourceAPIServices), Name: service.Name})
		if service.IsAvailable {
			continue
		}
		finding.Evidence = append(finding.Evidence, fmt.Sprintf("APIService %s: Available=False, %s since %s: %s",
			service.Name, service.Reason, stamp(service.Since), oneLine(service.Message)))
	}
	for _, service := range services {
		finding.Evidence = append(finding.Evidence, f.complaintsOf(service.GroupVersion)...)
	}
	finding.Evidence = append(finding.Evidence, f.quotesOf(corev1.NamespaceDeletionDiscoveryFailure, services)...)
	if first.IsAvailable && !f.isProvenDown(services) {
		finding.Certainty = Likely
	}
	return finding.about(objects)
}

// quotesOf quotes a condition if it names one of the group versions.
func (f *Facts) quotesOf(conditionType corev1.NamespaceConditionType, services []*APIService) []string {
	for _, service := range services {
		if strings.Contains(f.failure(conditionType), service.GroupVersion.Group) {
			return f.quotes(conditionType)
		}
	}
	return nil
}

// complaintsOf returns what was answered for a group version, by discovery and by lists.
func (f *Facts) complaintsOf(groupVersion schema.GroupVersion) []string {
	var texts []string
	if f.Inventory != nil && f.Inventory.Failed[groupVersion] != nil {
		texts = append(texts, fmt.Sprintf("discovery of %s: %s", groupVersion,
			oneLine(f.Inventory.Failed[groupVersion].Error())))
	}
	if err := f.Direct[groupVersion]; err != nil {
		texts = append(texts, fmt.Sprintf("asked for %s: %s", groupVersion, oneLine(err.Error())))
	}
	for _, content := range f.Content {
		if content.Err != nil && content.Type.GroupVersion() == groupVersion {
			texts = append(texts, oneLine(content.Err.Error()))
		}
	}
	return texts
}

// isDown tells whether the server behind an APIService does not answer: it is known not
// to be available and discovery or a list lacks its types, or one of these says so itself.
func (f *Facts) isDown(service *APIService) bool {
	said := f.failure(corev1.NamespaceDeletionDiscoveryFailure)
	isLacking := len(f.complaintsOf(service.GroupVersion)) > 0 ||
		f.Inventory == nil && strings.Contains(said, service.GroupVersion.String())
	return isLacking && (!service.IsAvailable || f.isFailing(service.GroupVersion))
}

// isFailing tells whether a group version was answered for with an error of the server.
func (f *Facts) isFailing(groupVersion schema.GroupVersion) bool {
	if err, wasAsked := f.Direct[groupVersion]; wasAsked {
		// Whoever answers with something that nobody understands does answer.
		return isServerError(err) || errors.Is(err, context.DeadlineExceeded)
	}
	return slices.ContainsFunc(f.Content, func(content inventory.Content) bool {
		return content.Err != nil && content.Type.GroupVersion() == groupVersion && isServerError(content.Err)
	})
}

// isProvenDown tells whether the API server has said that it cannot reach the server.
func (f *Facts) isProvenDown(services []*APIService) bool {
	return slices.ContainsFunc(services, func(service *APIService) bool {
		if apierrors.IsServiceUnavailable(f.Direct[service.GroupVersion]) {
			return true
		}
		return slices.ContainsFunc(f.Content, func(content inventory.Content) bool {
			return content.Err != nil && content.Type.GroupVersion() == service.GroupVersion &&
				apierrors.IsServiceUnavailable(content.Err)
		})
	})
}

func isServerError(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err)
}

// serviceFor returns the APIService of a group version, nil if kube-apiserver serves it.
func (f *Facts) serviceFor(groupVersion schema.GroupVersion) *APIService {
	for i := range f.APIServices {
		if f.APIServices[i].GroupVersion == groupVersion {
			return &f.APIServices[i]
		}
	}
	return nil
}

func (f *Facts) failedGroupVersions() []schema.GroupVersion {
	var failed []schema.GroupVersion
	for groupVersion := range f.Inventory.Failed {
		failed = append(failed, groupVersion)
	}
	slices.SortFunc(failed, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return failed
}

func (f *Facts) blameDiscovery(groupVersion schema.GroupVersion) Finding {
	path := shell.Command("kubectl get --raw=/apis/%s", groupVersion)
	name := groupVersion.Version + "." + groupVersion.Group
	finding := Finding{
		Cause: CauseDiscoveryFailing, Certainty: Proven,
		Message: fmt.Sprintf("the types of %s cannot be discovered", groupVersion) +
			f.detail(f.Inventory.Failed[groupVersion].Error()),
		Remedies: []string{path, shell.Command("kubectl get apiservice %s --output=yaml", name)},
		Evidence: append(f.complaintsOf(groupVersion), f.quotes(corev1.NamespaceDeletionDiscoveryFailure)...),
	}
	if err, wasAsked := f.Direct[groupVersion]; wasAsked && err == nil && isStale(f.Inventory.Failed[groupVersion]) {
		finding.Cause = CauseDiscoveryStale
		finding.Message = fmt.Sprintf("the API server's discovery of %s is out of date: asked directly, its types are there",
			groupVersion)
		finding.Evidence = append(finding.Evidence, path+" is answered")
		finding.Remedies = append(finding.Remedies, "Wait a minute; if it stays so, restart kube-apiserver or the server of "+
			"this group, whose answer to discovery it could not read")
	}
	return finding.about([]Object{{Resource: string(SourceAPIServices), Name: name}})
}

// findDiscoveryByCondition is for when our own discovery has failed as a whole.
func (f *Facts) findDiscoveryByCondition() []Finding {
	text := f.failure(corev1.NamespaceDeletionDiscoveryFailure)
	for i := range f.APIServices {
		if f.isDown(&f.APIServices[i]) {
			return nil // It is blamed already.
		}
	}
	if text == "" {
		return nil
	}
	return []Finding{{
		Cause: CauseDiscoveryFailing, Certainty: Likely,
		Message:  "the namespace controller cannot discover all types" + f.detail(text),
		Evidence: f.quotes(corev1.NamespaceDeletionDiscoveryFailure),
		Remedies: []string{"kubectl api-resources", "kubectl get apiservices"},
	}}
}

func (f *Facts) blameParsing(text string) Finding {
	return Finding{
		Cause: CauseGroupVersionInvalid, Certainty: Proven,
		Message:  "the name of a group version cannot be parsed" + f.detail(text),
		Evidence: append([]string{oneLine(text)}, f.quotes(corev1.NamespaceDeletionGVParsingFailure)...),
		Remedies: []string{
			"kubectl api-resources", "kubectl get apiservices",
			"Correct or remove what serves that group version: a group version is GROUP/VERSION, with one slash",
		},
	}
}
