// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package knownwriters contains facts about widely used controllers that write into new namespaces: their identity,
// what they do if a write is rejected, and what we recommend. The facts are data, read from the sources of the
// controllers. docs/reference/controllers.md is generated from them.
package knownwriters

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Advice is what we recommend for a controller.
type Advice string

// The recommendations.
const (
	// Grant: grant the verb "provision", because the controller does not write what was rejected soon after the
	// initialization, or because a rejected write delays other namespaces.
	Grant Advice = "Grant"
	// Wait: let the gate reject the writes, because the controller repeats them. A controller that holds the verb
	// "initialize" waits only if it is one of the waitingSubjects of a configuration.
	Wait Advice = "Wait"
	// Exclude: configure the controller so that it ignores namespaces with the label nslifecycle.dev/initializing.
	Exclude Advice = "Exclude"
)

// Writer is a controller, or a group of controllers in one process. The texts are noun phrases or sentences without
// a period.
type Writer struct {
	// Name is the name of the controller.
	Name string
	// ServiceAccounts are those of a default installation. If the namespace is empty, installations differ in it.
	ServiceAccounts []types.NamespacedName
	// HoldsVerb reports whether these ServiceAccounts hold the verb "initialize": because their ClusterRole contains
	// every verb, or because their namespace is kube-system. Then no write is rejected or held.
	HoldsVerb bool
	// Writes is what the controller writes into a namespace.
	Writes string
	// OnForbidden is what the controller does at 403, the response of the gate policy.
	OnForbidden string
	// OnTooManyRequests is what it does at 429, the response of the hold webhook. client-go first repeats the
	// request up to 10 times, if the response has a Retry-After.
	OnTooManyRequests string
	// IsSerial reports whether a held write delays the writes of the controller into other namespaces.
	IsSerial bool
	Advice   Advice
	// Setting is how to configure the exclusion if the advice is Exclude, and empty otherwise. Kinds are the
	// cluster-scoped kinds with this setting.
	Setting string
	Kinds   []schema.GroupVersionKind
	// Source has the form OWNER/NAME@COMMIT:PATH, with one or more paths.
	Source string
}

// Texts that apply to several controllers.
const (
	sameAsForbidden = "the same"
	backsOff        = "repeats it with a backoff of 5 ms to 1,000 s"
	waitsForLabels  = "logs it; tries again when the labels of the namespace change, as after the initialization"
)

