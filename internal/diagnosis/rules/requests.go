// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// PermissionsNeeded returns the permissions that users lack according to errors.
func PermissionsNeeded(facts *diagnosis.Facts) []diagnosis.DeniedPermission {
	f := view{facts}
	permissions := f.deniedToController()
	for _, own := range f.deniedToDiagnosis() {
		permissions = append(permissions, own.DeniedPermission)
	}
	return permissions
}

// deniedToController returns the permissions that the namespace controller lacks according to its condition. It limits
// their number, because each requires an access review.
func (f view) deniedToController() []diagnosis.DeniedPermission {
	var permissions []diagnosis.DeniedPermission
	all := denial.MissingPermissions(f.ConditionMessage(corev1.NamespaceDeletionContentFailure))
	for _, missing := range all[:min(len(all), owners.MaxChecked)] {
		permissions = append(permissions, diagnosis.DeniedPermission{MissingPermission: missing})
	}
	return permissions
}

// ownDenial is an error with which an aggregated API server denied a list request of the diagnosis.
type ownDenial struct {
	diagnosis.DeniedPermission

	service *diagnosis.APIService
	err     error
	// isOther reports whether the error names a permission other than the one to list the objects.
	isOther bool
}

// deniedToDiagnosis returns at most one denial for each APIService.
func (f view) deniedToDiagnosis() []ownDenial {
	var denials []ownDenial
	for _, content := range f.Content {
		service := f.serviceFor(content.Type.GroupVersion())
		if service == nil || content.Err == nil || !apierrors.IsForbidden(content.Err) ||
			slices.ContainsFunc(denials, func(other ownDenial) bool { return other.service == service }) {
			continue
		}
		list := denial.MissingPermission{Verb: "list", Resource: content.Type.Resource, Group: content.Type.Group}
		own := ownDenial{service: service, err: content.Err}
		own.MissingPermission, own.IsOwn = list, true
		if missing := denial.MissingPermissions(content.Err.Error()); len(missing) > 0 {
			own.MissingPermission = missing[0]
			list.User = missing[0].User
			own.isOther = own.MissingPermission != list
		}
		denials = append(denials, own)
	}
	return denials
}

// findForbidden finds permissions that the namespace controller lacks. Aggregated API servers can authorize requests
// again, and require other permissions than kube-apiserver.
func (f view) findForbidden() []diagnosis.Finding {
	var findings []diagnosis.Finding
	var services []*diagnosis.APIService
	for _, permission := range f.deniedToController() {
		finding := f.forbiddenFinding(permission)
		service := f.serviceOfGroup(permission.Group)
		services = append(services, service)
		if service != nil {
			setServer(&finding, service, messageServerForbidden, f.deniedText(permission))
		}
		finding.Rank = diagnosis.RankPublished
		finding.Evidence = append(f.quoteConditions(corev1.NamespaceDeletionContentFailure), finding.Evidence...)
		finding.Remedies = append(finding.Remedies, f.grantRemedies(permission)...)
		findings = append(findings, finding)
	}
	for _, own := range f.deniedToDiagnosis() {
		if isReported := slices.Contains(services, own.service); !isReported && f.mayAffectController(own) {
			finding := f.forbiddenFinding(own.DeniedPermission)
			setServer(&finding, own.service, messageServerForbidsDiagnosis, f.deniedText(own.DeniedPermission))
			finding.Evidence = append(diagnosis.Proven(diagnosis.OneLine(own.err.Error())), finding.Evidence...)
			if own.User != "" {
				finding.Remedies = append(finding.Remedies, f.grantRemedies(own.DeniedPermission)...)
			}
			findings = append(findings, finding)
		}
	}
	return findings
}

// mayAffectController reports whether the namespace controller may lack the same permission, and has not reported that
// its requests succeed. A permission that kube-apiserver itself denies to the user of the diagnosis is not a cause.
func (f view) mayAffectController(own ownDenial) bool {
	condition := f.Condition(corev1.NamespaceDeletionContentFailure)
	if condition != nil && condition.Status == corev1.ConditionFalse {
		return false
	}
	return f.IsOverdue(f.lastStep()) && !f.Progress.Observed() &&
		(own.isOther || f.Permissions[own.DeniedPermission])
}

// forbiddenFinding returns a finding about a missing permission, with what kube-apiserver says about it.
func (f view) forbiddenFinding(permission diagnosis.DeniedPermission) diagnosis.Finding {
	finding := f.newFinding(diagnosis.CauseForbidden, diagnosis.RankInferred,
		fmt.Sprintf("The namespace controller lacks a permission: %s", f.deniedText(permission)), nil)
	if allowed, ok := f.Permissions[permission]; ok {
		format := "kube-apiserver does not grant %s the verb %s on %s"
		if allowed {
			format = evidenceGranted
		}
		finding.Evidence = diagnosis.Proven(
			fmt.Sprintf(format, f.userText(permission), permission.Verb, permission.GroupResource()))
	}
	return finding
}

