// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// DefaultPatience is how long something may take before anybody is blamed for it.
const DefaultPatience = 30 * time.Second

// Facts is everything that is known of one namespace at one moment; pure data. What is
// not there was not asked for, since it does not matter, or stands in Unread.
type Facts struct {
	// Now is when the facts were gathered, by the API server's clock where it tells.
	Now time.Time
	// Patience is how long a finalizer, a pod or a token may take before it is blamed. The
	// API server's own errors are blamed at once.
	Patience time.Duration
	// IsPublic restricts the findings to what may be published on the Namespace.
	IsPublic bool
	// Namespace is the Namespace itself.
	Namespace *corev1.Namespace
	// Unread is what could not be read.
	Unread []Unread

	// Inventory is what discovery has found; nil where it failed as a whole.
	Inventory *inventory.Inventory
	// Direct is the answer to a direct question for a group version that discovery lacks:
	// nil where the API server has named its types.
	Direct map[schema.GroupVersion]error
	// APIServices are those that another server than kube-apiserver answers for.
	APIServices []APIService
	// Content is what is left of each type, in the order of the types.
	Content []inventory.Content
	// Movement is what has changed between two looks at the content.
	Movement Movement
	// DefinitionNames are those of all CustomResourceDefinitions.
	DefinitionNames []string
	// Definitions are the CustomResourceDefinitions of what is left, or could not be listed.
	Definitions []apiextensionsv1.CustomResourceDefinition
	// Backends are the Services by which webhooks and aggregated API servers are reached.
	Backends map[types.NamespacedName]Backend
	// Trials are the requests that were made as dry runs.
	Trials []Trial
	// Webhooks and Policies are those that an error or a condition names.
	Webhooks []Webhook
	Policies []Policy
	// Pods are those of the namespace, and Nodes those that they run on, where they exist.
	Pods  []corev1.Pod
	Nodes []corev1.Node
	// Complaints are what conditions and Events say about the objects that are left.
	Complaints []Complaint

	// Workloads are what could act in the cluster.
	Workloads []Workload
	Leases    []coordinationv1.Lease
	// ClusterRoles and ClusterRoleBindings are all of them.
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	// Accounts tells of the ServiceAccounts that matter whether they exist.
	Accounts map[types.NamespacedName]bool
	// Reviews are what the API server says about the rights of ServiceAccounts.
	Reviews []Review
	// Registered are the initializers of all configurations.
	Registered []string
	// Tokens are the finalizers of those initializers.
	Tokens []RegisteredToken
}

// RegisteredToken is a token that new Namespaces get with an initializer.
type RegisteredToken struct{ Token, Initializer, Configuration string }

// Source is what facts come from: a type of objects as kubectl takes it, or a question.
type Source string

// The sources.
const (
	SourceDiscovery      Source = "discovery"
	SourceContent        Source = "content"
	SourceTrials         Source = "dry runs"
	SourceAPIServices    Source = "apiservices.apiregistration.k8s.io"
	SourceDefinitions    Source = "customresourcedefinitions.apiextensions.k8s.io"
	SourceDeployments    Source = "deployments.apps"
	SourceStatefulSets   Source = "statefulsets.apps"
	SourceDaemonSets     Source = "daemonsets.apps"
	SourcePods           Source = "pods"
	SourceNodes          Source = "nodes"
	SourceServices       Source = "services"
	SourceEndpointSlices Source = "endpointslices.discovery.k8s.io"
	SourceEvents         Source = "events"
	SourceLeases         Source = "leases.coordination.k8s.io"
	SourceAccounts       Source = "serviceaccounts"
	SourceRoles          Source = "clusterroles.rbac.authorization.k8s.io"
	SourceBindings       Source = "clusterrolebindings.rbac.authorization.k8s.io"
	SourceReviews        Source = "subjectaccessreviews.authorization.k8s.io"
	SourceValidating     Source = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	SourceMutating       Source = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	SourcePolicies       Source = "validatingadmissionpolicies.admissionregistration.k8s.io"
	SourceConfigurations Source = "namespaceinitializerconfigurations.nslifecycle.dev"
)

