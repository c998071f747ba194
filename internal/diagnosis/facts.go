// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// DefaultProgressDeadline is how long a step may take by default before it is reported as a cause.
const DefaultProgressDeadline = 30 * time.Second

// Facts contains what a diagnosis read about a namespace. Unread lists the sources of fields that are
// empty because they could not be read.
type Facts struct {
	// Now is the time at which the facts were collected, according to the API server if its
	// responses contain the time.
	Now time.Time
	// ProgressDeadline is how long a finalizer or a pod may take before it is reported. Errors returned
	// by the API server are reported immediately.
	ProgressDeadline time.Duration
	// IsPublic restricts the findings to what may be published on the Namespace.
	IsPublic  bool
	Namespace *corev1.Namespace
	Unread    []Unread
	// RejectedWrites contains the operator's Events about its rejected writes to the Namespace, the latest first.
	// TemplateFailures contains failures from the status of templates. Both are empty if IsPublic is set.
	RejectedWrites   []Report
	TemplateFailures []string

	// ResourceTypes is the result of discovery; nil if discovery failed completely.
	ResourceTypes *resourcetypes.Set
	// DirectDiscovery contains the result of a direct request for each group version that discovery
	// lacks. The error is nil if the request succeeded.
	DirectDiscovery map[schema.GroupVersion]error
	// APIServices are the APIServices of aggregated API servers.
	APIServices []APIService
	// Content contains the remaining objects of each type, in the order of ResourceTypes.
	Content []resourcetypes.Content
	// Progress is the difference between two lists of the content of the namespace.
	Progress Progress
	// CRDNames are the names of all CustomResourceDefinitions.
	CRDNames []string
	// CRDs are the CustomResourceDefinitions of types with remaining objects and of types that could
	// not be listed.
	CRDs []apiextensionsv1.CustomResourceDefinition
	// Backends are the Services of webhooks and aggregated API servers.
	Backends map[types.NamespacedName]Backend
	// DryRuns are the dry runs of the diagnosis with their responses.
	DryRuns []DryRun
	// Webhooks and Policies are the admission webhooks and policies that an error or a condition names.
	Webhooks []Webhook
	Policies []Policy
	// UserDependent describe the webhooks and policies of other projects that can deny writes to the Namespace depending
	// on the user. They are read only if the Namespace has no deletion conditions although it can be written.
	UserDependent []string
	// Pods are the pods in the namespace. Nodes are the existing nodes that the pods are bound to.
	Pods  []corev1.Pod
	Nodes []corev1.Node
	// Reports are conditions and Events about remaining objects.
	Reports []Report
	// Fields are the values of the fields that pause the controllers of remaining objects.
	Fields map[FieldKey]string

	// Workloads are workloads in the cluster that might be owners of finalizers or initializers.
	Workloads []Workload
	Leases    []coordinationv1.Lease
	// ClusterRoles and ClusterRoleBindings contain all objects of these types.
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	// ServiceAccounts records whether the ServiceAccounts of possible owners exist.
	ServiceAccounts map[types.NamespacedName]bool
	// AccessReviews record the permissions of ServiceAccounts.
	AccessReviews []AccessReview
	// Permissions record whether users have the permissions that they lack according to errors.
	Permissions map[DeniedPermission]bool
	// Initializers are the initializers of all configurations, sorted by configuration.
	Initializers []RegisteredInitializer
	// WaitingSubjects are the subjects that may not initialize namespaces although they hold the verb.
	WaitingSubjects []v1alpha1.Subject
}

// RegisteredInitializer is an initializer that a configuration registers. Finalizer is the namespace
// finalizer that new Namespaces get together with the initializer; it can be empty. If there are
// Subjects, only they may act as the initializer.
type RegisteredInitializer struct {
	Name, Finalizer, Configuration string
	Subjects                       []v1alpha1.Subject
	// Timeout is how long a turn of the initializer can last; 0 means that there is no limit. IsSkipped reports
	// whether the operator then skips the initializer, instead of failing the initialization.
	Timeout   time.Duration
	IsSkipped bool
}

// Source identifies the origin of facts: a resource type as kubectl names it, or a kind of request.
type Source string

// Values of Source.
const (
	SourceDiscovery           Source = "discovery"
	SourceContent             Source = "content"
	SourceDryRuns             Source = "dry runs"
	SourceAPIServices         Source = "apiservices.apiregistration.k8s.io"
	SourceCRDs                Source = "customresourcedefinitions.apiextensions.k8s.io"
	SourceDeployments         Source = "deployments.apps"
	SourceStatefulSets        Source = "statefulsets.apps"
	SourceDaemonSets          Source = "daemonsets.apps"
	SourcePods                Source = "pods"
	SourceNodes               Source = "nodes"
	SourceServices            Source = "services"
	SourceEndpointSlices      Source = "endpointslices.discovery.k8s.io"
	SourceEvents              Source = "events"
	SourceLeases              Source = "leases.coordination.k8s.io"
	SourceServiceAccounts     Source = "serviceaccounts"
	SourceClusterRoles        Source = "clusterroles.rbac.authorization.k8s.io"
	SourceClusterRoleBindings Source = "clusterrolebindings.rbac.authorization.k8s.io"
	SourceAccessReviews       Source = "subjectaccessreviews.authorization.k8s.io"
	SourcePermissions         Source = "permissions"
	SourceValidatingWebhooks  Source = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	SourceMutatingWebhooks    Source = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	SourcePolicies            Source = "validatingadmissionpolicies.admissionregistration.k8s.io"
	SourceConfigurations      Source = "namespaceinitializerconfigurations.nslifecycle.dev"
)

