// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Entry is a cause in the table of all causes.
type Entry struct {
	Cause diagnosis.Cause
	// rule finds the cause. Other rules can find it, too.
	rule *rule
	// Description is the description in docs/reference.
	Description string
	// loss is what users lose if they remove the cause by force, unless it depends on the owner of a finalizer. remedies
	// are what users can usually do. Both contain parameters in the format of os.Expand: a finding gets only the texts
	// whose parameters all have values.
	loss     string
	remedies []diagnosis.Remedy
}

// Blocks returns the type of the condition that has the cause as a reason.
func (e *Entry) Blocks() corev1.NamespaceConditionType { return e.rule.blocks }

// rule finds a group of related causes, which are reasons of the condition blocks.
type rule struct {
	blocks corev1.NamespaceConditionType
	find   func(view) []diagnosis.Finding
}

var (
	ruleAdmission          = &rule{v1alpha1.ConditionDeletionBlocked, view.findAdmission}
	ruleCloud              = &rule{v1alpha1.ConditionDeletionBlocked, view.findCloud}
	ruleController         = &rule{v1alpha1.ConditionDeletionBlocked, view.findNamespaceController}
	ruleConversion         = &rule{v1alpha1.ConditionDeletionBlocked, view.findConversions}
	ruleCRD                = &rule{v1alpha1.ConditionDeletionBlocked, view.findTerminatingCRDs}
	ruleDiscovery          = &rule{v1alpha1.ConditionDeletionBlocked, view.findDiscovery}
	ruleFinalizer          = &rule{v1alpha1.ConditionDeletionBlocked, view.findFinalizers}
	ruleForbidden          = &rule{v1alpha1.ConditionDeletionBlocked, view.findForbidden}
	ruleForeground         = &rule{v1alpha1.ConditionDeletionBlocked, view.findForeground}
	ruleNamespaceFinalizer = &rule{v1alpha1.ConditionDeletionBlocked, view.findNamespaceFinalizers}
	rulePod                = &rule{v1alpha1.ConditionDeletionBlocked, view.findPods}
	ruleThrottled          = &rule{v1alpha1.ConditionDeletionBlocked, view.findThrottled}
	ruleTooManyObjects     = &rule{v1alpha1.ConditionDeletionBlocked, view.findTooManyObjects}
	ruleUnreadable         = &rule{v1alpha1.ConditionDeletionBlocked, view.findUnreadable}
	ruleVolume             = &rule{v1alpha1.ConditionDeletionBlocked, view.findVolumes}
	ruleUnknown            = &rule{v1alpha1.ConditionDeletionBlocked, view.findUnknown}
	ruleInitializer        = &rule{v1alpha1.ConditionInitializationBlocked, view.findInitializer}
)

// Causes returns all causes in the order of findings with the same rank: each cause before its possible consequences.
func Causes() []Entry { return causes }

var causes []Entry