// All returns all writers, sorted by name.
func All() []Writer {
	return []Writer{{
		Name:              "Argo CD, application controller",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "argocd", Name: "argocd-application-controller"}},
		HoldsVerb:         true,
		Writes:            "the objects of Applications",
		OnForbidden:       "continues with other objects; repeats an automated sync 5 times, after 5 s to 80 s",
		OnTooManyRequests: sameAsForbidden,
		Advice:            Wait,
		Source: "argoproj/argo-cd@37ee0097cf85:manifests/cluster-rbac/application-controller/" +
			"argocd-application-controller-clusterrole.yaml",
	}, {
		Name: "Flux, kustomize-controller and helm-controller",
		ServiceAccounts: []types.NamespacedName{
			{Namespace: "flux-system", Name: "kustomize-controller"}, {Namespace: "flux-system", Name: "helm-controller"},
		},
		HoldsVerb:         true,
		Writes:            "the objects of Kustomizations and HelmReleases",
		OnForbidden:       "stops at the object; repeats all after spec.retryInterval",
		OnTooManyRequests: sameAsForbidden,
		Advice:            Wait,
		Source:            "fluxcd/flux2@1b581d6f513c:manifests/rbac/reconciler.yaml",
	}, {
		Name:              "Istio, istiod",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "istio-system", Name: "istiod"}},
		Writes:            "ConfigMap istio-ca-root-cert, which Pods with a sidecar mount",
		OnForbidden:       "ignores it until the namespace changes",
		OnTooManyRequests: "tries 5 times in 0.1 s, then ignores it until the namespace changes",
		IsSerial:          true,
		Advice:            Grant,
		Source: "istio/istio@86c9f01fd735:pilot/pkg/serviceregistry/kube/controller/namespacecontroller.go " +
			"security/pkg/k8s/configutil.go pkg/kube/controllers/queue.go",
	}, {
		Name:              "Karmada, agent",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "karmada-system", Name: "karmada-agent-sa"}},
		HoldsVerb:         true,
		Writes:            "the objects of Works",
		OnForbidden:       backsOff,
		OnTooManyRequests: sameAsForbidden,
		Advice:            Wait,
		Source: "karmada-io/karmada@f8fdd02df376:artifacts/agent/clusterrole.yaml " +
			"pkg/controllers/execution/execution_controller.go",
	}, {
		Name: "kube-controller-manager",
		ServiceAccounts: []types.NamespacedName{
			{Namespace: "kube-system", Name: "root-ca-cert-publisher"},
			{Namespace: "kube-system", Name: "service-account-controller"},
		},
		HoldsVerb:         true,
		Writes:            "ConfigMap kube-root-ca.crt and ServiceAccount default",
		OnForbidden:       backsOff + ", and when the namespace changes",
		OnTooManyRequests: sameAsForbidden,
		IsSerial:          true,
		Advice:            Grant,
		Source: "kubernetes/kubernetes@v1.37.2:pkg/controller/certificates/rootcacertpublisher/publisher.go " +
			"pkg/controller/serviceaccount/serviceaccounts_controller.go",
	}, {
		Name:              "kubernetes-replicator",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "kube-system", Name: "replicator-kubernetes-replicator"}},
		HoldsVerb:         true,
		Writes:            "copies of Secrets, ConfigMaps, Roles, RoleBindings and ServiceAccounts",
		OnForbidden:       waitsForLabels,
		OnTooManyRequests: sameAsForbidden,
		Advice:            Wait,
		Source: "mittwald/kubernetes-replicator@f535dd9d8b49:replicate/common/generic-replicator.go " +
			"replicate/common/namespaces.go deploy/rbac.yaml",
	}, {
		Name:              "Kyverno, background controller",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "kyverno", Name: "kyverno-background-controller"}},
		Writes:            "the objects of generate rules",
		OnForbidden:       "repeats it at once, without a delay, until it succeeds",
		OnTooManyRequests: sameAsForbidden,
		Advice:            Grant,
		Source: "kyverno/kyverno@111e07bbecc6:pkg/background/update_request_controller.go " +
			"pkg/background/generate/controller.go",
	}, {
		Name:              "Open Cluster Management, work agent",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "open-cluster-management-agent", Name: "klusterlet-work-sa"}},
		Writes:            "the objects of ManifestWorks",
		OnForbidden:       "repeats it with a backoff, and at least every 4 to 6 min",
		OnTooManyRequests: sameAsForbidden,
		Advice:            Wait,
		Source: "open-cluster-management-io/ocm@00f84c32b03b:pkg/work/spoke/controllers/manifestcontroller/" +
			"manifestwork_controller.go manifests/klusterlet/managed/klusterlet-work-clusterrole-execution.yaml",
	}, {
		Name: "OpenShift, openshift-controller-manager",
		ServiceAccounts: []types.NamespacedName{
			{Namespace: "openshift-infra", Name: "default-rolebindings-controller"},
			{Namespace: "openshift-infra", Name: "serviceaccount-controller"},
			{Namespace: "openshift-infra", Name: "serviceaccount-pull-secrets-controller"},
		},
		Writes:            "RoleBindings for images and builds, ServiceAccounts builder and deployer, pull Secrets",
		OnForbidden:       backsOff,
		OnTooManyRequests: sameAsForbidden,
		Advice:            Grant,
		Source: "openshift/openshift-controller-manager@26d20feae889:pkg/authorization/defaultrolebindings/" +
			"defaultrolebindings.go pkg/cmd/controller/serviceaccount.go pkg/cmd/controller/imageregistry.go",
	}, {
		Name:              "OpenShift, service CA",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "openshift-service-ca", Name: "service-ca"}},
		Writes:            "the CA in ConfigMap openshift-service-ca.crt, which kube-controller-manager creates",
		OnForbidden:       backsOff,
		OnTooManyRequests: sameAsForbidden,
		Advice:            Grant,
		Source: "openshift/service-ca-operator@6391e070d2ab:pkg/controller/cabundleinjector/configmap.go " +
			"pkg/controller/cabundleinjector/starter.go",
	}, {
		Name: "Operator Lifecycle Manager",
		ServiceAccounts: []types.NamespacedName{
			{Namespace: "operator-lifecycle-manager", Name: "olm-operator-serviceaccount"},
			{Namespace: "openshift-operator-lifecycle-manager", Name: "olm-operator-serviceaccount"},
		},
		Writes:            "copies of the ClusterServiceVersions of OperatorGroups that select all namespaces",
		OnForbidden:       "ignores it until the original changes or is synchronized again",
		OnTooManyRequests: sameAsForbidden,
		IsSerial:          true,
		Advice:            Grant,
		Source: "operator-framework/operator-lifecycle-manager@992bb097749e:pkg/controller/operators/olm/operatorgroup.go " +
			"deploy/chart/templates/0000_50_olm_02-olm-operator.serviceaccount.yaml",
	}, {
		Name: "Rancher",
		ServiceAccounts: []types.NamespacedName{
			{Namespace: "cattle-system", Name: "rancher"}, {Namespace: "cattle-system", Name: "cattle"},
		},
		HoldsVerb:         true,
		Writes:            "RoleBindings, ResourceQuota, LimitRange and Secrets of the project",
		OnForbidden:       "repeats it with a backoff, and when the namespace changes",
		OnTooManyRequests: sameAsForbidden,
		Advice:            Grant,
		Source: "rancher/rancher@59bd052e4455:pkg/controllers/managementuser/rbac/namespace_handler.go " +
			"pkg/controllers/managementuser/secret/project_scoped_secrets.go pkg/systemtemplate/template.go",
	}, {
		Name:              "Reflector",
		ServiceAccounts:   []types.NamespacedName{{Name: "reflector"}},
		Writes:            "copies of Secrets and ConfigMaps",
		OnForbidden:       waitsForLabels,
		OnTooManyRequests: sameAsForbidden,
		IsSerial:          true,
		Advice:            Wait,
		Source: "emberstack/kubernetes-reflector@d1106013138c:src/ES.Kubernetes.Reflector/Mirroring/Core/ResourceMirror.cs " +
			"src/ES.Kubernetes.Reflector/Watchers/Core/WatcherBackgroundService.cs",
	}, {
		Name:              "trust-manager",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "cert-manager", Name: "trust-manager"}},
		Writes:            "the ConfigMap or Secret of each Bundle",
		OnForbidden:       "ends the pass over all namespaces, in random order; repeats it with a backoff",
		OnTooManyRequests: sameAsForbidden,
		IsSerial:          true,
		Advice:            Exclude,
		Setting: "spec.target.namespaceSelector.matchExpressions of the Bundle: " +
			"{key: nslifecycle.dev/initializing, operator: DoesNotExist}",
		Kinds: []schema.GroupVersionKind{
			{Group: "trust.cert-manager.io", Version: "v1alpha1", Kind: "Bundle"},
			{Group: "trust-manager.io", Version: "v1alpha2", Kind: "ClusterBundle"},
		},
		Source: "cert-manager/trust-manager@fc1b53ddc28e:pkg/bundle/bundle.go pkg/bundle/controller.go",
	}, {
		Name:              "Velero",
		ServiceAccounts:   []types.NamespacedName{{Namespace: "velero", Name: "velero"}},
		HoldsVerb:         true,
		Writes:            "the objects of a Restore",
		OnForbidden:       "reports the object as an error of the Restore, and does not repeat it",
		OnTooManyRequests: sameAsForbidden,
		IsSerial:          true,
		Advice:            Grant,
		Source:            "vmware-tanzu/velero@d30d389b5606:pkg/restore/restore.go pkg/install/resources.go",
	}}
}