// Unread is a source that could not be read.
type Unread struct {
	Source Source
	// Why is a sentence that states the reason. If a permission is missing, it names the permission.
	Why string
}

// APIService is a group version that an aggregated API server serves.
type APIService struct {
	Name         string
	GroupVersion schema.GroupVersion
	Service      types.NamespacedName
	// Available, Reason, Message and Since are from the Available condition.
	Available       bool
	Reason, Message string
	Since           time.Time
}

// Progress is the difference between two lists of the content.
type Progress struct {
	// Deleted counts the objects that were deleted, by type.
	Deleted map[schema.GroupResource]int
	// Released counts the objects from which a finalizer was removed, by finalizer. It includes deleted
	// objects.
	Released map[string]int
	// Evidence is a sentence about progress that a condition of the Namespace shows. If it is not
	// empty, a second list is not necessary.
	Evidence string
}

// Observed reports whether the namespace makes progress.
func (p Progress) Observed() bool {
	return p.Evidence != "" || len(p.Deleted) > 0 || len(p.Released) > 0
}

// Backend is the Service of a webhook or an aggregated API server.
type Backend struct {
	Exists bool
	// HasReadyEndpoint reports whether an EndpointSlice has a ready endpoint. It is true for a Service
	// of type ExternalName, which has no EndpointSlices.
	HasReadyEndpoint bool
}

// Verbs of dry runs.
const (
	VerbDelete = "DELETE"
	VerbPatch  = "PATCH"
	VerbPut    = "PUT"
)

// Subresources of a Namespace.
const (
	SubresourceFinalize = "finalize"
	SubresourceStatus   = "status"
)

// DryRun is the dry run of a request to delete an object, to remove a finalizer from an object or from the
// Namespace itself, or to write the status of the Namespace.
type DryRun struct {
	Verb        string
	Type        resourcetypes.Type
	Subresource string
	Name        string
	// Finalizer is the finalizer that the request removes, or empty.
	Finalizer string
	// Err is the error returned by the API server; nil if the request would succeed.
	Err error
}

// IsOfNamespace reports whether the request writes the Namespace itself.
func (d *DryRun) IsOfNamespace() bool { return d.Type.GroupResource() == NamespaceType.GroupResource() }

// Resource returns the name of the resource and the subresource.
func (d *DryRun) Resource() string {
	if d.Subresource == "" {
		return d.Type.String()
	}
	return d.Type.String() + "/" + d.Subresource
}

// Webhook is an admission webhook.
type Webhook struct {
	Name string
	// Resource and Configuration identify the configuration that registers the webhook.
	Resource, Configuration string
	// Service is nil if the webhook has a URL.
	Service *types.NamespacedName
	URL     string
	// DependsOnUser reports whether the match conditions of the webhook depend on the user who sends the request.
	DependsOnUser bool
}

// Policy is a ValidatingAdmissionPolicy.
type Policy struct {
	Name string
	// DependsOnUser reports whether the decision of the policy depends on the user who sends the request.
	DependsOnUser bool
	// IsGate reports whether the policy is the gate policy of this project, which allows only initializers to
	// write to an Initializing namespace.
	IsGate bool
}

// sourcePrefixEvent is the prefix of the Source of a Report that is an Event.
const sourcePrefixEvent = "Event "

// Report is a condition or an Event in which a controller describes an object.
type Report struct {
	Type resourcetypes.Type
	Name string
	// Source identifies the condition or the Event, such as "condition Ready=False, Degraded" or
	// "Event Failed".
	Source string
	// Text is the message.
	Text string
	// IsFailure reports whether the report is a warning, or a condition that seems to report a problem.
	IsFailure bool
	// At is the time of the last report; zero if unknown.
	At time.Time
}

// IsEvent reports whether the report is an Event.
func (r *Report) IsEvent() bool { return strings.HasPrefix(r.Source, sourcePrefixEvent) }

// MakeEventReport returns the report of an Event of type Warning.
func MakeEventReport(of RemainingObject, reason, message string, at time.Time) Report {
	return Report{
		Type: of.Type, Name: of.Name, Source: sourcePrefixEvent + OneLine(reason), Text: message, IsFailure: true, At: at,
	}
}

// problemTypes matches the types of conditions for which status True is a problem.
var problemTypes = regexp.MustCompile(
	`(?i)error|fail|degraded|stalled|blocked|denied|invalid|conflict|unavailable|unhealthy|paused|suspended`)

// activityTypes matches the types of conditions that report an activity, such as Reconciling. Neither of
// their statuses is a problem.
var activityTypes = regexp.MustCompile(`[a-z]ing(Up|Down|Out)?$`)