// The rules use the table, so an initialized variable would be an initialization cycle.
func init() {
	const (
		getAPIService = "kubectl get apiservice ${apiservice} --output=yaml"
		listBackend   = "kubectl get service,endpointslices,pods --namespace=${backend}"
		listLeases    = "kubectl get leases --namespace=kube-system"
		forcePod      = "kubectl delete pod ${pod} --namespace=${namespace} --grace-period=0 --force"
		getNamespace  = "kubectl get namespace ${namespace} --output=yaml --show-managed-fields"
		logs          = "kubectl logs --namespace=${workloadNamespace} ${workload} --tail=100"
		// The controller is not known.
		findController = "Find the controller responsible for ${unownedFinalizer}, and keep it running until the namespace " +
			"is deleted"
		force = "kubectl nslifecycle finalize ${namespace} --"
	)
	inspect, resolve, resolveWith := diagnosis.Inspect, diagnosis.Resolve, diagnosis.ResolveWith
	type remedies = []diagnosis.Remedy
	// The owner of a finalizer is running or unknown.
	pending := remedies{inspect(logs), inspect(
		"Check the log of the finalizer's owner to determine why it does not remove the finalizer")}
	initializer := remedies{
		resolve("Start the controller of ${initializer}, or check its log"),
		inspect("kubectl get namespaceinitializerconfigurations"),
	}
	causes = []Entry{
		{diagnosis.CauseNamespaceControllerUnresponsive, ruleController,
			"No namespace controller deletes the content of the namespace.",
			"The content of the namespace remains in storage and cannot be reached", remedies{
				resolve("Start kube-controller-manager (with its namespace controller) or the nslifecycle manager, or check " +
					"its log"),
				inspect(listLeases),
				inspect("kubectl get pods --namespace=kube-system --selector=component=kube-controller-manager"),
			}},
		{diagnosis.CauseForbidden, ruleForbidden,
			"The namespace controller lacks permissions, which can be those that an aggregated API server requires.", "",
			remedies{resolve("Restore the ClusterRole and the ClusterRoleBinding of the namespace controller")}},
		{diagnosis.CauseAPIServiceUnavailable, ruleDiscovery,
			"An aggregated API server does not respond, so its objects in the namespace can be neither listed nor deleted.",
			"Without the APIService, the objects that its server stores for this namespace cannot be reached; they remain in " +
				"the storage of that server", remedies{
				inspect(getAPIService), inspect(listBackend),
				resolveWith("Repair the API server of the APIService, its Service or its certificate. If it was uninstalled "+
					"permanently, delete the APIService", "kubectl delete apiservice ${apiservices}"),
			}},
		{diagnosis.CauseDiscoveryStale, ruleDiscovery, "The discovery cache of the API server is stale for a group version.",
			"", remedies{
				inspect("kubectl get --raw=/apis/${groupVersion}"), inspect(getAPIService),
				resolve("Wait a minute. If the error persists, restart kube-apiserver or the server of this API group: " +
					"kube-apiserver cannot read its discovery response"),
			}},
		{diagnosis.CauseDiscoveryFailing, ruleDiscovery, "Discovery of a group version fails for another reason.", "",
			remedies{inspect("kubectl get --raw=/apis/${groupVersion}"), inspect(getAPIService)}},
		{diagnosis.CauseGroupVersionInvalid, ruleDiscovery, "The name of a group version cannot be parsed.", "", remedies{
			inspect("kubectl api-resources"), inspect("kubectl get apiservices"),
			resolve("Fix or remove the API server that serves this group version: a group version must have the format " +
				"GROUP/VERSION"),
		}},
		{diagnosis.CauseConversionWebhookFailing, ruleConversion,
			"Objects of a CustomResourceDefinition cannot be read because its conversion webhook fails.",
			"With spec.conversion.strategy None, the objects can be deleted but are not converted: clients do not get fields " +
				"that are named differently in the stored version", remedies{
				inspect("kubectl get customresourcedefinition ${crd} --output=jsonpath='{.spec.conversion}'"), inspect(listBackend),
				resolve("Restore the webhook. If it was in this namespace, install it in another namespace"),
				resolve("kubectl patch customresourcedefinition ${crd} --type=merge " +
					`--patch='{"spec":{"conversion":{"strategy":"None","webhook":null}}}'`),
			}},
		{diagnosis.CauseStorageUnreadable, ruleUnreadable, "Stored objects cannot be read.",
			"An object that is deleted without being read leaves behind everything that its finalizers protect", remedies{
				inspect("kubectl get ${type} --namespace=${namespace}"),
				inspect("Find the etcd key in the log of kube-apiserver, and check that its encryption configuration contains " +
					"the key that encrypted the objects"),
				resolve("If an object is lost permanently, delete it with the delete option " +
					"ignoreStoreReadErrorWithClusterBreakingPotential"),
			}},
		{diagnosis.CauseAdmissionWebhookFailing, ruleAdmission,
			"An admission webhook with failurePolicy Fail does not respond.",
			"Without the webhook, its checks are skipped in all namespaces that it applies to",
			remedies{resolve("Repair the webhook, its Service or its certificate")}},
		{diagnosis.CauseAdmissionRejected, ruleAdmission, "An admission webhook or policy denies the necessary requests.",
			"Everything that the ${denier} protects", remedies{resolve("Meet the ${denier}'s requirements")}},
		{diagnosis.CauseFinalizerRemovalInvalid, ruleAdmission,
			"A finalizer cannot be removed because the object is invalid.", lossUnknownFinalizer, remedies{
				resolveWith("Correct the fields that the error names, in the same patch that removes the finalizer",
					"kubectl edit ${type} ${name} --namespace=${namespace}"),
				resolve("If the schema of a CustomResourceDefinition became stricter, relax it until the object is deleted"),
			}},
		{diagnosis.CauseDependencyMissing, ruleFinalizer,
			"A controller published that an object cannot be finalized because another object does not exist.", "",
			remedies{inspect("Check whether the controller can continue without the missing object: nothing can be " +
				"created in a terminating namespace")}},
		{diagnosis.CauseFinalizerOwnerFailing, ruleFinalizer,
			"A controller published why an object with a finalizer is not deleted.", "", remedies{
				resolve("Resolve the problem that the controller reports; it then removes the finalizer"), inspect(logs),
			}},
		{diagnosis.CauseObjectPaused, ruleFinalizer,
			"A setting of an object makes the controller responsible for a finalizer ignore it.", "",
			remedies{resolve("Remove the setting that pauses the controller, and let it remove the finalizer")}},
		{diagnosis.CauseFinalizerOwnerInNamespace, ruleFinalizer,
			"The controller responsible for a finalizer, or its permissions, were in the namespace and are deleted with it.", "",
			remedies{resolve("Install the finalizer's owner in another namespace, and let it remove the finalizer: " +
				"nothing can be created in a terminating namespace")}},
		{diagnosis.CauseFinalizerOwnerNotRunning, ruleFinalizer,
			"The controller that is inferred to be responsible for a finalizer has no ready pods.", "",
			remedies{resolve("Scale up or reinstall the finalizer's owner, and let it remove the finalizer")}},
		{diagnosis.CauseFinalizerOwnerForbidden, ruleFinalizer,
			"The controller responsible for a finalizer lacks permissions.", "",
			remedies{resolve("Restore the permissions of the ServiceAccount with a ClusterRoleBinding until the " +
				"namespace is deleted. A RoleBinding cannot be created in a terminating namespace, and the previous one may " +
				"already be deleted")}},
		{diagnosis.CauseFinalizerOwnerNotFound, ruleFinalizer,
			"No workload was found that could be responsible for a finalizer.", "",
			remedies{inspect("Find the controller that adds this finalizer, and check that it is running")}},
		{diagnosis.CausePodOnUnreachableNode, rulePod, "The node of a pod is unreachable or does not exist.", lossPod,
			remedies{
				inspect("kubectl get node ${node} --output=wide"),
				resolveWith("Restore the node. If it is lost permanently, delete its Node object, which deletes the pods",
					"kubectl delete node ${node}"),
				resolve("kubectl taint node ${node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
				resolve(forcePod),
			}},
		{diagnosis.CausePodNotTerminating, rulePod, "A pod exceeded its grace period on a node that is ready.", lossPod,
			remedies{
				inspect("kubectl describe pod ${pod} --namespace=${namespace}"),
				inspect("Check the log of the kubelet on its node for a volume that cannot be unmounted or a container that " +
					"cannot be killed"),
				resolve(forcePod),
			}},
		{diagnosis.CausePodFinalizer, rulePod, "A finalizer blocks a pod that has terminated.", "", pending},
		{diagnosis.CauseCloudResource, ruleCloud,
			"A load balancer or another resource outside the cluster has not been deleted.", "", pending},
		{diagnosis.CauseVolumeInUse, ruleVolume, "A pod that is not being deleted uses a PersistentVolumeClaim.",
			owners.LossVolume, remedies{
				resolve("kubectl delete pod ${pod} --namespace=${namespace}"),
				resolveWith(remedyForcePreview, force+"finalizer=${finalizer}"),
			}},
		{diagnosis.CauseForegroundDeletion, ruleForeground, "An object waits for the deletion of its dependents.", "",
			remedies{
				resolve("Start ${manager}, or check its log: it is part of the control plane"), inspect(listLeases),
				resolveWith(remedyForcePreview, force+"finalizer=${finalizer}"),
			}},
		{diagnosis.CauseFinalizerPending, ruleFinalizer,
			"The controller responsible for a finalizer is running or unknown, and has not removed the finalizer.", "", pending},
		{diagnosis.CauseCRDTerminating, ruleCRD,
			"A CustomResourceDefinition is being deleted, but the deletion of its objects makes no progress.",
			"Without its finalizer, the CustomResourceDefinition is deleted, but its objects remain in storage and cannot be " +
				"reached", remedies{
				inspect("kubectl get customresourcedefinition ${crd} --output=jsonpath='{.status.conditions}'"),
				resolve("kubectl delete ${crd} --all --namespace=${namespace}"),
			}},
		{diagnosis.CauseThrottled, ruleThrottled, "The API server throttles the namespace controller.", "", remedies{
			inspect("kubectl get --raw=/metrics | grep apiserver_flowcontrol_rejected_requests_total"),
			inspect("kubectl get flowschemas,prioritylevelconfigurations"),
			resolve("Find the client that overloads the API server, or raise the concurrency limit of the namespace " +
				"controller's priority level"),
		}},
		{diagnosis.CauseTooManyObjects, ruleTooManyObjects,
			"Requests time out because the namespace contains too many objects.", "", remedies{
				resolve("kubectl delete ${type} --all --namespace=${namespace} --wait=false"),
				resolve("Increase the capacity of etcd and kube-apiserver, or use nslifecycle's namespace controller, which " +
					"deletes objects individually"),
			}},
		{diagnosis.CauseNamespaceFinalizer, ruleNamespaceFinalizer,
			"A namespace finalizer (an entry of spec.finalizers) has not been removed.", "", remedies{
				resolve("Keep the controller of initializer ${initializer} running until the namespace is deleted. If the " +
					"controller does not handle deletion, remove finalizer ${finalizer} from the configuration, so that the " +
					"finalizer is not added to new namespaces"),
				inspect(findController),
				inspect(getNamespace), resolveWith(remedyForcePreview, force+"namespace-finalizer=${finalizer}"),
			}},
		{diagnosis.CauseNamespaceMetadataFinalizer, ruleNamespaceFinalizer,
			"A finalizer in metadata.finalizers of the Namespace has not been removed.", "", remedies{
				inspect(findController), inspect(getNamespace),
				resolveWith(remedyForcePreview, force+"metadata-finalizer=${finalizer}"),
			}},
		{diagnosis.CauseUnknown, ruleUnknown, "The deletion makes no progress for an unknown reason.", "", remedies{
			inspect("kubectl get namespace ${namespace} --output=yaml"),
			inspect("Check the log of the namespace controller in kube-controller-manager or in the nslifecycle manager"),
		}},
		{diagnosis.CauseInitializerNotRegistered, ruleInitializer, "No configuration registers the initializer.", "",
			initializer},
		{diagnosis.CauseInitializerFailing, ruleInitializer,
			"The initializer published why the initialization is not complete.", "",
			append(remedies{resolve("Resolve the problem that the initializer reports; it then removes its name " +
				"from the pending list")}, initializer...)},
		{diagnosis.CauseInitializerNotRunning, ruleInitializer,
			`No identity with the "initialize" verb for the namespace is running, except the control plane.`, "", initializer},
		{diagnosis.CauseInitializerSlow, ruleInitializer,
			"An identity that may initialize the namespace seems to be running, but has not acted within the progress deadline.",
			"", initializer},
		{diagnosis.CauseInitializerPending, ruleInitializer, "It is unknown whether the initializer is running.", "",
			initializer},
	}
}

// entryOf returns the entry of a cause and its position in the table. The reason of a condition that another version of
// the operator wrote may have no entry.
func entryOf(cause diagnosis.Cause) (entry Entry, position int) {
	for at, one := range causes {
		if one.Cause == cause {
			return one, at
		}
	}
	return Entry{}, len(causes)
}

// params are the values of the parameters of remedies, except the name of the namespace. The texts that contain a
// parameter without values are omitted.
type params map[string][]string

// Parameters of several rules.
const (
	paramFinalizer   = "finalizer"
	paramInitializer = "initializer"
)

// newFinding returns a finding with the remedies and the loss of its cause.
func (f view) newFinding(cause diagnosis.Cause, rank diagnosis.Rank, message string, values params) diagnosis.Finding {
	entry, _ := entryOf(cause)
	finding := diagnosis.Finding{Cause: cause, Rank: rank, Message: message, Remedies: f.remediesFor(cause, values)}
	if format, args, ok := f.format(entry.loss, values); ok {
		finding.Loss = fmt.Sprintf(format, args...)
	}
	return finding
}

// remediesFor returns the remedies of a cause, except those with a parameter that has no values.
func (f view) remediesFor(cause diagnosis.Cause, values params) []diagnosis.Remedy {
	var remedies []diagnosis.Remedy
	entry, _ := entryOf(cause)
	for _, one := range entry.remedies {
		text, textArgs, hasTextArgs := f.format(one.Text, values)
		command, names, hasNames := f.format(one.Command, values)
		if !hasTextArgs || !hasNames {
			continue
		}
		text, command = fmt.Sprintf(text, textArgs...), shell.Command(command, names...)
		remedy := diagnosis.Inspect(text + command)
		if text != "" && command != "" {
			remedy = diagnosis.ResolveWith(text, command)
		}
		remedy.Changes = one.Changes
		remedies = append(remedies, remedy)
	}
	return remedies
}

// format replaces the parameters in a text with verbs of package fmt. ok reports whether all of them have values. A
// parameter that the rule forgets remains in the text, and fails a test.
func (f view) format(text string, values params) (format string, args []any, ok bool) {
	ok = true
	format = os.Expand(text, func(name string) string {
		all, isSet := values[name]
		switch {
		case name == "namespace":
			all = []string{f.Namespace.Name}
		case !isSet:
			all = []string{"${" + name + "}"}
		}
		ok = ok && len(all) > 0
		for _, value := range all {
			args = append(args, value)
		}
		return strings.TrimSuffix(strings.Repeat("%s ", len(all)), " ")
	})
	return format, args, ok
}
