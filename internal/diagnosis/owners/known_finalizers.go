// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Processes that run the controllers of Kubernetes.
const (
	ControllerManager      = "kube-controller-manager"
	cloudControllerManager = "cloud-controller-manager"
)

// Finalizers that Kubernetes adds to objects.
const (
	FinalizerForeground   = "foregroundDeletion"
	FinalizerPVC          = "kubernetes.io/pvc-protection"
	FinalizerJob          = "batch.kubernetes.io/job-tracking"
	FinalizerLoadBalancer = "service.kubernetes.io/load-balancer-cleanup"

	finalizerOrphan = "orphan"
)

// KnownFinalizer describes a finalizer of a common controller.
type KnownFinalizer struct {
	// Owner is the controller that removes the finalizer. If the controller is part of Kubernetes,
	// Manager is the name of its process and of the Lease of this process.
	Owner, Manager string
	// External reports whether the finalizer protects a resource outside the cluster.
	External bool
	// Loss states what is lost or left behind if the finalizer is removed by force.
	Loss string
	// FieldManagers are the field managers of the owner if it is an add-on.
	FieldManagers []string
	// Pauses are the annotations that make the owner ignore an object.
	Pauses []Pause
	// workloads are the names of the workloads of the owner if it is an add-on.
	workloads []string
}

// Pause is an annotation that makes a controller ignore an object. If Value is empty, any value does.
type Pause struct{ Annotation, Value string }

// IsBuiltIn reports whether a process of Kubernetes itself removes the finalizer.
func (k *KnownFinalizer) IsBuiltIn() bool { return k.Manager != "" && len(k.workloads) == 0 }

const (
	awsLoadBalancers     = "aws-load-balancer-controller"
	awsLoadBalancerOwner = "the AWS Load Balancer Controller"
	gkeIngressOwner      = "the GKE ingress controller, which runs outside the cluster"
)

var knownFinalizers = map[string]KnownFinalizer{
	FinalizerForeground: {
		Owner: "the garbage collector of " + ControllerManager, Manager: ControllerManager, Loss: lossForeground,
	},
	finalizerOrphan: {
		Owner: "the garbage collector of " + ControllerManager, Manager: ControllerManager, Loss: lossOrphan,
	},
	FinalizerPVC: {
		Owner: "the pvc-protection controller of " + ControllerManager, Manager: ControllerManager, Loss: LossVolume,
	},
	FinalizerJob: {
		Owner: "the job controller of " + ControllerManager, Manager: ControllerManager, Loss: lossJob,
	},
	FinalizerLoadBalancer: {
		Owner: "the service controller of " + cloudControllerManager, Manager: cloudControllerManager, External: true,
		Loss:      lossLoadBalancer,
		workloads: []string{cloudControllerManager},
	},
	"resource.kubernetes.io/delete-protection": {
		Owner: "the resource claim controller of " + ControllerManager, Manager: ControllerManager, Loss: lossDevice,
	},
	"external-provisioner.volume.kubernetes.io/finalizer": {
		Owner: "the external-provisioner of the CSI driver", workloads: []string{"csi-provisioner"}, Loss: lossCSI,
	},
	"service.k8s.aws/resources": {
		Owner: awsLoadBalancerOwner, workloads: []string{awsLoadBalancers}, External: true, Loss: lossLoadBalancer,
	},
	"ingress.k8s.aws/resources": {
		Owner: awsLoadBalancerOwner, workloads: []string{awsLoadBalancers}, External: true, Loss: lossLoadBalancer,
	},
	"elbv2.k8s.aws/resources": {
		Owner: awsLoadBalancerOwner, workloads: []string{awsLoadBalancers}, External: true, Loss: lossLoadBalancer,
	},
	"networking.gke.io/l4-netlb-v2":          {Owner: gkeIngressOwner, External: true, Loss: lossLoadBalancer},
	"networking.gke.io/neg-finalizer":        {Owner: gkeIngressOwner, External: true, Loss: lossLoadBalancer},
	"networking.gke.io/ingress-finalizer-V2": {Owner: gkeIngressOwner, External: true, Loss: lossLoadBalancer},
}

// knownPrefixes are the prefixes of finalizers with a variable suffix.
var knownPrefixes = map[string]KnownFinalizer{
	"snapshot.storage.kubernetes.io/": {
		Owner: "the snapshot controller", workloads: []string{"snapshot-controller"},
		Loss: lossSnapshot,
	},
	"external-attacher/": {
		Owner: "the external-attacher of the CSI driver", workloads: []string{"csi-attacher"}, Loss: lossCSI,
	},
	"group.ingress.k8s.aws/": {
		Owner: awsLoadBalancerOwner, workloads: []string{awsLoadBalancers}, External: true, Loss: lossLoadBalancer,
	},
}

// cloudDomains are the domains of cloud providers that run controllers outside the cluster. The
// cluster contains no evidence of such controllers.
var cloudDomains = []string{
	"amazonaws.com", "k8s.aws", "gke.io", "cloud.google.com", "azure.com", "microsoft.com", "alibabacloud.com",
	"digitalocean.com", "ibm.com", "oraclecloud.com",
}

// Known returns the description of a finalizer of a common controller. Several controllers can use the
// same finalizer for objects of different types.
func Known(finalizer string, objects []diagnosis.RemainingObject) (known *KnownFinalizer, ok bool) {
	if known, ok := knownFinalizers[finalizer]; ok {
		return &known, true
	}
	for prefix, known := range knownPrefixes {
		if strings.HasPrefix(finalizer, prefix) {
			return &known, true
		}
	}
	return nil, false
}

// isWorkload reports whether a workload is the controller.
func (k *KnownFinalizer) isWorkload(workload *diagnosis.Workload) bool {
	return slices.Contains(k.workloads, workload.Name) ||
		slices.Contains(k.workloads, workload.Labels["app.kubernetes.io/name"])
}

func isCloudDomain(domain string) bool {
	return slices.ContainsFunc(cloudDomains, func(cloud string) bool {
		return domain == cloud || strings.HasSuffix(domain, "."+cloud)
	})
}