// MakeConditionReport returns the report of a condition. Whether it reports a problem depends on the
// polarity of its type, which only the name of the type shows.
func MakeConditionReport(of RemainingObject, condition *metav1.Condition) Report {
	isFailure := condition.Status == metav1.ConditionFalse && !activityTypes.MatchString(condition.Type)
	if problemTypes.MatchString(condition.Type) {
		isFailure = condition.Status == metav1.ConditionTrue
	}
	source := fmt.Sprintf("condition %s=%s", condition.Type, condition.Status)
	if condition.Reason != "" {
		source += ", " + condition.Reason
	}
	return Report{
		Type: of.Type, Name: of.Name, Source: OneLine(source), Text: condition.Message,
		IsFailure: isFailure, At: condition.LastTransitionTime.Time,
	}
}

// FieldKey identifies a field of a remaining object. Field is a path such as spec.paused.
type FieldKey struct {
	Resource    schema.GroupResource
	Name, Field string
}

// Workload is a workload in the cluster.
type Workload struct {
	Source          Source
	Namespace, Name string
	Labels          map[string]string
	// Containers and Images are the names of its containers and of their images.
	Containers, Images []string
	// Releases identify the installation that contains the object, see ReleasesOf.
	Releases []string
	// ServiceAccount is the ServiceAccount of its pods; empty if unknown.
	ServiceAccount types.NamespacedName
	// Desired and Ready are numbers of pods.
	Desired, Ready int32
}

// IsReady reports whether at least one pod is ready.
func (w *Workload) IsReady() bool { return w.Ready > 0 }

// DeniedPermission is a permission that the namespace controller or the user of the diagnosis lacks according to an
// error.
type DeniedPermission struct {
	denial.MissingPermission

	// IsOwn reports whether the API server returned the error to the diagnosis.
	IsOwn bool
}

// AccessReview records which permissions that a controller needs for the objects of a type in the namespace a
// ServiceAccount lacks.
type AccessReview struct {
	ServiceAccount types.NamespacedName
	Resource       schema.GroupResource
	// Missing are the missing verbs. A controller needs only one of patch and update, so "patch" stands for both.
	Missing []string
}

// IsRead reports whether all given sources could be read.
func (f *Facts) IsRead(sources ...Source) bool {
	return !slices.ContainsFunc(f.Unread, func(unread Unread) bool {
		return slices.Contains(sources, unread.Source)
	})
}

// IsOverdue reports whether a step that was due at the given time has exceeded the progress
// deadline.
func (f *Facts) IsOverdue(due time.Time) bool {
	return !f.Now.Before(due.Add(f.ProgressDeadline))
}

// Condition returns the condition of the Namespace with the given type, or nil.
func (f *Facts) Condition(conditionType corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	return nsobject.FindCondition(f.Namespace, conditionType)
}

// FailureConditions are the conditions that list the errors of a namespace controller.
var FailureConditions = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
	corev1.NamespaceDeletionContentFailure,
}

// DeletionConditions are the conditions that a namespace controller writes.
var DeletionConditions = append(slices.Clone(FailureConditions),
	corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining)

// HasDeletionCondition reports whether a namespace controller has written a condition of the Namespace.
func (f *Facts) HasDeletionCondition() bool {
	return slices.ContainsFunc(f.Namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		return slices.Contains(DeletionConditions, condition.Type)
	})
}

// ConditionMessage returns the message of a condition of the Namespace if its status is True, or "".
func (f *Facts) ConditionMessage(conditionType corev1.NamespaceConditionType) string {
	condition := f.Condition(conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	return condition.Message
}

// Rejections returns the errors returned to the dry runs and to the namespace controller.
func (f *Facts) Rejections() []string {
	texts := []string{f.ConditionMessage(corev1.NamespaceDeletionContentFailure)}
	for _, dryRun := range f.DryRuns {
		if dryRun.Err != nil {
			texts = append(texts, dryRun.Err.Error())
		}
	}
	return texts
}

// IsEmpty reports whether no remaining objects are known, and discovery is complete.
func (f *Facts) IsEmpty() bool {
	return len(f.Content) == 0 && f.ResourceTypes != nil && f.ResourceTypes.Err() == nil
}

// ExternalNamespaceFinalizers returns the entries of spec.finalizers other than the namespace
// controller's.
func (f *Facts) ExternalNamespaceFinalizers() []string {
	var names []string
	for _, finalizer := range f.Namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes {
			names = append(names, string(finalizer))
		}
	}
	return names
}

// StateOf returns the state of a Namespace.
func StateOf(namespace *corev1.Namespace) NamespaceState {
	if namespace.DeletionTimestamp != nil {
		return StateTerminating
	}
	return NamespaceState(initialization.ParseState(namespace).Phase)
}

// PendingInitializers returns the names of the pending initializers, in order.
func PendingInitializers(namespace *corev1.Namespace) []string {
	return initialization.SplitNames(namespace.Annotations[v1alpha1.AnnotationPendingInitializers])
}