// Unread is something that could not be read.
type Unread struct {
	Source Source
	// Why is a sentence; it names the right that is missing where it is one.
	Why string
}

// APIService is a group version that another server than kube-apiserver answers for.
type APIService struct {
	Name         string
	GroupVersion schema.GroupVersion
	Service      types.NamespacedName
	// IsAvailable, Reason, Message and Since are its condition Available.
	IsAvailable     bool
	Reason, Message string
	Since           time.Time
}

// Movement is what has changed between two looks at what is left.
type Movement struct {
	// Gone counts the objects that went, by type.
	Gone map[schema.GroupResource]int
	// Released counts the objects that lost a finalizer, or went with it, by finalizer.
	Released map[string]int
	// Said is what proves movement without a second look; empty if nothing does.
	Said string
}

// IsSeen tells whether anything moves at all.
func (m Movement) IsSeen() bool {
	return m.Said != "" || len(m.Gone) > 0 || len(m.Released) > 0
}

// Backend is a Service that webhooks or aggregated API servers are reached by.
type Backend struct {
	Exists bool
	// IsAddressed tells whether anything answers behind it, as far as the EndpointSlices
	// tell. A Service of type ExternalName needs none.
	IsAddressed bool
}

// Verbs of trials.
const (
	VerbDelete = "DELETE"
	VerbPatch  = "PATCH"
)

// Trial is a request that was made as a dry run: the deletion of an object, or the removal
// of one of its finalizers.
type Trial struct {
	Verb      string
	Type      inventory.Type
	Name      string
	Finalizer string
	// Err is the API server's answer, nil where it would have done it.
	Err error
}

// Webhook is an admission webhook.
type Webhook struct {
	Name string
	// Resource and Configuration name the object that registers it.
	Resource, Configuration string
	// Service is nil where a URL is called.
	Service *types.NamespacedName
	URL     string
	// IsPersonal tells that whether it is called depends on who asks.
	IsPersonal bool
}

// Policy is a ValidatingAdmissionPolicy.
type Policy struct {
	Name string
	// IsPersonal tells that its verdict depends on who asks.
	IsPersonal bool
	// IsGate tells that it is the one of this project that keeps everybody but initializers
	// out of a namespace that is being initialized.
	IsGate bool
}

// Complaint is what a condition or an Event says about an object.
type Complaint struct {
	Type inventory.Type
	Name string
	// Source says where it stands, such as "condition Ready" or "Event SyncFailed".
	Source string
	Text   string
	// At is when it was last said; zero if that is not known.
	At time.Time
}

// Workload is something that runs in the cluster.
type Workload struct {
	Source          Source
	Namespace, Name string
	// Texts are its names and labels; Images are separate, since many workloads share a
	// registry.
	Texts, Images []string
	// Account is the ServiceAccount of its pods; empty where that is not known.
	Account types.NamespacedName
	// Wanted and Ready count its pods.
	Wanted, Ready int32
	IsDeleted     bool
}

// IsAlive tells whether it can act.
func (w *Workload) IsAlive() bool { return w.Ready > 0 }

// Review is whether a ServiceAccount may change the objects of a type in the namespace.
type Review struct {
	Account   types.NamespacedName
	Resource  schema.GroupResource
	IsAllowed bool
}

// isRead tells whether all of the sources could be read.
func (f *Facts) isRead(sources ...Source) bool {
	return !slices.ContainsFunc(f.Unread, func(unread Unread) bool {
		return slices.Contains(sources, unread.Source)
	})
}

// isOverdue tells whether what should have happened at a time may be blamed by now.
func (f *Facts) isOverdue(due time.Time) bool {
	return !f.Now.Before(due.Add(f.Patience))
}