// setServer names the APIService whose server denies the request.
func setServer(finding *diagnosis.Finding, service *diagnosis.APIService, format, denied string) {
	finding.Message = fmt.Sprintf(format, service.Name, denied)
	finding.Remedies = []diagnosis.Remedy{
		diagnosis.Inspect(shell.Command("kubectl get apiservice %s --output=yaml", service.Name)),
	}
	*finding = finding.WithObjects([]diagnosis.Object{{Resource: string(diagnosis.SourceAPIServices), Name: service.Name}})
}

// deniedText describes who lacks which permission.
func (f view) deniedText(permission diagnosis.DeniedPermission) string {
	return fmt.Sprintf("%s cannot %s %s", f.userText(permission), permission.Verb, permission.GroupResource())
}

func (f view) userText(permission diagnosis.DeniedPermission) string {
	if permission.User == "" {
		return "it"
	}
	return f.UnlessPublic(fmt.Sprintf("user %q", permission.User), "it")
}

// isGrantable reports whether a command to grant a permission may be suggested. The text of the error can come from an
// aggregated API server, or from an admission webhook that quotes what a user wrote. It must not make an administrator
// grant a permission for types that kube-apiserver serves, such as Secrets or roles.
func (f view) isGrantable(permission diagnosis.DeniedPermission) bool {
	return f.serviceOfGroup(permission.Group) != nil && len(validation.IsDNS1123Subdomain(permission.Resource)) == 0
}

// grantRemedies returns the commands that grant a permission. kubectl cannot grant permissions for resources with a dot
// in their names, which only exist for authorization.
func (f view) grantRemedies(permission diagnosis.DeniedPermission) []diagnosis.Remedy {
	resource, user := permission.GroupResource(), permission.User
	check := diagnosis.Inspect(shell.Command("kubectl auth can-i %s %s --namespace=%s --as=%s",
		permission.Verb, resource, f.Namespace.Name, user))
	if !f.isGrantable(permission) {
		return []diagnosis.Remedy{check}
	}
	if strings.Contains(permission.Resource, ".") {
		return []diagnosis.Remedy{diagnosis.Resolve(fmt.Sprintf("Grant user %q the verb %s on resource %s of API group %s "+
			"with a ClusterRole and a ClusterRoleBinding", user, permission.Verb,
			permission.Resource, permission.Group)), check}
	}
	name, subject := permission.Verb+"-"+resource, "user="+user
	if namespace, account, err := serviceaccount.SplitUsername(user); err == nil {
		subject = "serviceaccount=" + namespace + ":" + account
	}
	return []diagnosis.Remedy{
		diagnosis.Resolve(shell.Command("kubectl create clusterrole %s --verb=%s --resource=%s",
			name, permission.Verb, resource)),
		diagnosis.Resolve(shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s --%s",
			name, name, subject)), check,
	}
}

// serviceOfGroup returns an APIService of an API group, or nil if kube-apiserver serves the group.
func (f view) serviceOfGroup(group string) *diagnosis.APIService {
	for i := range f.APIServices {
		if f.APIServices[i].GroupVersion.Group == group {
			return &f.APIServices[i]
		}
	}
	return nil
}

// manyObjects is the minimum number of objects that is treated as a possible cause of timeouts.
const manyObjects = 1000

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
		finding := f.newFinding(diagnosis.CauseStorageUnreadable, diagnosis.RankInferred,
			fmt.Sprintf("Stored objects of type %s cannot be read", content.Type)+f.Detail(err.Error()),
			params{"type": {content.Type.String()}})
		if isStoreReadError(err) {
			finding.Rank = diagnosis.RankProven
		}
		finding.Evidence = append(diagnosis.Proven(diagnosis.OneLine(err.Error())),
			f.quoteConditions(corev1.NamespaceDeletionContentFailure)...)
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
		finding := f.newFinding(diagnosis.CauseTooManyObjects, diagnosis.RankInferred,
			fmt.Sprintf("%d objects of type %s remain, and requests to delete them time out",
				content.Count, content.Type), params{"type": {content.Type.String()}})
		finding.Count, finding.Evidence = content.Count, f.quoteConditions(corev1.NamespaceDeletionContentFailure)
		findings = append(findings, finding)
	}
	return findings
}

func (f view) findThrottled() []diagnosis.Finding {
	finding := f.newFinding(diagnosis.CauseThrottled, diagnosis.RankInferred, messageThrottled, nil)
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
