// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
)

// ControllerManager is the name of the process that runs the controllers of Kubernetes.
const ControllerManager = "kube-controller-manager"

// Finalizers that Kubernetes adds to objects.
const (
	FinalizerForeground   = "foregroundDeletion"
	FinalizerPVC          = "kubernetes.io/pvc-protection"
	FinalizerJob          = "batch.kubernetes.io/job-tracking"
	FinalizerLoadBalancer = "service.kubernetes.io/load-balancer-cleanup"

	finalizerOrphan = "orphan"
)

// KnownFinalizer describes a finalizer of a controller of Kubernetes or of another common controller.
type KnownFinalizer struct {
	// Owner is the controller that removes the finalizer. If the controller is part of Kubernetes,
	// Manager is the name of its process and of the Lease of this process.
	Owner, Manager string
	// External reports whether the finalizer protects a resource outside the cluster.
	External bool
	// Loss states what is lost or left behind if the finalizer is removed by force.
	Loss string
	// Controller contains the other facts about the owner if it is not part of Kubernetes.
	Controller *knowncontrollers.Controller
}

// IsBuiltIn reports whether a process of Kubernetes itself removes the finalizer.
func (k *KnownFinalizer) IsBuiltIn() bool { return k.Controller == nil }

// LossVolume states what is lost if a PersistentVolumeClaim is deleted by force.
const LossVolume = "A volume can be detached or deleted while it is in use; data can be lost"

var builtInFinalizers = map[string]KnownFinalizer{
	FinalizerForeground: builtIn("garbage collector",
		"Remaining dependents are deleted later by the garbage collector, or not at all"),
	finalizerOrphan: builtIn("garbage collector",
		"Dependents refer to an owner that does not exist, and are therefore garbage-collected"),
	FinalizerPVC: builtIn("pvc-protection controller", LossVolume),
	FinalizerJob: builtIn("job controller",
		"The Job can count this Pod incorrectly; in a terminating namespace, nothing is lost"),
	"resource.kubernetes.io/delete-protection": builtIn("resource claim controller",
		"A device can be allocated again while it is in use"),
}

func builtIn(controller, loss string) KnownFinalizer {
	return KnownFinalizer{Owner: "the " + controller + " of " + ControllerManager, Manager: ControllerManager, Loss: loss}
}

// cloudDomains are the domains of cloud providers that run controllers outside the cluster. The
// cluster contains no evidence of such controllers.
var cloudDomains = []string{
	"amazonaws.com", "k8s.aws", "gke.io", "cloud.google.com", "azure.com", "microsoft.com", "alibabacloud.com",
	"digitalocean.com", "ibm.com", "oraclecloud.com",
}

// Known returns the description of a finalizer of a common controller. Several controllers can use the
// same finalizer for objects of different types, so ok is false if the objects have several controllers.
func Known(finalizer string, objects []diagnosis.RemainingObject) (known *KnownFinalizer, ok bool) {
	if builtIn, ok := builtInFinalizers[finalizer]; ok {
		return &builtIn, true
	}
	controller, entry, ok := controllerOf(finalizer, objects)
	if !ok {
		return nil, false
	}
	return &KnownFinalizer{
		Owner: controller.Name, External: controller.Outside, Loss: entry.Loss, Controller: controller,
	}, true
}

func controllerOf(
	finalizer string, objects []diagnosis.RemainingObject,
) (controller *knowncontrollers.Controller, entry *knowncontrollers.Finalizer, ok bool) {
	if len(objects) == 0 {
		return knowncontrollers.ByFinalizer(finalizer, "")
	}
	for i, object := range objects {
		next, nextEntry, ok := knowncontrollers.ByFinalizer(finalizer, object.Type.String())
		if !ok || i > 0 && next != controller {
			return nil, nil, false
		}
		controller, entry = next, nextEntry
	}
	return controller, entry, true
}

// GroupByOwner splits objects with the same finalizer into groups with the same known owner. Several
// controllers can use an unknown finalizer, but rarely for the same API group.
func GroupByOwner(finalizer string, objects []diagnosis.RemainingObject) [][]diagnosis.RemainingObject {
	groups := map[string][]diagnosis.RemainingObject{}
	for _, object := range objects {
		name := "unknown owner for API group " + object.Group
		if known, ok := Known(finalizer, []diagnosis.RemainingObject{object}); ok {
			name = known.Owner
		}
		groups[name] = append(groups[name], object)
	}
	var result [][]diagnosis.RemainingObject
	for _, group := range diagnosis.Sorted(groups) {
		result = append(result, group)
	}
	return result
}

// hasWorkload reports whether the known controller runs in a workload that the diagnosis reads. Others run in
// pods of other objects, or in workloads with different labels in each installation.
func (k *KnownFinalizer) hasWorkload() bool {
	return slices.ContainsFunc(k.Controller.Workloads, func(workload knowncontrollers.Workload) bool {
		return workload.Kind != "Pod"
	})
}

// isWorkload reports whether a workload is the controller: it has its labels, and its image or one of its
// names. Users can rename a workload, but rarely everything.
func isWorkload(controller *knowncontrollers.Controller, workload *diagnosis.Workload) bool {
	return slices.ContainsFunc(controller.Workloads, func(known knowncontrollers.Workload) bool {
		for key, value := range known.Labels {
			if workload.Labels[key] != value {
				return false
			}
		}
		isDefault := slices.Contains(controller.Namespaces, workload.Namespace)
		return len(known.Labels) > 0 && (isDefault || workload.Name == known.Name ||
			workload.ServiceAccount.Name == known.ServiceAccount && known.ServiceAccount != "" ||
			slices.ContainsFunc(workload.Images, func(image string) bool { return imageName(image) == known.Image }))
	})
}

func isCloudDomain(domain string) bool {
	return slices.ContainsFunc(cloudDomains, func(cloud string) bool {
		return domain == cloud || strings.HasSuffix(domain, "."+cloud)
	})
}

// ManagerLease is the default name of the Lease of this project's manager.
const ManagerLease = "nslifecycle.dev"

// finalizationLease is the name of the Lease of config/manager/finalization.
const finalizationLease = "finalization." + ManagerLease

// DescribeLease returns a description of a Lease, and whether its holder seems to be running. A leader
// renews its Lease several times within the lease duration, and a new leader acquires the Lease soon
// after it expires.
func DescribeLease(facts *diagnosis.Facts, lease *coordinationv1.Lease) (text string, isCurrent bool) {
	const durations = 4
	renewed := lease.Spec.RenewTime.Time
	limit := max(durations*time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second, time.Minute)
	text = fmt.Sprintf("Lease %s/%s was renewed %s ago, at %s, by %q",
		lease.Namespace, lease.Name, facts.Ago(renewed), diagnosis.FormatTime(renewed),
		ptr.Deref(lease.Spec.HolderIdentity, ""))
	return text, facts.Now.Sub(renewed) < limit
}

// IsControlPlaneLease reports whether a Lease belongs to a controller of Kubernetes or to the manager
// of this project.
func IsControlPlaneLease(lease *coordinationv1.Lease) bool {
	return lease.Namespace == metav1.NamespaceSystem || IsManagerLease(lease)
}

// IsManagerLease reports whether a Lease has the default name of the Lease of a manager of this project that can
// finalize namespaces.
func IsManagerLease(lease *coordinationv1.Lease) bool {
	return lease.Name == ManagerLease || lease.Name == finalizationLease
}
